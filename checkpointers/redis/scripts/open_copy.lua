-- uses: thread write
-- writes
-- Begins a copy: a provisional thread that counts as absent and goes by itself. After the guard: milliseconds to live.
local refusal = refused()
if refusal then return refusal end
begin()
redis.call('HSET', h, 'y', '1')
redis.call('PEXPIRE', h, ARGV[FIRST])
return { 'OK' }

-- uses: thread list write
-- writes
-- Begins a copy: a provisional thread that counts as absent and goes by itself. After the guard: milliseconds to live.
-- Its mark tells it from a reservation, which becomes real with the next write.
local refusal = refused()
if refusal then return refusal end
begin()
redis.call('HSET', h, 'y', 'copy')
redis.call('PEXPIRE', h, ARGV[FIRST])
return { 'OK' }

-- uses: thread list write
-- writes
-- Takes the numbers of a large write before its rows are uploaded. After the guard: its pages, milliseconds to live of
-- a thread that it creates. Until the write itself commits, that thread counts as absent.
local refusal = refused()
if refusal then return refusal end
begin()
redis.call('HSET', h, 'g', ARGV[4] .. ARGV[FIRST])
if ARGV[1] == '1' then
  redis.call('HSET', h, 'y', '1')
  redis.call('PEXPIRE', h, ARGV[FIRST + 1])
else
  last()
end
return { 'OK' }

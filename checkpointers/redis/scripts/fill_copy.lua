-- uses: thread
-- writes
-- Adds raw fields to a copy: uid, milliseconds to live, (field, value) pairs.
local m = redis.call('HMGET', h, 'u', 'y')
if m[1] ~= ARGV[1] or not m[2] then return 0 end
for a = 3, #ARGV, 2 do redis.call('HSET', h, ARGV[a], ARGV[a + 1]) end
redis.call('PEXPIRE', h, ARGV[2])
return 1

-- uses: thread
-- writes
-- Ends a hold: holder. Writers have to look again: what was copied meanwhile may stand elsewhere.
local m = redis.call('HMGET', h, 'z', 'r')
if not m[1] or string.sub(m[1], 9) ~= ARGV[1] then return 0 end
redis.call('HDEL', h, 'z')
redis.call('HSET', h, 'r', string.sub(redis.sha1hex(m[2]), 1, 8))
return 1

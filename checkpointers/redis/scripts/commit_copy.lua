-- uses: thread
-- writes
-- Makes a copy a thread: uid.
local m = redis.call('HMGET', h, 'u', 'y')
if m[1] ~= ARGV[1] then return 0 end
if m[2] then
  redis.call('HDEL', h, 'y')
  redis.call('PERSIST', h)
end
return 1

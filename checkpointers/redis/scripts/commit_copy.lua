-- uses: thread list
-- writes
-- Makes a copy a thread: uid, when it goes by itself ('' or 0: not).
local m = redis.call('HMGET', h, 'u', 'y', 'i')
if m[1] ~= ARGV[1] then return 0 end
if m[2] then
  redis.call('HDEL', h, 'y')
  redis.call('PERSIST', h)
  local t = redis.call('TIME')
  local goes = tonumber(ARGV[2]) or 0
  if l and goes > tonumber(t[1]) * 1000 + 1000 and list_all(m[1], m[3], ARGV[2]) then redis.call('PEXPIREAT', h, ARGV[2]) end
end
return 1

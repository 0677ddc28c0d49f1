-- uses: thread
-- writes
-- Has the thread's writers wait: holder, milliseconds, '1' to go on with a hold. 0 if somebody else does, or it is gone.
local m, t = redis.call('HMGET', h, 'u', 'y', 'z'), redis.call('TIME')
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
if not m[1] or m[2] then return 0 end
if not m[3] or string.sub(m[3], 9) ~= ARGV[1] then
  if ARGV[3] == '1' or (m[3] and struct.unpack('>d', m[3]) > now) then return 0 end
end
redis.call('HSET', h, 'z', struct.pack('>d', now + tonumber(ARGV[2])) .. ARGV[1])
return 1

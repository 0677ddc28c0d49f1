-- uses: thread
-- writes
-- Takes back rows of an upload that failed, also where memory is full: uid, revision of its reservation, packed pages.
local m = redis.call('HMGET', h, 'u', 'r')
if m[1] ~= ARGV[1] or m[2] ~= ARGV[2] then return 0 end
for a = 1, #ARGV[3], 4 do
  local first, names = struct.unpack('>I4', ARGV[3], a) * 64, {}
  for i = 1, 64 do names[i] = 'b' .. (first + i) end
  redis.call('HDEL', h, unpack(names))
end
return 1

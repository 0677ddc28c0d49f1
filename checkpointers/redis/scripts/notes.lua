-- uses: thread
-- The notes whose keys begin with a prefix: uid, prefix. (key, body) pairs.
local m = redis.call('HMGET', h, 'u', 'NI')
local out, list, at = {}, m[2] or '', 1
if m[1] ~= ARGV[1] then return out end
while at <= #list do
  local size = struct.unpack('>I2', list, at)
  local key = string.sub(list, at + 2, at + 1 + size)
  if string.sub(key, 1, #ARGV[2]) == ARGV[2] then
    out[#out + 1] = key
    out[#out + 1] = redis.call('HGET', h, 'N' .. string.sub(list, at, at + 1 + size))
  end
  at = at + 2 + size
end
return out

-- uses: items
-- Vectors of (id, no) pairs; '' where an item of this version has none.
local out = {}
for a = 1, #ARGV, 2 do
  local found = redis.call('HGET', DATA, 'v' .. ARGV[a])
  out[#out + 1] = found and string.sub(found, 1, 8) == ARGV[a + 1] and string.sub(found, 9) or ''
end
return out

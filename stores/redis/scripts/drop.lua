-- uses: items
-- writes
-- Removes (id, header) pairs that still have this header, or begin so; 1 for each that had, else 0.
local out = {}
for a = 1, #ARGV, 2 do
  local value = redis.call('HGET', DATA, 'd' .. ARGV[a])
  local is_it = value and string.sub(value, 1, #ARGV[a + 1]) == ARGV[a + 1]
  if is_it then forget(ARGV[a]) end
  out[#out + 1] = is_it and 1 or 0
end
return out

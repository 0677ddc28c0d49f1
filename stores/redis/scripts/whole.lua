-- uses: items
-- Value, vectors and words of (id, no) pairs that still are this version, expired or not; '' for what is not there.
local out = {}
for a = 1, #ARGV, 2 do
  local value = redis.call('HGET', DATA, 'd' .. ARGV[a])
  local is_it = value and string.sub(value, 1, 8) == ARGV[a + 1]
  out[#out + 1] = is_it and value or ''
  for _, kind in ipairs({'v', 'w'}) do
    local found = is_it and redis.call('HGET', DATA, kind .. ARGV[a])
    out[#out + 1] = found and string.sub(found, 1, 8) == ARGV[a + 1] and string.sub(found, 9) or ''
  end
end
return out

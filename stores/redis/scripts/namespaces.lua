-- uses: items
-- Namespaces of live items below a prefix among the ids from a rank on; then the next rank, or -1.
local prefix, from, size = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local ids = redis.call('ZRANGE', RECENT, from, from + size - 1)
local seen, out = {}, {}
for _, id in ipairs(ids) do
  if string.sub(id, 1, #prefix) == prefix then
    local ns = string.sub(id, 1, string.find(id, '\0\0', 1, true))
    if not seen[ns] then
      local expires = redis.call('ZSCORE', DEADLINES, id)
      if not expires or tonumber(expires) > now then
        seen[ns] = true
        out[#out + 1] = ns
      end
    end
  end
end
out[#out + 1] = #ids < size and -1 or from + size
return out

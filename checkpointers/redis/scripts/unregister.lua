-- writes
-- Takes members out of an index if nobody registered them again: (score, member) pairs.
local removed = 0
for from = 1, #ARGV, 2000 do
  local gone = {}
  for a = from, math.min(from + 1999, #ARGV), 2 do
    local score = redis.call('ZSCORE', KEYS[1], ARGV[a + 1])
    if score and tonumber(score) == tonumber(ARGV[a]) then gone[#gone + 1] = ARGV[a + 1] end
  end
  if #gone > 0 then removed = removed + redis.call('ZREM', KEYS[1], unpack(gone)) end
end
return removed

-- writes
-- Takes members out of an index if nobody registered them again: (score, member) pairs.
local removed = 0
for a = 1, #ARGV, 2 do
  local score = redis.call('ZSCORE', KEYS[1], ARGV[a + 1])
  if score and tonumber(score) == tonumber(ARGV[a]) then removed = removed + redis.call('ZREM', KEYS[1], ARGV[a + 1]) end
end
return removed

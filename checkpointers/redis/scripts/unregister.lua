-- writes
-- Takes members out of an index if nobody registered them again: their scores, then as many members.
local count, removed = #ARGV / 2, 0
for from = 1, count, 1000 do
  local last, gone = math.min(from + 999, count), {}
  local scores = redis.call('ZMSCORE', KEYS[1], unpack(ARGV, count + from, count + last))
  for k, score in ipairs(scores) do
    local at = from + k - 1
    if score and tonumber(score) == tonumber(ARGV[at]) then gone[#gone + 1] = ARGV[count + at] end
  end
  if #gone > 0 then removed = removed + redis.call('ZREM', KEYS[1], unpack(gone)) end
end
return removed

-- uses: items
-- writes
-- ARGV: who moved; (id, no, taken) for items that were moved here: '1' where this one has taken it away there, '0' where
-- it was not there any more, or not as it was. One that none of its movers has taken away was deleted or written there
-- meanwhile, so it goes here; how many are left.
for a = 2, #ARGV, 3 do
  local id, movers = ARGV[a], redis.call('HGET', DATA, 'o' .. ARGV[a])
  local value = movers and redis.call('HGET', DATA, 'd' .. id)
  if value and string.sub(value, 1, 8) == ARGV[a + 1] then
    local others = ''
    for at = 1, #movers, 8 do
      local one = string.sub(movers, at, at + 7)
      if one ~= ARGV[1] then others = others .. one end
    end
    if ARGV[a + 2] == '1' then redis.call('HDEL', DATA, 'o' .. id)
    elseif others ~= '' then redis.call('HSET', DATA, 'o' .. id, others)
    elseif others ~= movers then forget(id) end
  end
end
return redis.call('ZCARD', RECENT)

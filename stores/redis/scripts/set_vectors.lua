-- uses: items
-- writes
-- Replaces the vectors of (id, no, vectors) triples that still are this version.
for a = 1, #ARGV, 3 do
  local id, value = ARGV[a], live_value(ARGV[a])
  if value and string.sub(value, 1, 8) == ARGV[a + 1] then
    if ARGV[a + 2] == '' then redis.call('HDEL', DATA, 'v' .. id)
    else redis.call('HSET', DATA, 'v' .. id, ARGV[a + 1] .. ARGV[a + 2]) end
  end
end
return redis.status_reply('OK')

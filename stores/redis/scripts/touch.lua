-- uses: items
-- writes
-- Moves the deadline of (id, no) pairs that still are this version and live.
for a = 1, #ARGV, 2 do
  local id, value = ARGV[a], live_value(ARGV[a])
  if value and string.sub(value, 1, 8) == ARGV[a + 1] then
    local no, created, updated, ttl, before = header(value)
    if before >= 0 then
      local expires = now + math.floor(ttl * 60000000)
      redis.call('HSET', DATA, 'd' .. id, string.sub(value, 1, 32) .. struct.pack('>d', expires) .. string.sub(value, 41))
      deadline(id, expires)
    end
  end
end
return redis.status_reply('OK')

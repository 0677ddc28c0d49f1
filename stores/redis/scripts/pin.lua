-- uses: items
-- writes
-- ARGV: 1 to take the deadlines of ids, 0 to give them back; the ids.
for a = 2, #ARGV do
  local id, value = ARGV[a], live_value(ARGV[a])
  if value then
    local no, created, updated, ttl, expires = header(value)
    local after = nil
    if ARGV[1] == '1' and expires >= 0 then after = -1
    elseif ARGV[1] == '0' and is_pinned(value) then after = now + math.floor(ttl * 60000000) end
    if after then
      redis.call('HSET', DATA, 'd' .. id, string.sub(value, 1, 32) .. struct.pack('>d', after) .. string.sub(value, 41))
      deadline(id, after)
    end
  end
end
return redis.status_reply('OK')

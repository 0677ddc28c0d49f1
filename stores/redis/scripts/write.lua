-- uses: items
-- writes
-- KEYS[4]: who was erased. ARGV: number of people, who they are; number of deletes, their ids; then id, ttl (-1: none),
-- body, vectors, words for each put. If one of the people was erased, nothing is written.
for a = 2, 1 + tonumber(ARGV[1]) do
  if redis.call('SISMEMBER', KEYS[4], ARGV[a]) == 1 then return redis.status_reply('ERASED') end
end
local at = 3 + tonumber(ARGV[1])
for a = 1, tonumber(ARGV[at - 1]) do
  forget(ARGV[at])
  at = at + 1
end
local last = redis.call('ZREVRANGE', RECENT, 0, 0, 'WITHSCORES')[2]
local no = math.max(now, last and tonumber(last) + 1 or 0)
while at <= #ARGV do
  local id, ttl, body, vectors, words = ARGV[at], tonumber(ARGV[at + 1]), ARGV[at + 2], ARGV[at + 3], ARGV[at + 4]
  local old = live_value(id)
  local created = old and select(2, header(old)) or now
  local expires = (ttl < 0 or old and is_pinned(old)) and -1 or now + math.floor(ttl * 60000000)
  redis.call('HSET', DATA, 'd' .. id, struct.pack('>ddddd', no, created, now, ttl, expires) .. body)
  redis.call('ZADD', RECENT, number_text(no), id)
  deadline(id, expires)
  redis.call('HDEL', DATA, 'o' .. id)
  local version = struct.pack('>d', no)
  if vectors == '' then redis.call('HDEL', DATA, 'v' .. id)
  else redis.call('HSET', DATA, 'v' .. id, version .. vectors) end
  if words == '' then redis.call('HDEL', DATA, 'w' .. id)
  else redis.call('HSET', DATA, 'w' .. id, version .. words) end
  no, at = no + 1, at + 5
end
return redis.status_reply('OK')

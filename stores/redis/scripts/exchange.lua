-- uses: items
-- writes
-- ARGV: who does it; (id, header, fresh, body, vectors, words) for items in another form: their times stay. `fresh` is
-- '1' where the id is a new one, which another item may have taken: the newer stays. Else only this version is exchanged.
local mover = ARGV[1]
for a = 2, #ARGV, 6 do
  local id, head, fresh = ARGV[a], ARGV[a + 1], ARGV[a + 2] == '1'
  local old = redis.call('HGET', DATA, 'd' .. id)
  local is_it = old and string.sub(old, 1, 8) == string.sub(head, 1, 8)
  if is_it and not fresh then head = string.sub(old, 1, 40) end
  local no, created, updated, ttl, expires = header(head)
  if is_it or (fresh and (not old or header(old) < no)) then
    local version, vectors, words = string.sub(head, 1, 8), ARGV[a + 4], ARGV[a + 5]
    redis.call('HSET', DATA, 'd' .. id, head .. ARGV[a + 3])
    redis.call('ZADD', RECENT, number_text(no), id)
    deadline(id, expires)
    if vectors == '' then redis.call('HDEL', DATA, 'v' .. id)
    else redis.call('HSET', DATA, 'v' .. id, version .. vectors) end
    if words == '' then redis.call('HDEL', DATA, 'w' .. id)
    else redis.call('HSET', DATA, 'w' .. id, version .. words) end
    local movers = is_it and redis.call('HGET', DATA, 'o' .. id)
    if fresh and not is_it then redis.call('HSET', DATA, 'o' .. id, mover)
    elseif fresh and movers then redis.call('HSET', DATA, 'o' .. id, movers .. mover) end
  end
end
return redis.status_reply('OK')

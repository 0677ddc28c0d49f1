-- An item is one field of the hash: "d" and its id. An id is the namespace, NUL, the key; the first two NULs in a row
-- end the namespace. A value begins with no, created_at, updated_at, ttl (minutes), expires_at as doubles; -1 is none;
-- a pinned item has a ttl and no expires_at.
-- "v" and an id are its vectors and "w" and an id its words, each with the `no` of the item in front. "o" and an id are
-- those who move it here from elsewhere, eight bytes each, until one of them has taken it away there.
-- KEYS: the hash; the ids by `no`; the ids by deadline.
local DATA, RECENT, DEADLINES = KEYS[1], KEYS[2], KEYS[3]
local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000000 + tonumber(t[2])
local function header(value) return struct.unpack('>ddddd', value) end
local function number_text(n) return string.format('%.0f', n) end
local function is_live(expires) return expires < 0 or expires > now end
local function live_value(id)
  local value = redis.call('HGET', DATA, 'd' .. id)
  if not value then return false end
  local no, created, updated, ttl, expires = header(value)
  return is_live(expires) and value
end
local function is_pinned(value)
  local no, created, updated, ttl, expires = header(value)
  return ttl >= 0 and expires < 0
end
local function forget(id)
  redis.call('HDEL', DATA, 'd' .. id, 'v' .. id, 'w' .. id, 'o' .. id)
  redis.call('ZREM', RECENT, id)
  redis.call('ZREM', DEADLINES, id)
end
local function deadline(id, expires)
  if expires < 0 then redis.call('ZREM', DEADLINES, id)
  else redis.call('ZADD', DEADLINES, number_text(expires), id) end
end

-- A thread that may go by itself has a list in KEYS[2] that stays: its uid, its runs, and the notes that tell what leads
-- to it. It is a hash like a thread's: its revision is the uid, x a time before which the thread does not go. Field k of
-- the thread: '1' it has such a list, '0' one that may be old.
local l = KEYS[2]
local LEADING = 'sije' -- kinds of notes: people, questions, effects

local function leads(entry)
  return #entry > 2 and string.find(LEADING, string.sub(entry, 3, 3), 1, true)
end

local function list_all(uid, score, goes) -- whether it could: what a former generation has left is to be cleared first
  local other = redis.call('HGET', l, 'u')
  if other and other ~= uid then return false end
  redis.call('UNLINK', l)
  local m = redis.call('HMGET', h, 'NI', 'R', 'id')
  redis.call('HSET', l, 'u', uid, 'r', uid, 'id', m[3], 'i', score, 'n', 0, 'x', goes)
  local all, found, at = m[1] or '', {}, 1
  while at <= #all do
    local following = at + 2 + struct.unpack('>I2', all, at)
    local entry = string.sub(all, at, following - 1)
    if leads(entry) then
      found[#found + 1] = entry
      redis.call('HSET', l, 'N' .. entry, redis.call('HGET', h, 'N' .. entry))
    end
    at = following
  end
  if #found > 0 then redis.call('HSET', l, 'NI', table.concat(found)) end
  for k = 1, tonumber(m[2] or 0) do redis.call('HSET', l, 'R', k, 'R' .. k, redis.call('HGET', h, 'R' .. k)) end
  redis.call('HSET', h, 'k', '1')
  return true
end

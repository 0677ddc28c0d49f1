-- Removing whole threads; UNLINK what is `gone` in the end.
local gone = {}

local function noted(list) -- the keys of the notes in a list of them
  local keys, at = {}, 1
  while at <= #list do
    local size = struct.unpack('>I2', list, at)
    keys[#keys + 1] = string.sub(list, at + 2, at + 1 + size)
    at = at + 2 + size
  end
  return keys
end

local function removed(h, m, keys) -- m: u, y, n, i, R of it
  local notes = {}
  for k, key in ipairs(keys) do
    notes[2 * k - 1], notes[2 * k] = key, redis.call('HGET', h, 'N' .. struct.pack('>I2', #key) .. key)
  end
  local reply = { m[2] and 0 or tonumber(m[3]), m[4], m[2] and '' or m[1], notes, redis.call('HEXISTS', h, 'k') }
  for k = 1, tonumber(m[5] or 0) do reply[#reply + 1] = redis.call('HGET', h, 'R' .. k) end
  gone[#gone + 1] = h
  return reply
end

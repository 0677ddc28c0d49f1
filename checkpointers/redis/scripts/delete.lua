-- writes
-- Removes threads, each if it stands at a revision ('' any). Of each: checkpoints, index score, uid, notes and runs as
-- they were; nothing if it stays.
local gone = {}
local function removed(h, rev)
  local m = redis.call('HMGET', h, 'u', 'y', 'n', 'i', 'R', 'r', 'NI')
  if not m[1] or (rev ~= '' and rev ~= m[6]) then return {} end
  local list = not m[2] and m[7] or ''
  local notes, at = {}, 1
  while at <= #list do
    local size = struct.unpack('>I2', list, at)
    notes[#notes + 1] = string.sub(list, at + 2, at + 1 + size)
    notes[#notes + 1] = redis.call('HGET', h, 'N' .. string.sub(list, at, at + 1 + size))
    at = at + 2 + size
  end
  local reply = { m[2] and 0 or tonumber(m[3]), m[4], m[2] and '' or m[1], notes }
  for k = 1, tonumber(m[5] or 0) do reply[#reply + 1] = redis.call('HGET', h, 'R' .. k) end
  gone[#gone + 1] = h
  return reply
end
local out = {}
for k, h in ipairs(KEYS) do out[k] = removed(h, ARGV[k]) end
if #gone > 0 then redis.call('UNLINK', unpack(gone)) end
return out

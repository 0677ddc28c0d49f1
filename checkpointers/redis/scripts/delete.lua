-- uses: thread
-- writes
-- Removes the thread, if it stands at a revision ('' any); its checkpoints, index score, uid, notes and runs as they were.
local m = redis.call('HMGET', h, 'u', 'y', 'n', 'i', 'R', 'r', 'NI')
if not m[1] or (ARGV[1] ~= '' and ARGV[1] ~= m[6]) then return {} end
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
redis.call('UNLINK', h)
return reply

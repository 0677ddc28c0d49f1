-- uses: thread
-- writes
-- Removes the thread, if it stands at a revision ('' any); its checkpoints, index score and runs as they were.
local m = redis.call('HMGET', h, 'u', 'y', 'n', 'i', 'R', 'r')
if not m[1] or (ARGV[1] ~= '' and ARGV[1] ~= m[6]) then return {} end
local reply = { m[2] and 0 or tonumber(m[3]), m[4] }
for k = 1, tonumber(m[5] or 0) do reply[#reply + 1] = redis.call('HGET', h, 'R' .. k) end
redis.call('UNLINK', h)
return reply

-- What threads are, and the field of a note of each: uid, revision, state, whether provisional, the note.
local out = {}
for k, h in ipairs(KEYS) do out[k] = redis.call('HMGET', h, 'u', 'r', 'x', 'y', ARGV[k]) end
return out

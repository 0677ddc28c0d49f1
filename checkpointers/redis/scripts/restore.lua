-- writes
-- Puts members back into an index under the scores their threads name: (score, member) pairs. How many were missing.
local added = 0
for a = 1, #ARGV, 2 do added = added + redis.call('ZADD', KEYS[1], 'NX', ARGV[a], ARGV[a + 1]) end
return added

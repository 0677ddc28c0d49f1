-- Members of an index, newest first: not above this score, limit. (member, score) pairs.
local out = redis.call('ZREVRANGEBYSCORE', KEYS[1], ARGV[1], '-inf', 'WITHSCORES', 'LIMIT', 0, ARGV[2])
for a = 2, #out, 2 do out[a] = string.format('%.0f', tonumber(out[a])) end
return out

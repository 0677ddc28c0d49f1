-- writes
-- Puts a member into an index and says under which score: each registration has another one.
local t = redis.call('TIME')
local score = tonumber(t[1]) * 1000000 + tonumber(t[2])
local old = redis.call('ZSCORE', KEYS[1], ARGV[1])
if old and tonumber(old) >= score then score = tonumber(old) + 1 end
local text = string.format('%.0f', score)
redis.call('ZADD', KEYS[1], text, ARGV[1])
return text

-- uses: thread
-- writes
-- Takes a fence away, if it is still this one: nonce.
local m = redis.call('HMGET', h, 'f', 'u')
if m[1] == ARGV[1] and not m[2] then redis.call('UNLINK', h) end
return 1

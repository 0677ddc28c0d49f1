-- uses: thread
-- writes
-- Uploads rows of a reservation: uid, its revision, milliseconds to live of a provisional thread, (number, row) pairs.
local m = redis.call('HMGET', h, 'u', 'r', 'y')
if m[1] ~= ARGV[1] or m[2] ~= ARGV[2] then return 0 end
for a = 4, #ARGV, 2 do redis.call('HSET', h, 'b' .. ARGV[a], ARGV[a + 1]) end
if m[3] then redis.call('PEXPIRE', h, ARGV[3]) end
return 1

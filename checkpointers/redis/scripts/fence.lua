-- uses: thread
-- writes
-- Before an index entry that points nowhere is removed: whoever creates the thread now must register it again.
-- A fence (nonce, milliseconds to live) stands where there is no thread; 0 if there is one.
if redis.call('HEXISTS', h, 'u') == 1 then return 0 end
redis.call('HSET', h, 'f', ARGV[1])
redis.call('PEXPIRE', h, ARGV[2])
return 1

-- uses: thread
-- writes
-- A thread does not go by itself until it is listed again: its list is out of reach.
if redis.call('HEXISTS', h, 'k') == 1 then
  redis.call('HSET', h, 'k', '0')
  redis.call('PERSIST', h)
end
return 1

-- uses: items
-- writes
-- Removes expired items, a bounded number: how many, how many deadlines and how many ids are left.
local ids = redis.call('ZRANGEBYSCORE', DEADLINES, '-inf', number_text(now), 'LIMIT', 0, tonumber(ARGV[1]))
for _, id in ipairs(ids) do forget(id) end
return {#ids, redis.call('ZCARD', DEADLINES), redis.call('ZCARD', RECENT)}

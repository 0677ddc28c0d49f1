-- uses: items
-- writes
-- Removes items below a prefix among ids from a rank on: how many were live, how many of those had vectors, the rank
-- to go on at (-1: the end), how many ids are left.
local prefix, from, size = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local ids = redis.call('ZRANGE', RECENT, from, from + size - 1)
local live, embedded, kept = 0, 0, 0
for _, id in ipairs(ids) do
  if string.sub(id, 1, #prefix) == prefix then
    if live_value(id) then
      live = live + 1
      embedded = embedded + redis.call('HEXISTS', DATA, 'v' .. id)
    end
    forget(id)
  else
    kept = kept + 1
  end
end
return {live, embedded, #ids < size and -1 or from + kept, redis.call('ZCARD', RECENT)}

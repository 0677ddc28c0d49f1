-- writes
-- Docs of a space are members of one sorted set, in order of their keys. Per change: where the doc begins and ends in
-- that order, what it must find (* anything, - nothing, = this version), the version, the member or ''. All or none.
local gone = {}
for a = 1, #ARGV, 5 do
  local old = redis.call('ZRANGEBYLEX', KEYS[1], '[' .. ARGV[a], '(' .. ARGV[a + 1], 'LIMIT', 0, 1)[1]
  local expected = ARGV[a + 2]
  if expected == '-' and old then return 0 end
  if expected == '=' then
    local head = ARGV[a] .. struct.pack('>I2', #ARGV[a + 3]) .. ARGV[a + 3]
    if not old or string.sub(old, 1, #head) ~= head then return 0 end
  end
  if old and old ~= ARGV[a + 4] then gone[#gone + 1] = old end
end
for a = 1, #ARGV, 5 do
  if ARGV[a + 4] ~= '' then redis.call('ZADD', KEYS[1], 0, ARGV[a + 4]) end
end
for from = 1, #gone, 1000 do
  redis.call('ZREM', KEYS[1], unpack(gone, from, math.min(from + 999, #gone)))
end
return 1

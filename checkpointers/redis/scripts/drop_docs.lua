-- writes
-- Removes docs of a space, whatever they are, by their keys.
for _, key in ipairs(ARGV) do
  redis.call('ZREMRANGEBYLEX', KEYS[1], '[' .. key .. '\0', '(' .. key .. '\0\255')
end
return 1

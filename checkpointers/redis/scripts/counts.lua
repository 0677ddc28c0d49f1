-- uses: thread
-- How many elements each of these rows holds, and in how many bytes: uid, revision, row numbers.
local m = redis.call('HMGET', h, 'u', 'r')
if m[1] ~= ARGV[1] or m[2] ~= ARGV[2] then return {} end
local out = { 1 }
for a = 3, #ARGV do
  local row = redis.call('HGET', h, 'b' .. ARGV[a])
  out[#out + 1] = row and string.byte(row) or 0
  out[#out + 1] = row and #row - 1 or 0
end
return out

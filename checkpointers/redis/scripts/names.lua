-- uses: thread
-- A thread's header, its element rows by number, and the checkpoints whose writes have fields of their own.
local m = redis.call('HMGET', h, 'v', 'u', 'r', 'e', 'x', 'y')
if m[1] and m[1] ~= FORMAT then return { 'FORMAT', m[1] } end
if not m[2] or m[6] then return {} end
local rows, loose = {}, {}
for _, name in ipairs(redis.call('HKEYS', h)) do
  local kind = string.sub(name, 1, 1)
  if kind == 'b' then
    rows[#rows + 1] = tonumber(string.sub(name, 2))
  elseif kind == 'w' then
    loose[#loose + 1] = string.sub(name, 2)
  end
end
return { 'OK', m[2], m[3], m[4], m[5], rows, loose }

-- uses: thread index
-- One line of the overview: identity, created, updated, checkpoints, head of the root, its writes, bytes, state. Bucket.
local FIELDS = 5000 -- beyond it the size is an estimate
local m = redis.call('HMGET', h, 'id', 'u', 'y', 't', 'm', 'n', 'H' .. ARGV[1], 'x')
if not m[2] then return {} end
if m[3] then return { '' } end
local head = head_at(m[7] or '', '')
local writes = ''
if head and head ~= '' then
  local _
  _, writes = record(head, '')
end
local names, size = redis.call('HKEYS', h), 0
for a = 1, math.min(#names, FIELDS) do size = size + redis.call('HSTRLEN', h, names[a]) end
if #names > FIELDS then size = math.floor(size * #names / FIELDS) end
return { m[1], m[4], m[5], m[6], head or '', writes, size, m[8] }

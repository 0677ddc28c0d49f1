-- uses: thread list write index
-- writes
-- Stores writes of tasks. After the guard: namespace, checkpoint, created_at or '', '1' to replace any row, count, then
-- per row task, k, body; notes, rows. The first ordinary row of a task stays, the last special one wins. Says whether
-- each ordinary one was new.
local refusal = refused()
if refusal then return refusal end
if run_is_unknown() then return { 'RUN' } end
local score = begin()
add_run()
local ns, id, created, any = ARGV[FIRST], ARGV[FIRST + 1], ARGV[FIRST + 2], ARGV[FIRST + 3] == '1'
local count = tonumber(ARGV[FIRST + 4])
local at_time = struct.pack('>d', created ~= '' and tonumber(created) or stamp)
local name, at, fresh = field(ns, id), FIRST + 5, 1

local function position(writes, head) -- where the entry with this head begins and the next one does
  local p = 1
  while p <= #writes do
    local size = struct.unpack('>I4', writes, p)
    if size == 0 then error(DAMAGED) end
    if string.sub(writes, p + 4, p + 3 + #head) == head then return p, p + size end
    p = p + size
  end
end

if count > 0 then
  local m = redis.call('HMGET', h, 'w' .. name, 'c' .. name)
  local writes = m[1]
  if not writes and not m[2] and loosen(id, ns) then writes = redis.call('HGET', h, 'w' .. name) end
  writes = writes or ''
  for _ = 1, count do
    local task, k, body = ARGV[at], tonumber(ARGV[at + 1]), ARGV[at + 2]
    local head = struct.pack('>I2', #task) .. task .. struct.pack('>i2', k)
    local first, following = position(writes, head)
    if first and (any or k < 0) then
      writes, first = string.sub(writes, 1, first - 1) .. string.sub(writes, following), nil
    end
    if first then
      fresh = 0
    else
      writes = writes .. struct.pack('>I4', 12 + #head + #body) .. head .. at_time .. body
    end
    at = at + 3
  end
  redis.call('HSET', h, 'w' .. name, writes)
end
add_rows(note(h, at))
last(at)
return { 'OK', score, fresh }

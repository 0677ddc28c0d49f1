-- uses: thread list write index insert
-- writes
-- Stores a checkpoint. After the guard: namespace, id, bucket, created_at or '', record, notes, rows.
local refusal = refused()
if refusal then return refusal end
if run_is_unknown() then return { 'RUN' } end
local score = begin()
add_run()
local ns, id, bucket, created = ARGV[FIRST], ARGV[FIRST + 1], ARGV[FIRST + 2], ARGV[FIRST + 3]
local stamped = struct.pack('>d', created ~= '' and tonumber(created) or stamp) .. ARGV[FIRST + 4]
local name = field(ns, id)
if redis.call('HSET', h, 'c' .. name, stamped) == 1 and not add_to_index(id, ns, bucket) then
  loosen(id, ns) -- it was packed: its writes stay, its record is the new one
  redis.call('HSET', h, 'c' .. name, stamped)
end
add_rows(note(h, FIRST + 5))
last(FIRST + 5)
return { 'OK', score }

-- uses: thread index elements
-- One checkpoint: namespace, bucket, id ('' the newest), revision that the reader knows, page ranges that it holds.
local ns, id = ARGV[1], ARGV[3]
local m = redis.call('HMGET', h, 'v', 'u', 'r', 'e', 'x', 'y', 'H' .. ARGV[2])
if m[1] and m[1] ~= FORMAT then return { 'FORMAT', m[1] } end
if not m[2] or m[6] then return {} end
if id == '' then
  id = head_at(m[7] or '', ns)
  if id == '' then return { 'SEEK' } end
end
local reply = { 'OK', m[2], m[3], m[4], m[5], '', '', '', '', {} }
if not id then return reply end
local found, writes = record(id, ns)
local pages, seen = {}, {}
if ARGV[4] == m[3] then see(seen, ARGV[5]) end
add_refs_of(pages, seen, found, writes)
local rows, covered = rows_of(pages)
reply[6], reply[7], reply[8], reply[9], reply[10] = id, found or '', writes, covered, rows
return reply

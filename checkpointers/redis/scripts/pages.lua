-- uses: thread elements
-- More pages of a read: uid, revision of the last removal, packed page numbers.
local m = redis.call('HMGET', h, 'u', 'e')
if m[1] ~= ARGV[1] or m[2] ~= ARGV[2] then return {} end
local pages = {}
for at = 1, #ARGV[3], 4 do pages[#pages + 1] = struct.unpack('>I4', ARGV[3], at) end
local rows, covered = rows_of(pages)
return { covered, rows }

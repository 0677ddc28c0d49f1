-- uses: removal
-- writes
-- Removes threads, or lists of what led to one, each if it stands at a revision ('' any). Of each: checkpoints, index
-- score, uid, notes, whether it may have a list, and runs as they were; nothing if it stays.
local out = {}
for k, h in ipairs(KEYS) do
  local m = redis.call('HMGET', h, 'u', 'y', 'n', 'i', 'R', 'r', 'NI')
  if not m[1] or (ARGV[k] ~= '' and ARGV[k] ~= m[6]) then
    out[k] = {}
  else
    out[k] = removed(h, m, noted(not m[2] and m[7] or ''))
  end
end
if #gone > 0 then redis.call('UNLINK', unpack(gone)) end
return out

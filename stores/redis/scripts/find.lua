-- uses: items walk
-- Items below a prefix, newest first: (id, value) pairs, then where to go on.
local out = {}
local cursor = walk(function(id, value) out[#out + 1] = id out[#out + 1] = value return true end)
out[#out + 1] = cursor
return out

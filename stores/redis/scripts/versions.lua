-- uses: items walk
-- The same without values: (id, no) pairs.
local out = {}
local cursor = walk(function(id, value, no) out[#out + 1] = id out[#out + 1] = string.sub(value, 1, 8) return true end)
out[#out + 1] = cursor
return out

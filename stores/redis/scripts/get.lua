-- uses: items
-- Values of ids; false for what is not there.
local out = {}
for a, id in ipairs(ARGV) do out[a] = live_value(id) end
return out

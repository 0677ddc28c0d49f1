-- A thread is one hash: KEYS[1], the only key of a script that uses this, unless it says more.
-- Header fields: v format, u uid, r revision, e revision of the last removal, x writer's state, id tenant and thread,
-- i score in the thread index, t created, m written last, n checkpoints; y: provisional, counts as absent;
-- f: fence of a sweeper; z: until when writers wait, and for whom; g, G: pages of a reservation, of abandoned ones;
-- k: see list.
local h = KEYS[1]
local FORMAT = '1'
local DAMAGED = 'a record of this thread is damaged'

local function field(ns, id)
  return struct.pack('>I2', #ns) .. ns .. id
end

local function before(a, b) -- by bytes: '<' would follow the locale of the server
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end

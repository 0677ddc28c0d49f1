-- uses: removal
-- writes
-- Removes threads of a person: for each, the token of the person and then those of whoever may have it beside them;
-- nothing behind it: anybody may. Of each as delete.lua; of one that stays uid, revision and state.
local last, person, allowed

local function theirs(keys, people)
  if people ~= last then
    last, person, allowed = people, string.sub(people, 1, 16), #people > 16 and {}
    for at = 17, #people, 16 do allowed[string.sub(people, at, at + 15)] = true end
  end
  local found = false
  for _, key in ipairs(keys) do
    if string.byte(key) == 115 then -- names somebody
      local mark = string.sub(key, 2)
      if mark == person then
        found = true
      elseif allowed and not allowed[mark] then
        return false
      end
    end
  end
  return found
end

local out = {}
for k, h in ipairs(KEYS) do
  local m = redis.call('HMGET', h, 'u', 'y', 'n', 'i', 'R', 'NI')
  if not m[1] or m[2] then
    out[k] = {}
  else
    local keys = noted(m[6] or '')
    out[k] = theirs(keys, ARGV[k]) and removed(h, m, keys) or redis.call('HMGET', h, 'u', 'r', 'x')
  end
end
if #gone > 0 then redis.call('UNLINK', unpack(gone)) end
return out

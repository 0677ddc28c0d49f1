-- uses: thread index elements
-- Checkpoints in descending order: 1 namespace ('*' before one, '' for all), 2 and 3 below this id and namespace ('' the
-- end), 4 not below this id, 5 limit, 6 tokens, 7 what to send: k keys, r records and writes, p pages of elements too.
-- Replies with the thread, where to go on ('' at the end), keys or records, and pages.
local SEGMENTS, RECORDS = 24, 400 -- per call
local m = redis.call('HMGET', h, 'v', 'u', 'r', 'e', 'x', 'y')
if m[1] and m[1] ~= FORMAT then return { 'FORMAT', m[1] } end
if not m[2] or m[6] then return {} end
local wanted_ns = string.sub(ARGV[1], 1, 1) == '*' and string.sub(ARGV[1], 2)
local below, below_ns, floor, limit, tokens, what = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6], ARGV[7]

local function has(found, token)
  if #found < 10 then return false end
  local at = 11 + 8 * struct.unpack('>I2', found, 9)
  if at + 1 > #found then return false end
  for _ = 1, struct.unpack('>I2', found, at) do
    if string.sub(found, at + 2, at + 5) == token then return true end
    at = at + 4
  end
  return false
end

local function matches(found)
  for at = 1, #tokens, 4 do
    if not has(found, string.sub(tokens, at, at + 3)) then return false end
  end
  return true
end

local function packed_in(k) -- where each packed record of a segment stands
  local page, places, at = redis.call('HGET', h, 'P' .. k), {}, 1
  while page and at <= #page do
    local a, b, c, d = struct.unpack('>I2I2I4I4', page, at)
    local p = at + 12 + a + b
    places[field(string.sub(page, at + 12 + a, p - 1), string.sub(page, at + 12, at + 11 + a))] = { p, p + c, p + c + d }
    at = p + c + d
  end
  return page, places
end

local function lookup(id, ns, page, places)
  local name = field(ns, id)
  local e = places[name]
  if e then return string.sub(page, e[1], e[2] - 1), string.sub(page, e[2], e[3] - 1) end
  local loose = redis.call('HMGET', h, 'c' .. name, 'w' .. name)
  return loose[1], loose[2] or ''
end

local out, size, visited, read, resume = {}, 0, 0, 0, { '', '' }
local list = numbers()
local position = #list
if below ~= '' and position > 0 then position = place(list, below, below_ns) end
local count, done = 0, position == 0
while not done do
  local segment, page, places = redis.call('HGET', h, 'S' .. list[position]), nil, nil
  local finish = #segment
  while finish > 2 and not done do
    local id, ns, first = entry_before(segment, finish)
    if below == '' or precedes(id, ns, below, below_ns) then
      if floor ~= '' and before(id, floor) then
        done = true
      elseif not wanted_ns or ns == wanted_ns then
        if what == 'k' and tokens == '' then
          out[#out + 1], out[#out + 2] = id, ns
          count = count + 1
        else
          if not places then page, places = packed_in(list[position]) end
          local found, writes = lookup(id, ns, page, places)
          read = read + 1
          if found and matches(found) then
            out[#out + 1], out[#out + 2] = id, ns
            if what ~= 'k' then out[#out + 1], out[#out + 2] = found, writes end
            count, size = count + 1, size + #found + #writes
          end
        end
        if count >= limit then done = true elseif size > BYTES or read >= RECORDS then resume, done = { id, ns }, true end
      end
    end
    finish = first - 1
    if finish <= 2 and not done then
      visited = visited + 1
      if position == 1 then done = true elseif visited >= SEGMENTS then resume, done = { id, ns }, true end
      position = position - 1
    end
  end
end
local pages, seen = {}, {}
if what == 'p' then
  for a = 1, #out, 4 do add_refs_of(pages, seen, out[a + 2], out[a + 3]) end
end
local rows, covered = rows_of(pages)
return { 'OK', m[2], m[3], m[4], m[5], resume[1], resume[2], out, covered, rows }

-- Guarded writes. ARGV: 1 create, 2 uid, 3 expected revision, 4 new revision, 5 state, 6 identity, 7 index score,
-- 8 fence that was seen or own hold, 9 run, 10 score of the run's index entry, 11 closed pages, 12 when it goes by itself
-- ('' it has no deadline, 0 not as it stands); FIRST is the first of the rest.
local FIRST = 13
local RUNS = 128 -- run entries per field
local CLEAN = 32 -- abandoned pages removed per write

local function now()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end

local m, stamp = redis.call('HMGET', h, 'v', 'u', 'r', 'y', 'f', 'g', 'G', 'i', 'R', 'z', 'k'), now()

local function refused()
  if m[1] and m[1] ~= FORMAT then return { 'FORMAT', m[1] } end
  if m[2] and m[3] == ARGV[4] then return { 'DONE', '', 0 } end -- this very write, repeated after a lost reply
  if ARGV[1] == '1' then
    if m[2] and not m[4] then return { 'REFUSED' } end
    if m[5] and m[5] ~= ARGV[8] then return { 'FENCED', m[5] } end
  elseif m[2] ~= ARGV[2] or m[3] ~= ARGV[3] then
    return { 'REFUSED' }
  elseif m[10] and string.sub(m[10], 9) ~= ARGV[8] then -- held, or it was by somebody who died: then whoever knows the thread has to look again
    local left = struct.unpack('>d', m[10]) - stamp
    if left > 0 then return { 'HELD', left } end
    redis.call('HDEL', h, 'z')
    redis.call('HSET', h, 'r', string.sub(redis.sha1hex(m[3]), 1, 8))
    return { 'REFUSED' }
  end
  if m[11] == '1' and not l then return { 'LISTED' } end
end

local function without(pages) -- every row of these pages
  for a = 1, #pages, 4 do
    local first = struct.unpack('>I4', pages, a) * 64
    local names = {}
    for i = 1, 64 do names[i] = 'b' .. (first + i) end
    redis.call('HDEL', h, unpack(names))
  end
end

local function clean()
  local garbage = redis.call('HGET', h, 'G')
  if not garbage then return end
  without(string.sub(garbage, 1, 4 * CLEAN))
  garbage = string.sub(garbage, 4 * CLEAN + 1)
  if #garbage > 0 then redis.call('HSET', h, 'G', garbage) else redis.call('HDEL', h, 'G') end
end

local function begin() -- the score of the thread's index entry
  local written = string.format('%.0f', stamp)
  if ARGV[1] == '1' then
    if redis.call('EXISTS', h) == 1 then redis.call('UNLINK', h) end
    m[4] = false
    redis.call('HSET', h, 'v', FORMAT, 'u', ARGV[2], 'r', ARGV[4], 'e', ARGV[4], 'x', ARGV[5],
      'id', ARGV[6], 'i', ARGV[7], 't', written, 'm', written, 'n', 0)
    return ARGV[7]
  end
  redis.call('HSET', h, 'r', ARGV[4], 'x', ARGV[5], 'm', written)
  if m[4] == '1' then
    redis.call('HDEL', h, 'y')
    redis.call('PERSIST', h)
    m[4] = false
  end
  if m[6] then -- a reservation ends with the next write: as its own, or abandoned
    redis.call('HDEL', h, 'g')
    if string.sub(m[6], 1, 8) ~= ARGV[3] then
      redis.call('HSET', h, 'G', (m[7] or '') .. string.sub(m[6], 9))
    end
  end
  if m[6] or m[7] then clean() end
  return m[8]
end

local function run_is_unknown()
  if ARGV[9] == '' or ARGV[10] ~= '' then return false end
  if not m[9] then return true end
  local group = redis.call('HGET', h, 'R' .. m[9])
  local at = 3
  while at <= #group do
    local size = struct.unpack('>I2', group, at)
    if string.sub(group, at + 10, at + 9 + size) == ARGV[9] then return false end
    at = at + 10 + size
  end
  return true
end

local ran -- what this write adds to the runs

local function add_run()
  if ARGV[9] == '' or ARGV[10] == '' then return end
  local k = tonumber(ARGV[1] ~= '1' and m[9] or 1)
  local group = redis.call('HGET', h, 'R' .. k) or '\0\0'
  local count = struct.unpack('>I2', group)
  if count >= RUNS then k, group, count = k + 1, '\0\0', 0 end
  local entry = struct.pack('>I2d', #ARGV[9], tonumber(ARGV[10])) .. ARGV[9]
  ran = { 'R', k, 'R' .. k, struct.pack('>I2', count + 1) .. string.sub(group, 3) .. entry }
  redis.call('HSET', h, unpack(ran))
end

local function add_rows(from) -- closed pages out, then (number, row) pairs in
  without(ARGV[11])
  for a = from, #ARGV, 2 do redis.call('HSET', h, 'b' .. ARGV[a], ARGV[a + 1]) end
end

local function note(hash, from, chosen) -- count, then (key, '1' and body | '0' and '')
  local count, list = tonumber(ARGV[from]), nil
  for a = from + 1, from + 3 * count, 3 do
    local entry = struct.pack('>I2', #ARGV[a]) .. ARGV[a]
    if not chosen or chosen(entry) then
      list = list or redis.call('HGET', hash, 'NI') or ''
      if ARGV[a + 1] == '1' then
        if redis.call('HSET', hash, 'N' .. entry, ARGV[a + 2]) == 1 then list = list .. entry end
      elseif redis.call('HDEL', hash, 'N' .. entry) == 1 then
        local at = 1
        while string.sub(list, at, at + #entry - 1) ~= entry do at = at + 2 + struct.unpack('>I2', list, at) end
        list = string.sub(list, 1, at - 1) .. string.sub(list, at + #entry)
      end
    end
  end
  if list then redis.call('HSET', hash, 'NI', list) end
  return from + 1 + 3 * count
end

local function listed_now(from, goes) -- whether the thread has a list that knows of this write
  local score, stays = ARGV[1] == '1' and ARGV[7] or m[8], string.format('%.0f', math.max(goes, stamp))
  if m[11] ~= '1' or ARGV[1] == '1' then return goes > stamp and l and list_all(ARGV[2], score, stays) end
  local lost
  if goes > stamp then
    lost = redis.call('HSET', l, 'x', stays) == 1
  else
    lost = redis.call('EXISTS', l) == 0
  end
  if lost then return list_all(ARGV[2], score, stays) end
  if from then note(l, from, leads) end
  if ran then redis.call('HSET', l, unpack(ran)) end
  return true
end

local function last(from) -- what the whole write means for how long the thread stays; where its notes begin, if it has some
  if m[4] then return end
  local goes = tonumber(ARGV[12])
  local listed = goes and listed_now(from, goes)
  if listed and goes > stamp then
    redis.call('PEXPIREAT', h, ARGV[12])
  elseif m[11] == '1' then
    redis.call('PERSIST', h)
  end
  if m[11] == '1' and not listed then
    redis.call('HDEL', h, 'k')
    if redis.call('HGET', l, 'u') == ARGV[2] then redis.call('UNLINK', l) end
  end
end

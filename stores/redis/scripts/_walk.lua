-- Walks the items below a prefix, newest first, a bounded number per call.
-- ARGV: prefix, before ('', a no, or = and a no to begin with that one), max_age (-1: any), how many to look at, how many to give, number of tokens, tokens.
-- `give` returns whether an item counts; the reply ends with the `no` to go on below, or '' at the end.
local STEP = 200
local function narrowed(value, tokens)
  local size = struct.unpack('>H', value, 41)
  if size == 65535 then return true end
  local held = string.sub(value, 43, 42 + size)
  for _, token in ipairs(tokens) do
    local from = 1
    local found = false
    while true do
      local at = string.find(held, token, from, true)
      if not at then break end
      if (at - 1) % 8 == 0 then found = true break end
      from = at + 1
    end
    if not found then return false end
  end
  return true
end
local function walk(give)
  local prefix, before, max_age = ARGV[1], ARGV[2], tonumber(ARGV[3])
  local left, wanted = tonumber(ARGV[4]), tonumber(ARGV[5])
  local tokens = {}
  for a = 7, 6 + tonumber(ARGV[6]) do tokens[#tokens + 1] = ARGV[a] end
  local top = before == '' and '+inf' or string.sub(before, 1, 1) == '=' and string.sub(before, 2) or '(' .. before
  local offset, given = 0, 0
  while true do
    local page = redis.call('ZREVRANGEBYSCORE', RECENT, top, '-inf', 'WITHSCORES', 'LIMIT', offset, STEP)
    local ids, fields = {}, {}
    for a = 1, #page, 2 do
      if string.sub(page[a], 1, #prefix) == prefix then
        ids[#ids + 1], fields[#fields + 1] = page[a], 'd' .. page[a]
      end
    end
    local values = #fields > 0 and redis.call('HMGET', DATA, unpack(fields)) or {}
    for a, id in ipairs(ids) do
      local value = values[a]
      if value then
        local no, created, updated, ttl, expires = header(value)
        if is_live(expires) and (max_age < 0 or updated >= now - max_age) and narrowed(value, tokens)
            and give(id, value, no) then
          given = given + 1
          if given >= wanted then return number_text(no) end
        end
      end
    end
    if #page < 2 * STEP then return '' end
    offset, left = offset + STEP, left - STEP
    if left <= 0 then return number_text(tonumber(page[#page])) end
  end
end

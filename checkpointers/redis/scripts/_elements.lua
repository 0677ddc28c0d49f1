-- Reading elements: refs of records and writes, rows of pages. A damaged record makes no loop long and no script fail:
-- the reader finds out what is wrong with it, and reads all others.
local PAGES, BYTES = 64, 524288 -- per call

local function add_refs(pages, seen, refs)
  for at = 1, #refs - 7, 8 do
    local low, high = struct.unpack('>I4I4', refs, at)
    for page = low, high do
      if #pages >= PAGES then return end -- no call takes more
      if not seen[page] then
        seen[page] = true
        pages[#pages + 1] = page
      end
    end
  end
end

local function see(seen, ranges) -- pages that the reader has
  for at = 1, #ranges, 8 do
    local low, high = struct.unpack('>I4I4', ranges, at)
    for page = low, high do seen[page] = true end
  end
end

local function refs_at(packed, at) -- created_at stands before them
  if at + 9 > #packed then return '' end
  local count = struct.unpack('>I2', packed, at + 8)
  return string.sub(packed, at + 10, at + 9 + 8 * count)
end

local function add_refs_of(pages, seen, found, writes)
  if found then add_refs(pages, seen, refs_at(found, 1)) end
  local at = 1
  while at + 5 <= #writes do
    local size, task = struct.unpack('>I4I2', writes, at)
    if size == 0 then return end
    add_refs(pages, seen, refs_at(writes, at + 8 + task))
    at = at + size
  end
end

local function add_row(out, number, row)
  out[#out + 1] = number
  out[#out + 1] = row
  return #row
end

local function rows_of(pages) -- (number, row) pairs, and the pages they cover: as many as one call may take
  local out, covered, size = {}, {}, 0
  for a = 1, math.min(#pages, PAGES), 8 do
    local group, names = {}, {}
    for i = a, math.min(a + 7, #pages, PAGES) do
      group[#group + 1] = pages[i]
      names[#names + 1] = 'b' .. (pages[i] * 64 + 1)
    end
    local firsts = redis.call('HMGET', h, unpack(names))
    for i, page in ipairs(group) do
      local first = firsts[i]
      if first then size = size + add_row(out, page * 64 + 1, first) end
      if not first or string.byte(first) < 64 then
        local rest = {}
        for n = 2, 64 do rest[n - 1] = 'b' .. (page * 64 + n) end
        for n, row in ipairs(redis.call('HMGET', h, unpack(rest))) do
          if row then size = size + add_row(out, page * 64 + 1 + n, row) end
        end
      end
      covered[#covered + 1] = struct.pack('>I4', page)
    end
    if size > BYTES then break end
  end
  return out, table.concat(covered)
end

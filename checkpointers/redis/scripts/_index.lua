-- The index: (checkpoint id, namespace) of every checkpoint in order, in segments S<k> of about 64 entries, listed in
-- order by D (next number, then numbers). H<bucket> maps namespaces to their newest id ('' where it must be sought).
-- A record stands in c<ns><id> and its writes in w<ns><id>, or both in P<k> once their segment is closed.
local FULL, SPLIT = 64, 128
local PACKED_BYTES = 262144

local function precedes(id, ns, id2, ns2)
  if id == id2 then return before(ns, ns2) end
  return before(id, id2)
end

local function entry(id, ns)
  return struct.pack('>I2I2', #id, #ns) .. id .. ns .. struct.pack('>I2', 6 + #id + #ns)
end

local function entry_at(segment, at) -- id, ns, where the next begins
  local a, b = struct.unpack('>I2I2', segment, at)
  return string.sub(segment, at + 4, at + 3 + a), string.sub(segment, at + 4 + a, at + 3 + a + b), at + 6 + a + b
end

local function entry_before(segment, finish) -- the entry that ends at `finish`: id, ns, where it begins
  local size = struct.unpack('>I2', segment, finish - 1)
  if size == 0 then error(DAMAGED) end
  local at = finish + 1 - size
  local id, ns = entry_at(segment, at)
  return id, ns, at
end

local function numbers()
  local packed, list = redis.call('HGET', h, 'D'), {}
  if not packed then return list, 1 end
  for at = 5, #packed, 4 do list[#list + 1] = struct.unpack('>I4', packed, at) end
  return list, struct.unpack('>I4', packed)
end

local function save_numbers(list, next_number)
  local out = { struct.pack('>I4', next_number) }
  for i, k in ipairs(list) do out[i + 1] = struct.pack('>I4', k) end
  redis.call('HSET', h, 'D', table.concat(out))
end

local function place(list, id, ns) -- the last segment that does not begin after (id, ns); at least the first
  local low, high = 1, #list
  while low < high do
    local middle = math.ceil((low + high) / 2)
    local first, first_ns = entry_at(redis.call('HGET', h, 'S' .. list[middle]), 3)
    if precedes(id, ns, first, first_ns) then high = middle - 1 else low = middle end
  end
  return low
end

-- pages of packed records

local function packed_at(page, at) -- id, ns, record, writes, next
  local a, b, c, d = struct.unpack('>I2I2I4I4', page, at)
  local p = at + 12
  local id, ns = string.sub(page, p, p + a - 1), string.sub(page, p + a, p + a + b - 1)
  p = p + a + b
  return id, ns, string.sub(page, p, p + c - 1), string.sub(page, p + c, p + c + d - 1), p + c + d
end

local function find_packed(page, id, ns) -- record, writes, begin, next
  local at = 1
  while at <= #page do
    local a, b, c, d = struct.unpack('>I2I2I4I4', page, at)
    local p, finish = at + 12, at + 12 + a + b + c + d
    if a == #id and b == #ns and string.sub(page, p, p + a - 1) == id and string.sub(page, p + a, p + a + b - 1) == ns then
      p = p + a + b
      return string.sub(page, p, p + c - 1), string.sub(page, p + c, p + c + d - 1), at, finish
    end
    at = finish
  end
end

local function pack(k)
  local segment = redis.call('HGET', h, 'S' .. k)
  local names, size, at = {}, 0, 3
  while at <= #segment do
    local id, ns, following = entry_at(segment, at)
    local name = field(ns, id)
    local length = redis.call('HSTRLEN', h, 'c' .. name)
    if length > 0 then
      names[#names + 1] = { id, ns, name }
      size = size + length + redis.call('HSTRLEN', h, 'w' .. name)
    end
    at = following
  end
  if size > PACKED_BYTES or #names < 2 then return end
  local out, gone = { redis.call('HGET', h, 'P' .. k) or '' }, {}
  for _, e in ipairs(names) do
    local m = redis.call('HMGET', h, 'c' .. e[3], 'w' .. e[3])
    local writes = m[2] or ''
    out[#out + 1] = struct.pack('>I2I2I4I4', #e[1], #e[2], #m[1], #writes) .. e[1] .. e[2] .. m[1] .. writes
    gone[#gone + 1] = 'c' .. e[3]
    gone[#gone + 1] = 'w' .. e[3]
  end
  redis.call('HSET', h, 'P' .. k, table.concat(out))
  redis.call('HDEL', h, unpack(gone))
end

local function loosen(id, ns) -- a packed record back into fields of its own; whether it was packed
  local list = numbers()
  if #list == 0 then return false end
  local k = list[place(list, id, ns)]
  local page = redis.call('HGET', h, 'P' .. k)
  if not page then return false end
  local record, writes, first, following = find_packed(page, id, ns)
  if not record then return false end
  local name = field(ns, id)
  redis.call('HSET', h, 'c' .. name, record)
  if #writes > 0 then redis.call('HSET', h, 'w' .. name, writes) end
  page = string.sub(page, 1, first - 1) .. string.sub(page, following)
  if #page > 0 then redis.call('HSET', h, 'P' .. k, page) else redis.call('HDEL', h, 'P' .. k) end
  return true
end

local function unpack_page(k)
  local page = redis.call('HGET', h, 'P' .. k)
  if not page then return end
  local at = 1
  while at <= #page do
    local id, ns, record, writes, following = packed_at(page, at)
    redis.call('HSET', h, 'c' .. field(ns, id), record)
    if #writes > 0 then redis.call('HSET', h, 'w' .. field(ns, id), writes) end
    at = following
  end
  redis.call('HDEL', h, 'P' .. k)
end

local function record(id, ns) -- record (nil if there is none), writes
  local name = field(ns, id)
  local m = redis.call('HMGET', h, 'c' .. name, 'w' .. name)
  if m[1] then return m[1], m[2] or '' end
  local list = numbers()
  if #list > 0 then
    local page = redis.call('HGET', h, 'P' .. list[place(list, id, ns)])
    if page then
      local found, writes = find_packed(page, id, ns)
      if found then return found, writes end
    end
  end
  return nil, m[2] or ''
end

-- heads

local function head_at(bucket, ns) -- id, begin, next
  local at = 1
  while at <= #bucket do
    local a, b = struct.unpack('>I2I2', bucket, at)
    local following = at + 4 + a + b
    if a == #ns and string.sub(bucket, at + 4, at + 3 + a) == ns then
      return string.sub(bucket, at + 4 + a, following - 1), at, following
    end
    at = following
  end
end

local function set_head(number, bucket, ns, id) -- id nil: the namespace is empty
  local name = 'H' .. number
  local _, first, following = head_at(bucket, ns)
  if first then bucket = string.sub(bucket, 1, first - 1) .. string.sub(bucket, following) end
  if id then bucket = struct.pack('>I2I2', #ns, #id) .. ns .. id .. bucket end
  if #bucket > 0 then redis.call('HSET', h, name, bucket) else redis.call('HDEL', h, name) end
end

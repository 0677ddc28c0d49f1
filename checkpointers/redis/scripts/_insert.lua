-- Taking a checkpoint into the index.

local function split(list, next_number, position, segment)
  local k, at, count = list[position], 3, 0
  unpack_page(k)
  local total = struct.unpack('>I2', segment)
  while count < math.floor(total / 2) do
    local _, _, following = entry_at(segment, at)
    at, count = following, count + 1
  end
  redis.call('HSET', h, 'S' .. k, struct.pack('>I2', count) .. string.sub(segment, 3, at - 1),
    'S' .. next_number, struct.pack('>I2', total - count) .. string.sub(segment, at))
  table.insert(list, position + 1, next_number)
  save_numbers(list, next_number + 1)
  if position + 1 < #list then pack(next_number) end
end

local function insert(list, next_number, id, ns) -- among older ones; whether it was new
  local position = place(list, id, ns)
  local k = list[position]
  local segment, at = redis.call('HGET', h, 'S' .. k), 3
  while at <= #segment do
    local other, other_ns, following = entry_at(segment, at)
    if other == id and other_ns == ns then return false end
    if precedes(id, ns, other, other_ns) then break end
    at = following
  end
  local count = struct.unpack('>I2', segment) + 1
  segment = struct.pack('>I2', count) .. string.sub(segment, 3, at - 1) .. entry(id, ns) .. string.sub(segment, at)
  redis.call('HSET', h, 'S' .. k, segment)
  if count >= SPLIT then split(list, next_number, position, segment) end
  return true
end

local function append(packed, k, segment, id, ns)
  local count = struct.unpack('>I2', segment)
  if count < FULL then
    redis.call('HSET', h, 'S' .. k, struct.pack('>I2', count + 1) .. string.sub(segment, 3) .. entry(id, ns))
    return
  end
  local number = struct.unpack('>I4', packed)
  redis.call('HSET', h, 'S' .. number, struct.pack('>I2', 1) .. entry(id, ns),
    'D', struct.pack('>I4', number + 1) .. string.sub(packed, 5) .. struct.pack('>I4', number))
  if #packed >= 12 then pack(struct.unpack('>I4', packed, #packed - 7)) end -- the last but one closed: writes still come
end

local function add_to_index(id, ns, bucket) -- whether it was new
  local found = redis.call('HMGET', h, 'D', 'H' .. bucket)
  local packed, heads, newest = found[1], found[2] or '', true
  if not packed or #packed == 4 then
    local number = packed and struct.unpack('>I4', packed) or 1
    redis.call('HSET', h, 'D', struct.pack('>I4I4', number + 1, number), 'S' .. number, struct.pack('>I2', 1) .. entry(id, ns))
  else
    local k = struct.unpack('>I4', packed, #packed - 3)
    local segment = redis.call('HGET', h, 'S' .. k)
    local last, last_ns = entry_before(segment, #segment)
    if precedes(last, last_ns, id, ns) then
      append(packed, k, segment, id, ns)
    else
      newest = false
      local list, next_number = numbers()
      if not insert(list, next_number, id, ns) then return false end
    end
  end
  local head = head_at(heads, ns)
  if newest or not head or (head ~= '' and before(head, id)) then set_head(bucket, heads, ns, id) end
  redis.call('HINCRBY', h, 'n', 1)
  return true
end

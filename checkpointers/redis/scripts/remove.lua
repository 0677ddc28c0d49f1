-- uses: thread list write index
-- writes
-- Removes a bounded part of a thread. After the guard: checkpoints (count, then id, namespace, bucket in order), writes
-- (count, then namespace, checkpoint, task, k), element rows (count, numbers), and rows in their place.
local SEEK = 16 -- segments searched for the new head of a namespace
local refusal = refused()
if refusal then return refusal end
begin()
redis.call('HSET', h, 'e', ARGV[4])
local at = FIRST

local function seek(list, ns)
  for position = #list, math.max(1, #list - SEEK + 1), -1 do
    local segment = redis.call('HGET', h, 'S' .. list[position])
    local finish = #segment
    while finish > 2 do
      local id, other, first = entry_before(segment, finish)
      if other == ns then return id end
      finish = first - 1
    end
  end
  if #list > SEEK then return '' end
end

local function page_without(k, gone)
  local page = redis.call('HGET', h, 'P' .. k)
  if not page then return end
  local out, p = {}, 1
  while p <= #page do
    local id, ns, _, _, following = packed_at(page, p)
    if not gone[field(ns, id)] then out[#out + 1] = string.sub(page, p, following - 1) end
    p = following
  end
  if #out > 0 then redis.call('HSET', h, 'P' .. k, table.concat(out)) else redis.call('HDEL', h, 'P' .. k) end
end

local function segment_without(k, gone) -- how many were taken, how many are left
  local segment, out, p, left, taken = redis.call('HGET', h, 'S' .. k), {}, 3, 0, 0
  while p <= #segment do
    local id, ns, following = entry_at(segment, p)
    if gone[field(ns, id)] then
      taken = taken + 1
    else
      out[#out + 1], left = string.sub(segment, p, following - 1), left + 1
    end
    p = following
  end
  if left > 0 then
    redis.call('HSET', h, 'S' .. k, struct.pack('>I2', left) .. table.concat(out))
  else
    redis.call('HDEL', h, 'S' .. k)
  end
  return taken, left
end

local function remove_checkpoints()
  local count, gone, places, buckets, heads = tonumber(ARGV[at]), {}, {}, {}, {}
  if count == 0 then return end
  local list, next_number = numbers()
  local position, limit, limit_ns
  for a = at + 1, at + 3 * count, 3 do
    local id, ns, bucket = ARGV[a], ARGV[a + 1], ARGV[a + 2]
    local name = field(ns, id)
    gone[name] = true
    redis.call('HDEL', h, 'c' .. name, 'w' .. name)
    if not position or (limit and not precedes(id, ns, limit, limit_ns)) then -- they come in order
      position = place(list, id, ns)
      places[position], limit = true, nil
      if list[position + 1] then limit, limit_ns = entry_at(redis.call('HGET', h, 'S' .. list[position + 1]), 3) end
    end
    buckets[bucket] = buckets[bucket] or redis.call('HGET', h, 'H' .. bucket) or ''
    if head_at(buckets[bucket], ns) == id then heads[#heads + 1] = { ns, bucket } end
  end
  local left, taken = {}, 0
  for i, k in ipairs(list) do
    local remain = 1
    if places[i] then
      page_without(k, gone)
      local some
      some, remain = segment_without(k, gone)
      taken = taken + some
    end
    if remain > 0 then left[#left + 1] = k end
  end
  save_numbers(left, next_number)
  redis.call('HINCRBY', h, 'n', -taken)
  for _, e in ipairs(heads) do set_head(e[2], redis.call('HGET', h, 'H' .. e[2]) or '', e[1], seek(left, e[1])) end
end

local function remove_write(ns, id, task, k)
  local name = field(ns, id)
  if redis.call('HEXISTS', h, 'w' .. name) == 0 then loosen(id, ns) end
  local writes = redis.call('HGET', h, 'w' .. name) or ''
  local head, p = struct.pack('>I2', #task) .. task .. struct.pack('>i2', tonumber(k)), 1
  while p <= #writes do
    local following = p + struct.unpack('>I4', writes, p)
    if following == p then error(DAMAGED) end
    if string.sub(writes, p + 4, p + 3 + #head) == head then
      writes = string.sub(writes, 1, p - 1) .. string.sub(writes, following)
    else
      p = following
    end
  end
  if #writes > 0 then redis.call('HSET', h, 'w' .. name, writes) else redis.call('HDEL', h, 'w' .. name) end
end

remove_checkpoints()
at = at + 1 + 3 * tonumber(ARGV[at])
for a = at + 1, at + 4 * tonumber(ARGV[at]), 4 do remove_write(ARGV[a], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3]) end
at = at + 1 + 4 * tonumber(ARGV[at])
for a = at + 1, at + tonumber(ARGV[at]) do redis.call('HDEL', h, 'b' .. ARGV[a]) end
add_rows(at + 1 + tonumber(ARGV[at]))
last()
return { 'OK' }

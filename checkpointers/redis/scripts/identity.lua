-- uses: thread
-- Tenant and thread of a hash.
local m = redis.call('HMGET', h, 'id', 'u', 'y')
if not m[2] then return {} end
return { m[1] }

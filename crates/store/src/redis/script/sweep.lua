-- Removes rows of one partition that have expired, and returns how many.
--
-- KEYS: rows, order, expiries, then ids and terms of each table.
-- ARGV: now, partition, its part after the tenant, then for each row: table, id, index of the key of its ids.

local now, swept = tonumber(ARGV[1]), 0
local keys = {rows = KEYS[1], order = KEYS[2], expiries = KEYS[3]}
for at = 4, #ARGV, 3 do
  local id, ids = ARGV[at + 1], tonumber(ARGV[at + 2])
  local field = ARGV[at] .. '/' .. id
  local row = {field = field, member = id .. '\0' .. ARGV[3], expiry = ARGV[2] .. '\0' .. field}
  local value = redis.call('HGET', keys.rows, field)
  keys.ids, keys.terms = KEYS[ids], KEYS[ids + 1]
  if not value or not is_intact(value) then
    redis.call('ZREM', keys.expiries, row.expiry)
  elseif expiry_of(value) <= now then
    remove_row(keys, row, value)
    swept = swept + 1
  end
end
if swept > 0 then resize_order(keys.rows, keys.order, redis.call('EXISTS', keys.order) == 1) end
return swept

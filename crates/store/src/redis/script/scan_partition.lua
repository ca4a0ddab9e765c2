-- Reads rows of one table of one partition in order, in one snapshot.
--
-- KEYS: rows, order. ARGV: lower and upper bound of the fields, descending (1 or 0), number of rows, begin of the fields, number of bytes.
-- Returns whether no row follows (1 or 0), then fields and values. It ends after the row that reaches the number of bytes.

local limit, max_bytes, descending = tonumber(ARGV[4]), tonumber(ARGV[6]), ARGV[3] == '1'

-- The bytes of a text as numbers of six bytes each: Lua compares texts in the order of the server's locale.
local function sort_key(text)
  local key = {length = #text}
  for at = 1, #text, 6 do
    local a, b, c, d, e, f = string.byte(text, at, at + 5)
    key[#key + 1] = ((((a * 256 + (b or 0)) * 256 + (c or 0)) * 256 + (d or 0)) * 256 + (e or 0)) * 256 + (f or 0)
  end
  return key
end

-- Less than 0, 0, or more: whether the first comes before the second.
local function compare(one, other)
  for i = 1, math.min(#one, #other) do
    if one[i] ~= other[i] then return one[i] - other[i] end
  end
  return one.length - other.length
end

-- The fields of a small partition, which has no order.
local function sorted_fields()
  local lower, upper = sort_key(string.sub(ARGV[1], 2)), ARGV[2] ~= '+' and sort_key(string.sub(ARGV[2], 2))
  local is_lower_inside, is_upper_inside = string.sub(ARGV[1], 1, 1) == '[', string.sub(ARGV[2], 1, 1) == '['
  local fields, keys = {}, {}
  for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
    if string.sub(field, 1, #ARGV[5]) == ARGV[5] then
      local key = sort_key(field)
      local above, below = compare(key, lower), upper and compare(upper, key) or 1
      if (above > 0 or (above == 0 and is_lower_inside)) and (below > 0 or (below == 0 and is_upper_inside)) then
        fields[#fields + 1], keys[field] = field, key
      end
    end
  end
  table.sort(fields, function(one, other)
    local order = compare(keys[one], keys[other])
    if descending then return order > 0 end
    return order < 0
  end)
  return fields
end

local fields
if redis.call('EXISTS', KEYS[2]) == 0 then
  fields = sorted_fields()
elseif descending then
  fields = redis.call('ZRANGE', KEYS[2], ARGV[2], ARGV[1], 'BYLEX', 'REV', 'LIMIT', 0, limit + 1)
else
  fields = redis.call('ZRANGE', KEYS[2], ARGV[1], ARGV[2], 'BYLEX', 'LIMIT', 0, limit + 1)
end

local chosen, bytes = {}, 0
while #chosen < #fields and #chosen < limit and bytes < max_bytes do
  local field = fields[#chosen + 1]
  chosen[#chosen + 1] = field
  bytes = bytes + redis.call('HSTRLEN', KEYS[1], field)
end
local found, values = {#chosen == #fields and 1 or 0}, read_rows(KEYS[1], chosen)
for i, field in ipairs(chosen) do
  found[#found + 1] = field
  found[#found + 1] = values[i]
end
return found

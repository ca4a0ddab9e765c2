-- The rows of one partition and their entries in the indexes of its bucket. The functions below are shared by all scripts that write.
--
-- A value is: version (8 bytes), created (8), expires (8), updated (8), stamp (8), layout (4), checksum (4), length of the terms (4),
-- terms, record. Numbers are big-endian. What the client sends begins with `updated`, because only the script knows what is before.

local HEAD = 52
-- Versions of an epoch begin above its number times this. Epochs are about milliseconds, so versions stay below 2^53 until the year 2109.
local FLOOR_OF_EPOCH = 2048
-- `expires` of a row that never does.
local NEVER = '\127\255\255\255\255\255\255\255'
-- A partition with more rows than this has them in a sorted set as well, until it has half as many.
local MAX_UNSORTED = 64
local CHUNK = 1000

local function version_of(value)
  return struct.unpack('>I8', value)
end

local function expiry_of(value)
  return struct.unpack('>i8', value, 17)
end

-- The text of the terms whose length is at this position.
local function terms_at(value, at)
  local length = struct.unpack('>I4', value, at)
  return string.sub(value, at + 4, at + 3 + length)
end

local function is_intact(value)
  return #value >= HEAD
end

local function index_terms(command, key, terms, member)
  for term in string.gmatch(terms, '[^\n]+') do
    if command == 'ZADD' then
      redis.call('ZADD', key, 0, term .. '\n' .. member)
    else
      redis.call('ZREM', key, term .. '\n' .. member)
    end
  end
end

-- Removes a row with its index entries. `keys` names the keys of its partition, bucket and table.
local function remove_row(keys, row, old)
  redis.call('HDEL', keys.rows, row.field)
  redis.call('ZREM', keys.ids, row.member)
  redis.call('ZREM', keys.expiries, row.expiry)
  redis.call('ZREM', keys.order, row.field)
  if is_intact(old) then
    index_terms('ZREM', keys.terms, terms_at(old, 49), row.member)
  end
end

-- Stores the value of a row that had the value `old`, if any.
local function put_row(keys, row, old, value)
  redis.call('HSET', keys.rows, row.field, value)
  local terms, old_terms = terms_at(value, 49), ''
  local expires, old_expires = string.sub(value, 17, 24), NEVER
  if old and is_intact(old) then
    old_terms, old_expires = terms_at(old, 49), string.sub(old, 17, 24)
  end
  if not old then
    redis.call('ZADD', keys.ids, 0, row.member)
    if keys.is_ordered then redis.call('ZADD', keys.order, 0, row.field) end
  end
  if terms ~= old_terms then
    index_terms('ZREM', keys.terms, old_terms, row.member)
    index_terms('ZADD', keys.terms, terms, row.member)
  end
  if expires ~= old_expires then
    if expires == NEVER then
      redis.call('ZREM', keys.expiries, row.expiry)
    else
      redis.call('ZADD', keys.expiries, string.format('%.17g', expiry_of(value)), row.expiry)
    end
  end
end

-- Creates or removes the sorted set of a partition, by its number of rows.
local function resize_order(rows, order, is_ordered)
  local count = redis.call('HLEN', rows)
  if is_ordered and count <= MAX_UNSORTED / 2 then
    redis.call('DEL', order)
  elseif not is_ordered and count > MAX_UNSORTED then
    local fields = redis.call('HKEYS', rows)
    for first = 1, #fields, CHUNK do
      local entries = {}
      for i = first, math.min(first + CHUNK - 1, #fields) do
        entries[#entries + 1] = 0
        entries[#entries + 1] = fields[i]
      end
      redis.call('ZADD', order, unpack(entries))
    end
  end
end

-- The values of these fields, `false` for one that does not exist.
local function read_rows(rows, fields)
  local found = {}
  for first = 1, #fields, CHUNK do
    local last = math.min(first + CHUNK - 1, #fields)
    local values = redis.call('HMGET', rows, unpack(fields, first, last))
    for i = 1, #values do found[first + i - 1] = values[i] end
  end
  return found
end

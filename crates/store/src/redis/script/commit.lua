-- Commits a batch: checks every precondition before the first write, and keeps the answer for a client that asks again.
--
-- KEYS: rows, order, meta, expiries, answer, tenants, then ids and terms of each table.
-- ARGV: now, now as 8 bytes, only these rows (1 or 0), sent again (1 or 0), how long the answer is kept, partition, its part after the
-- tenant, tenant, channel, command to publish, epoch, server and number of the client's last acknowledged commit in this bucket, then for
-- each write: table, id, index of the key of its ids, precondition, change, expires as 8 bytes, version to restore, rest of the value.
--
-- An answer is: `ok`, the epoch as `describe_epoch` returns it, the versions; or the reason of a refusal, the epoch, the index of the write
-- and the version that was found.

local answer = redis.call('GET', KEYS[5])
if answer then return cmsgpack.unpack(answer) end

local epoch, server = enter_epoch(KEYS[3], ARGV[11], ARGV[12], ARGV[13])

local function answer_with(number, status, result, found)
  return {status, describe_epoch(KEYS[3], epoch, server, number, ARGV[11], ARGV[12]), result, found}
end

-- Without the list of all epochs: it may be longer when the answer is asked for.
local function keep_answer(answer)
  local kept = {answer[1], {epoch, server, answer[2][3]}, answer[3], answer[4]}
  redis.call('SET', KEYS[5], cmsgpack.pack(kept), 'PX', ARGV[5])
end

local function refuse(status, index, found)
  local refusal = answer_with(0, status, index, found)
  -- An earlier copy of this request may still arrive, and must not succeed after the client was told that it failed.
  if ARGV[4] == '1' then keep_answer(refusal) end
  return refusal
end

local now = tonumber(ARGV[1])
local rows, fields = {}, {}
for at = 14, #ARGV, 8 do
  local table_name, id = ARGV[at], ARGV[at + 1]
  local field, member = table_name .. '/' .. id, id .. '\0' .. ARGV[7]
  local ids = tonumber(ARGV[at + 2])
  fields[#fields + 1] = field
  rows[#rows + 1] = {
    table_name = table_name, id = id, field = field, member = member, expiry = ARGV[6] .. '\0' .. field, ids = KEYS[ids], terms = KEYS[ids + 1],
    expect = ARGV[at + 3], change = ARGV[at + 4], expires = ARGV[at + 5], restored = tonumber(ARGV[at + 6]), rest = ARGV[at + 7],
  }
end
local found, live = read_rows(KEYS[1], fields), {}

for i, row in ipairs(rows) do
  local value = found[i]
  if value and not is_intact(value) then
    -- Only an unconditional write replaces a damaged row.
    local replaces = row.change == 'put' or row.change == 'restore' or row.change == 'remove'
    if row.expect ~= '' or not replaces then return refuse('damaged', i) end
  elseif value and expiry_of(value) > now then
    live[i] = value
  end
  local holds = true
  if row.expect == '-' then
    holds = not live[i]
  elseif row.expect ~= '' then
    holds = live[i] and string.sub(live[i], 1, 8) == string.sub(row.expect, 1, 8)
      and string.sub(live[i], 33, 40) == string.sub(row.expect, 9, 16)
  end
  if not holds then return refuse('conflict', i, live[i] and version_of(live[i]) or -1) end
end

if ARGV[3] == '1' then
  local written, present = {}, 0
  for i, field in ipairs(fields) do
    written[field] = true
    if found[i] then present = present + 1 end
  end
  if redis.call('HLEN', KEYS[1]) > present then
    local all = redis.call('HGETALL', KEYS[1])
    for i = 1, #all, 2 do
      local is_live = not is_intact(all[i + 1]) or expiry_of(all[i + 1]) > now
      if is_live and not written[all[i]] then return refuse('others') end
    end
  end
end

-- Everything was checked; from here on nothing may fail.
local floor = epoch > 0 and epoch * FLOOR_OF_EPOCH + 1 or 0
local keys = {rows = KEYS[1], order = KEYS[2], expiries = KEYS[4], is_ordered = redis.call('EXISTS', KEYS[2]) == 1}
local versions, changes, has_written, has_added, has_removed = {}, {}, false, false, false

local function report(row, version)
  changes[#changes + 1] = struct.pack('>I4', #row.table_name) .. row.table_name .. struct.pack('>I4', #row.id) .. row.id
    .. struct.pack('>I8', version)
end

for i, row in ipairs(rows) do
  keys.ids, keys.terms = row.ids, row.terms
  local version = live[i] and version_of(live[i]) or 0
  if row.change == 'put' or row.change == 'restore' then
    version = math.max(version + 1, row.restored, floor)
    local created = live[i] and string.sub(live[i], 9, 16) or ARGV[2]
    put_row(keys, row, found[i], struct.pack('>I8', version) .. created .. row.expires .. row.rest)
    report(row, version)
    has_written, has_added = true, has_added or not found[i]
  elseif row.change == 'touch' and live[i] then
    put_row(keys, row, found[i], string.sub(live[i], 1, 16) .. row.expires .. string.sub(live[i], 25))
    has_written = true
  elseif row.change == 'remove' then
    version = 0
    if found[i] then
      remove_row(keys, row, found[i])
      if live[i] or not is_intact(found[i]) then report(row, 0) end
      has_written, has_removed = true, true
    end
  end
  versions[#versions + 1] = version
end

if has_added then redis.call('SADD', KEYS[6], ARGV[8]) end
if has_added or has_removed then resize_order(KEYS[1], KEYS[2], keys.is_ordered) end
if not has_written then return answer_with(0, 'ok', versions) end
local number = redis.call('HINCRBY', KEYS[3], 'number', 1)
-- Without changes too, because a gap in the numbers would mean that a message was lost.
local head = struct.pack('>I8', number) .. struct.pack('>I4', #ARGV[6]) .. ARGV[6]
redis.call(ARGV[10], ARGV[9], head .. table.concat(changes))
local done = answer_with(number, 'ok', versions)
keep_answer(done)
return done

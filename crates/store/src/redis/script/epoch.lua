-- The epochs of a bucket. The data of a server has one history until the server is started again or another one takes its place; then
-- commits that were acknowledged may be missing. So each history begins an epoch, which is higher than all before, and versions begin
-- above those of earlier epochs.
--
-- The hash `meta` of a bucket has: epoch, server (the history that the epoch belongs to), number (of the last commit), and for each epoch
-- a field `since:` with the number of the last commit before it, and its server.

local EPOCHS_KEPT = 64
-- Room for 2^32 versions of a row in each epoch, if the clock does not make more.
local EPOCH_STEP = 2097152

-- Redis gives each history an id: a new one after each start and each promotion.
local function history_of_server()
  local info = redis.call('INFO', 'replication')
  local _, last = string.find(info, 'master_replid:', 1, true)
  return last and string.sub(info, last + 1, last + 40) or ''
end

local function forget_old_epochs(meta)
  local epochs = {}
  for _, field in ipairs(redis.call('HKEYS', meta)) do
    local epoch = string.match(field, '^since:(%d+)$')
    if epoch then epochs[#epochs + 1] = tonumber(epoch) end
  end
  table.sort(epochs)
  for i = 1, #epochs - EPOCHS_KEPT do
    redis.call('HDEL', meta, string.format('since:%.0f', epochs[i]))
  end
end

-- Epochs follow the clock in milliseconds: two that begin at different times differ, even if their servers know nothing of each other. If the
-- clock is behind the last epoch, the microseconds serve as a random number.
local function next_epoch(last)
  local time = redis.call('TIME')
  local seconds, micros = tonumber(time[1]), tonumber(time[2])
  return math.max(seconds * 1000 + math.floor(micros / 1000), last + EPOCH_STEP + micros)
end

local function begin_epoch(meta, epoch, server, number)
  local text = string.format('%.0f', epoch)
  redis.call('HSET', meta, 'epoch', text, 'server', server, 'number', number, 'since:' .. text, number .. ' ' .. server)
  forget_old_epochs(meta)
end

-- Returns the epoch, the server and the number of the last commit; begins an epoch first if commits may be missing. The client knows the
-- epoch, server and number of its last acknowledged commit.
local function enter_epoch(meta, known_epoch, known_server, known_number)
  local found, history = redis.call('HMGET', meta, 'epoch', 'server', 'number'), history_of_server()
  local epoch, server, number = tonumber(found[1] or -1), found[2] or '', tonumber(found[3] or 0)
  known_epoch, known_number = tonumber(known_epoch), tonumber(known_number)
  local is_behind = known_epoch > epoch or (known_epoch == epoch and (known_server ~= server or known_number > number))
  if is_behind or epoch < 0 or server ~= history then
    epoch, server = next_epoch(math.max(epoch, known_epoch)), history
    begin_epoch(meta, epoch, server, number)
  end
  return epoch, server, number
end

-- What the client learns of the epoch: its number, its server, the number of the client's commit (or 0), and all epochs if the client
-- does not know this one.
local function describe_epoch(meta, epoch, server, number, known_epoch, known_server)
  local state = {epoch, server, number}
  if tonumber(known_epoch) ~= epoch or known_server ~= server then
    local all = redis.call('HGETALL', meta)
    for i = 1, #all, 2 do
      if string.sub(all[i], 1, 6) == 'since:' then
        state[#state + 1] = string.sub(all[i], 7)
        state[#state + 1] = all[i + 1]
      end
    end
  end
  return state
end

-- Returns the epoch of a bucket, as a commit does. With `create`, a bucket that was never used gets its first epoch.
--
-- KEYS: meta. ARGV: epoch, server and number of the last acknowledged commit, create (1 or 0).

if ARGV[4] == '1' and redis.call('HSETNX', KEYS[1], 'epoch', '0') == 1 then begin_epoch(KEYS[1], 0, history_of_server(), 0) end
local epoch, server = enter_epoch(KEYS[1], ARGV[1], ARGV[2], ARGV[3])
return describe_epoch(KEYS[1], epoch, server, 0, ARGV[1], ARGV[2])

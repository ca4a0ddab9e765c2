-- Returns the first command that the user may not run, or nothing.
--
-- KEYS: rows, order, meta, expiries, answer, tenants, ids, terms. ARGV: channel, command to publish, command to subscribe, whether
-- replicas are waited for (1 or 0).

local commands = {
  {'EVALSHA', 'x', '1', KEYS[1]}, {'INFO', 'replication'}, {'TIME'}, {'PING'},
  {'GET', KEYS[5]}, {'SET', KEYS[5], 'x', 'PX', '1'}, {'EXISTS', KEYS[2]}, {'DEL', KEYS[2]},
  {'HGET', KEYS[1], 'x'}, {'HMGET', KEYS[1], 'x'}, {'HGETALL', KEYS[1]}, {'HKEYS', KEYS[1]}, {'HLEN', KEYS[1]},
  {'HSTRLEN', KEYS[1], 'x'}, {'HSET', KEYS[1], 'x', 'x'}, {'HSETNX', KEYS[3], 'x', 'x'}, {'HDEL', KEYS[1], 'x'}, {'HINCRBY', KEYS[3], 'x', '1'},
  {'ZADD', KEYS[4], '0', 'x'}, {'ZREM', KEYS[4], 'x'}, {'ZRANGE', KEYS[7], '-', '+', 'BYLEX'}, {'ZLEXCOUNT', KEYS[8], '-', '+'},
  {'SADD', KEYS[6], 'x'}, {'SMEMBERS', KEYS[6]},
  {ARGV[2], ARGV[1], 'x'}, {ARGV[3], ARGV[1]},
}
if ARGV[4] == '1' then commands[#commands + 1] = {'WAIT', '1', '1'} end
for _, command in ipairs(commands) do
  if not redis.acl_check_cmd(unpack(command)) then return command[1] end
end
return false

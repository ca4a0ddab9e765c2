//! A real Redis Cluster of one test: three primaries, and if wanted a replica of each.

use crate::{RedisServer, redis_server::wait_until};

/// Running servers that form a Cluster.
#[derive(Debug)]
pub struct RedisCluster {
    /// First the three that begin as primaries; then, if there are any, their replicas in the same order.
    servers: Vec<RedisServer>,
    /// Which server is the primary of each of the three parts.
    primaries: [usize; SERVERS],
}

/// The hash slots of a Cluster.
const SLOTS: usize = 16_384;
const SERVERS: usize = 3;
const SETTINGS: [&str; 5] = [
    "--appendonly yes",
    "--appendfsync always",
    "--cluster-enabled yes",
    "--cluster-node-timeout 1000",
    // A server that comes back is in sync at once.
    "--repl-diskless-sync-delay 0",
];

impl RedisCluster {
    /// Starts the servers and returns when the Cluster is complete.
    ///
    /// # Panics
    /// When `redis-server` is missing.
    #[must_use]
    pub fn start() -> Self {
        let servers: Vec<RedisServer> = (0..SERVERS).map(|_| RedisServer::start_with(&SETTINGS)).collect();
        for (at, server) in servers.iter().enumerate() {
            let (first, last) = (at * SLOTS / SERVERS, (at + 1) * SLOTS / SERVERS - 1);
            assert_eq!(server.cli(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()]), "OK");
            assert_eq!(server.cli(&["CLUSTER", "SET-CONFIG-EPOCH", &(at + 1).to_string()]), "OK");
        }
        for server in &servers[1..] {
            assert_eq!(servers[0].cli(&["CLUSTER", "MEET", "127.0.0.1", &server.port().to_string()]), "OK");
        }
        let is_complete = |server: &RedisServer| {
            let info = server.cli(&["CLUSTER", "INFO"]);
            info.contains("cluster_state:ok") && info.contains(&format!("cluster_known_nodes:{SERVERS}"))
        };
        wait_until(|| servers.iter().all(is_complete));
        Self { servers, primaries: [0, 1, 2] }
    }

    /// Starts a Cluster with a replica of each primary, and returns when the replicas have all data.
    ///
    /// # Panics
    /// When `redis-server` is missing.
    #[must_use]
    pub fn start_with_replicas() -> Self {
        let mut cluster = Self::start();
        for at in 0..SERVERS {
            let replica = RedisServer::start_with(&SETTINGS);
            let primary = &cluster.servers[at];
            let (port, id) = (primary.port().to_string(), primary.cli(&["CLUSTER", "MYID"]));
            assert_eq!(replica.cli(&["CLUSTER", "MEET", "127.0.0.1", &port]), "OK");
            // It must have heard of the primary first.
            wait_until(|| replica.cli(&["CLUSTER", "REPLICATE", &id]) == "OK");
            cluster.servers.push(replica);
        }
        cluster.wait_until_redundant();
        cluster
    }

    /// The primary of one of the three parts of a Cluster with replicas.
    #[must_use]
    pub fn primary(&self, part: usize) -> &RedisServer {
        &self.servers[self.primaries[part]]
    }

    /// Kills the primary of a part, and returns when its replica has its role.
    pub fn fail_over(&mut self, part: usize) {
        let (old, new) = (self.primaries[part], self.replica_of(part));
        self.servers[old].kill();
        wait_until(|| self.servers[new].is_primary());
        self.primaries[part] = new;
    }

    /// Starts the server of a part that was killed, and returns when all replicas have all data.
    ///
    /// # Panics
    /// When it does not start.
    pub fn restore(&mut self, part: usize) {
        let killed = self.replica_of(part);
        self.servers[killed].restart();
        self.wait_until_redundant();
    }

    /// The server of a part that is not its primary.
    fn replica_of(&self, part: usize) -> usize {
        2 * part + SERVERS - self.primaries[part]
    }

    fn wait_until_redundant(&self) {
        let is_redundant = |part| self.servers[self.replica_of(part)].is_synchronized();
        let is_complete = |server: &RedisServer| {
            let (info, nodes) = (server.cli(&["CLUSTER", "INFO"]), server.cli(&["CLUSTER", "NODES"]));
            info.contains("cluster_state:ok") && !nodes.contains("fail") && nodes.matches("slave").count() == SERVERS
        };
        wait_until(|| (0..SERVERS).all(is_redundant) && self.servers.iter().all(is_complete));
    }

    /// Its address.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.servers.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
        format!("redis+cluster://{}", hosts.join(","))
    }

    /// Its servers, to kill them.
    pub fn servers_mut(&mut self) -> &mut [RedisServer] {
        &mut self.servers
    }

    /// Moves the hash slot of a key, with its keys, from the server that has it to the next one.
    ///
    /// # Panics
    /// When no server has the key, or a server refuses.
    pub fn move_slot_of(&self, key: &str) {
        let has_key = |server: &RedisServer| server.cli(&["EXISTS", key]) == "1";
        let from = self.servers.iter().position(has_key).expect("a server has the key");
        let (from, to) = (&self.servers[from], &self.servers[(from + 1) % SERVERS]);
        let slot = from.cli(&["CLUSTER", "KEYSLOT", key]);
        let (source, target) = (from.cli(&["CLUSTER", "MYID"]), to.cli(&["CLUSTER", "MYID"]));
        assert_eq!(to.cli(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source]), "OK");
        assert_eq!(from.cli(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target]), "OK");
        let (keys, port) = (from.cli(&["CLUSTER", "GETKEYSINSLOT", &slot, "1000"]), to.port().to_string());
        let migrate = ["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
        let migrate: Vec<&str> = migrate.into_iter().chain(keys.lines()).collect();
        assert_eq!(from.cli(&migrate), "OK");
        for server in [to, from] {
            assert_eq!(server.cli(&["CLUSTER", "SETSLOT", &slot, "NODE", &target]), "OK");
        }
    }

    /// Its servers.
    #[must_use]
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }
}

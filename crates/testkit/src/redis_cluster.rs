//! A real Redis Cluster of one test: three primaries.

use crate::RedisServer;

/// Running servers that form a Cluster.
#[derive(Debug)]
pub struct RedisCluster {
    servers: Vec<RedisServer>,
}

/// The hash slots of a Cluster.
const SLOTS: usize = 16_384;
const SERVERS: usize = 3;

impl RedisCluster {
    /// Starts the servers and returns when the Cluster is complete.
    ///
    /// # Panics
    /// When `redis-server` is missing.
    #[must_use]
    pub fn start() -> Self {
        let settings =
            ["--appendonly yes", "--appendfsync always", "--cluster-enabled yes", "--cluster-node-timeout 2000"];
        let servers: Vec<RedisServer> = (0..SERVERS).map(|_| RedisServer::start_with(&settings)).collect();
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
        while !servers.iter().all(is_complete) {}
        Self { servers }
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

//! A real primary with a replica behind three Sentinels.

use crate::{RedisServer, redis_server::wait_until};

/// Running servers, one of which is the primary, and the Sentinels that watch them under the name `main`.
#[derive(Debug)]
pub struct RedisSentinel {
    servers: [RedisServer; 2],
    sentinels: [RedisServer; 3],
    /// Which of the servers is the primary.
    primary: usize,
}

impl RedisSentinel {
    /// Starts all servers, and returns when the Sentinels would promote the replica.
    ///
    /// # Panics
    /// When `redis-server` is missing.
    #[must_use]
    pub fn start() -> Self {
        // A server that comes back is in sync at once.
        let settings = ["--appendonly yes", "--appendfsync always", "--repl-diskless-sync-delay 0"];
        let primary = RedisServer::start_with(&settings);
        let replica_of = format!("--replicaof 127.0.0.1 {}", primary.port());
        let replica = RedisServer::start_with(&[&settings[..], &[&replica_of]].concat());
        wait_until(|| replica.is_synchronized());
        let sentinels = [(); 3].map(|()| RedisServer::start_sentinel(primary.port(), 2));
        let started = Self { servers: [primary, replica], sentinels, primary: 0 };
        started.wait_until_redundant();
        started
    }

    /// The address of the Sentinels.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts = self.sentinels.each_ref().map(|sentinel| format!("127.0.0.1:{}", sentinel.port())).join(",");
        format!("redis+sentinel://{hosts}/main/0")
    }

    /// The server that is the primary.
    #[must_use]
    pub fn primary(&self) -> &RedisServer {
        &self.servers[self.primary]
    }

    /// Kills the primary, and returns when the replica has its role.
    pub fn fail_over(&mut self) {
        self.servers[self.primary].kill();
        self.primary = 1 - self.primary;
        let port = self.primary().port().to_string();
        let ask = |sentinel: &RedisServer| sentinel.cli(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main"]);
        wait_until(|| {
            self.primary().is_primary() && self.sentinels.iter().all(|sentinel| ask(sentinel).contains(&port))
        });
    }

    /// Starts the server that was the primary before, as a replica, and returns when the Sentinels would promote it.
    ///
    /// # Panics
    /// When it does not start.
    pub fn restore(&mut self) {
        let port = self.primary().port().to_string();
        let replica = &mut self.servers[1 - self.primary];
        replica.restart();
        let answer = replica.cli(&["REPLICAOF", "127.0.0.1", &port]);
        assert!(answer.starts_with("OK"), "{answer}");
        self.wait_until_redundant();
    }

    fn wait_until_redundant(&self) {
        let replica = &self.servers[1 - self.primary];
        wait_until(|| replica.is_synchronized());
        let port = replica.port().to_string();
        let is_known = |sentinel: &RedisServer| {
            let replicas = sentinel.cli(&["SENTINEL", "REPLICAS", "main"]);
            let is_healthy = !replicas.contains("s_down") && replicas.contains("master-link-status\nok");
            replicas.contains(&port)
                && is_healthy
                && sentinel.cli(&["SENTINEL", "CKQUORUM", "main"]).contains("3 usable")
        };
        wait_until(|| self.sentinels.iter().all(is_known));
    }
}

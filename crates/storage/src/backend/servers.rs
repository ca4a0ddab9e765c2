//! What a store knows of the servers that keep its records.

use std::fmt;

/// The servers of a store and the connection to them, as of the last look.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ServersReport {
    /// The servers that commits go to: one, or each primary of a cluster.
    pub servers: Vec<StoreServer>,
    /// By how many seconds the time of the servers is ahead of this machine's clock.
    pub clock_difference: f64,
    /// How many notifications the servers had published and this process had not received.
    pub notification_lag: u64,
    /// How often notifications were lost since the store was opened, so that watchers had to read again.
    pub notification_gaps: u64,
}

/// A server that keeps records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreServer {
    /// Its address, or that of the store if it is behind another one. Without a password.
    pub address: String,
    /// The version of its program.
    pub version: String,
    /// Whether it was a primary; a replica refuses commits.
    pub is_primary: bool,
    /// How many replicas were connected to it.
    pub replicas: u64,
    /// Its append-only file, and when that is synced: `aof always`, `aof everysec`, `aof no`; `aof` if it does not tell, `no aof` without one.
    pub persistence: String,
    /// The memory it uses, in bytes.
    pub memory: u64,
    /// The memory it may use, in bytes, if that is limited.
    pub memory_limit: Option<u64>,
}

impl StoreServer {
    /// `primary` or `replica`.
    #[must_use]
    pub fn role(&self) -> &'static str {
        if self.is_primary { "primary" } else { "replica" }
    }
}

impl fmt::Display for StoreServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, version, replicas, persistence, .. } = self;
        write!(f, "{address}: version {version}, {}, {replicas} replicas, persistence {persistence}, ", self.role())?;
        write!(f, "memory {} MiB", mebibytes(self.memory))?;
        match self.memory_limit {
            Some(limit) => write!(f, " of {} MiB", mebibytes(limit)),
            None => f.write_str(" without limit"),
        }
    }
}

/// Rounded up, so that no limit shows as 0.
fn mebibytes(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

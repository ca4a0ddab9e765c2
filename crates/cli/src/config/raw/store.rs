//! The section `[store]`.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use toolhub::config::{DurationOrNever, PositiveDuration, SecretSource, Size};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Where records are stored, and for how long.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Store {
    /// Storage backend.
    pub(crate) backend: Backend,
    /// Database file, for `sqlite`. Its folder is created if missing.
    pub(crate) path: String,
    /// Address of the server, for `redis`: "redis://host:6379/0", with TLS "rediss://host:6379/0".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) url: Option<String>,
    /// What all keys begin with, for `redis`. Stores with different prefixes can share a server.
    pub(crate) key_prefix: String,
    /// Maximum size of the database file, or with backend = "memory" of journal, events, artifacts and threads; at least "1MiB". At
    /// 80 % of it the oldest ended calls are removed, with their events and artifacts; at 95 % writes wait for that; a database file
    /// that is full all the same refuses writes. Default: no limit; with backend = "memory" "256MiB".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_size: Option<Size>,
    /// Which plain read-only calls, without effects, key or approval, are recorded in the journal.
    pub(crate) read_only_calls: ReadOnlyCalls,
    /// Retention of records.
    pub(crate) retention: Retention,
    /// Automatic backups.
    pub(crate) backup: Backup,
    /// How long a node may be silent before the others take over its calls and runs, for `redis`; at least "300ms". Between two nodes
    /// the longer one counts.
    pub(crate) node_timeout: PositiveDuration,
    /// Login, TLS and durability, for `redis`.
    pub(crate) redis: Redis,
}

/// Storage backend.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Backend {
    /// One database file; acknowledged writes survive the process.
    #[default]
    Sqlite,
    /// In memory; lost when the process ends.
    Memory,
    /// On a Redis server, version 7.0 or later, with `appendonly yes`. Several nodes may use it. Backups and `max_size` are those of the server.
    Redis,
}

/// Which plain read-only calls are recorded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ReadOnlyCalls {
    /// All of them.
    #[default]
    All,
    /// Those that did not succeed.
    Failed,
    /// None.
    None,
}

/// Login, TLS and durability of a Redis server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Redis {
    /// User, if the server has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<String>,
    /// Password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) password: Option<SecretSource>,
    /// Password of the Sentinels, if they have one. `password` is that of the servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sentinel_password: Option<SecretSource>,
    /// Secret from which the key is made that encrypts secrets in records; at least 16 characters, the same at each start. Without it, a call
    /// with secret arguments that waits for a person ends when the server is started again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) seal_secret: Option<SecretSource>,
    /// PEM file with the certificate authorities to trust instead of those of the operating system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ca_file: Option<String>,
    /// PEM file with the certificate of this client; requires `key_file`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cert_file: Option<String>,
    /// PEM file with the private key of this client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key_file: Option<String>,
    /// Number of buckets of a new store, from 1 to 1024; kept in the database from then on. Default: 1, on a Cluster 64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) buckets: Option<u16>,
    /// Whether a server is accepted that loses records when it ends or when its memory is full: without append-only file, or with
    /// eviction.
    pub(crate) volatile: bool,
    /// How many replicas must have a record before a write is acknowledged. A write waits a second at most; with fewer replicas it is
    /// acknowledged all the same, with a warning in the log and in `/readyz?verbose`, and `durability: unreplicated` in the outcome of a call.
    pub(crate) replicas: u16,
}

/// Retention of records.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Retention {
    /// How long ended calls stay in the journal. Default with backend = "memory": "1h", because the journal grows with every
    /// call.
    pub(crate) calls: PositiveDuration,
    /// How long events can be replayed.
    pub(crate) events: PositiveDuration,
    /// How long the audit log of HTTP requests is kept. Default with backend = "memory": "1d".
    pub(crate) audit: PositiveDuration,
    /// How long an unused thread is kept, with its state. "never" keeps all threads.
    pub(crate) idle_threads: DurationOrNever,
}

/// Automatic backups.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Backup {
    /// Whether automatic backups are made. For `sqlite`.
    pub(crate) enabled: bool,
    /// Interval between backups, kept across restarts.
    pub(crate) interval: PositiveDuration,
    /// How long a backup is kept; the latest intact one is never removed.
    pub(crate) retention: PositiveDuration,
    /// Folder of the backups. Default: `backups` beside the database file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) folder: Option<String>,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            backend: Backend::default(),
            path: ".toolhub/toolhub.db".into(),
            url: None,
            key_prefix: "toolhub".into(),
            max_size: None,
            read_only_calls: ReadOnlyCalls::default(),
            retention: Retention::default(),
            backup: Backup::default(),
            node_timeout: PositiveDuration(Duration::from_secs(15)),
            redis: Redis::default(),
        }
    }
}

impl Retention {
    /// Default retention of calls in memory. A month of calls could exhaust memory, and would be lost with the process anyway.
    pub(crate) const CALLS_IN_MEMORY: PositiveDuration = PositiveDuration(Duration::from_secs(3600));
    /// Default retention of the audit log in memory.
    pub(crate) const AUDIT_IN_MEMORY: PositiveDuration = PositiveDuration(DAY);
}

impl Default for Retention {
    fn default() -> Self {
        let (calls, events, audit) =
            (PositiveDuration(30 * DAY), PositiveDuration(7 * DAY), PositiveDuration(90 * DAY));
        Self { calls, events, audit, idle_threads: DurationOrNever(Some(14 * DAY)) }
    }
}

impl Default for Backup {
    fn default() -> Self {
        Self {
            enabled: false,
            interval: PositiveDuration(DAY / 24),
            retention: PositiveDuration(7 * DAY),
            folder: None,
        }
    }
}

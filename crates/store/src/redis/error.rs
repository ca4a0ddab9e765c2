//! Errors of opening a store in Redis, and what a failed request says about its outcome.

use redis::{ErrorKind, RedisError, ServerErrorKind};

use super::address::AddressError;

/// The names of the settings that hold the address of a store and the prefix of its keys, as messages show them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SettingNames {
    /// That of the address.
    pub url: &'static str,
    /// That of the number of the database, if it is not a part of the address.
    pub database: &'static str,
    /// That of the prefix.
    pub key_prefix: &'static str,
}

impl SettingNames {
    /// Those of the hub's store. All messages are written with them.
    pub(super) const STORE: Self = Self { url: "store.url", database: "store.url", key_prefix: "store.key_prefix" };

    /// A message with these names instead of those of the hub's store.
    pub(super) fn rename(self, message: &str) -> String {
        let renamed = message.replace("`store.url`", &format!("`{}`", self.url));
        renamed.replace("`store.key_prefix`", &format!("`{}`", self.key_prefix))
    }

    /// The same for an error.
    pub(super) fn rename_error(self, error: OpenError) -> OpenError {
        if self == Self::STORE { error } else { OpenError::Renamed(Box::new(error), self) }
    }
}

/// Why a store in Redis could not be opened. Each message names the setting to change.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The address cannot be read.
    #[error("`store.url` is no address of Redis: {0}")]
    Address(#[from] AddressError),
    /// The prefix contains a brace, which would choose the hash slot of the keys.
    #[error("`store.key_prefix` is {0:?}; it must not be empty nor contain braces")]
    Prefix(String),
    /// The number of buckets is out of range.
    #[error("`store.redis.buckets` is {0}; it must be between 1 and 1024")]
    Buckets(u16),
    /// No server answered.
    #[error("no Redis server answers at {address}: {reason}; check `store.url` and that the server runs")]
    Unreachable {
        /// The address without its password.
        address: String,
        /// The client's message.
        reason: String,
    },
    /// The server refused user or password.
    #[error(
        "the Redis server at {address} refuses user or password; check `store.redis.user` and `store.redis.password`"
    )]
    Password {
        /// The address without its password.
        address: String,
    },
    /// The user may not run a command.
    #[error("the Redis server denies the user of `store.url` a permission: {0}; allow it with ACL SETUSER")]
    Permission(String),
    /// The server is too old.
    #[error("the Redis server has version {found}; `store.url` must name one of version 7.0 or later")]
    TooOld {
        /// Its version.
        found: String,
    },
    /// The server is a replica.
    #[error(
        "the Redis server at {address} is a read-only replica; set `store.url` to its primary, or to its Sentinels"
    )]
    Replica {
        /// The address without its password.
        address: String,
    },
    /// The server belongs to a Cluster.
    #[error("the Redis server at {address} belongs to a Cluster; begin `store.url` with `redis+cluster://`")]
    IsCluster {
        /// The address without its password.
        address: String,
    },
    /// The server does not belong to a Cluster.
    #[error("the Redis server at {address} belongs to no Cluster; begin `store.url` with `redis://`")]
    NoCluster {
        /// The address without its password.
        address: String,
    },
    /// The server has no append-only file.
    #[error(
        "the Redis server loses acknowledged records when it ends: its append-only file is off; set `appendonly yes` in its \
         configuration, or `store.redis.volatile = true` to accept that"
    )]
    NoAppendOnlyFile,
    /// The server removes records when its memory is full.
    #[error(
        "the Redis server removes records when its memory is full (`maxmemory-policy {policy}`); set `maxmemory-policy noeviction` in its \
         configuration, or `store.redis.volatile = true` to accept that"
    )]
    Eviction {
        /// The policy.
        policy: String,
    },
    /// The server has no database of this number.
    #[error(
        "the Redis server at {address} has no database {database}; set a lower number in `{setting}`, or raise `databases` in its \
         configuration"
    )]
    Database {
        /// The address without its password.
        address: String,
        /// The number of the database.
        database: i64,
        /// The setting that holds it.
        setting: &'static str,
    },
    /// A later version of Toolhub wrote the store.
    #[error(
        "the store under `store.key_prefix` has schema {found}, this version supports at most {known}; use the version that wrote it, or a \
         later one"
    )]
    Newer {
        /// The schema of the store.
        found: u32,
        /// The latest schema that this version supports.
        known: u32,
    },
    /// The keys under the prefix are not those of a store.
    #[error("the key {0:?} in Redis was not written by Toolhub; set another `store.key_prefix`")]
    Foreign(String),
    /// Another error, of a store with other names of its settings.
    #[error("{}", .1.rename(&.0.to_string()))]
    Renamed(Box<OpenError>, SettingNames),
    /// A request failed.
    #[error("the store in Redis cannot be opened: {0}")]
    Failed(String),
    /// The threads of the store could not be started.
    #[error("the runtime of the store cannot be started: {0}")]
    Runtime(std::io::Error),
}

/// What the failure of a request says about its outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// The server refused the request before it did anything, and may accept it soon.
    Refused,
    /// The same, and another server may be the primary now.
    Demoted,
    /// The server refused the request before it did anything, and will until there is room: its memory or disk is full.
    Full,
    /// No answer came; the server may have executed the request.
    NoAnswer,
    /// The server does not have the script.
    NoScript,
    /// The request failed for a reason that will not go away by itself. A script may have written something before.
    Final,
}

/// Decides by the code of the error, never by its message.
pub(super) fn classify(error: &RedisError) -> Failure {
    match error.kind() {
        ErrorKind::Server(kind) => match kind {
            ServerErrorKind::BusyLoading | ServerErrorKind::TryAgain | ServerErrorKind::ClusterDown => Failure::Refused,
            // The client of a Cluster followed the slot a few times already; it is still on its way.
            ServerErrorKind::Moved | ServerErrorKind::Ask => Failure::Refused,
            ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown => Failure::Demoted,
            ServerErrorKind::NoScript => Failure::NoScript,
            _ => Failure::Final,
        },
        ErrorKind::Extension => match code_of(error).as_deref() {
            Some("NOREPLICAS" | "BUSY") => Failure::Refused,
            Some("OOM" | "MISCONF") => Failure::Full,
            _ => Failure::Final,
        },
        _ => Failure::NoAnswer,
    }
}

/// Whether a server refuses all writes, and may answer reads.
pub(super) fn refuses_writes(error: &RedisError) -> bool {
    let code = code_of(error);
    matches!(code.as_deref(), Some("NOREPLICAS" | "OOM" | "MISCONF" | "READONLY" | "MASTERDOWN" | "CLUSTERDOWN"))
}

/// The code with which the server refused a request; of several requests that were sent together, that of the first that failed.
fn code_of(error: &RedisError) -> Option<String> {
    let of_one = || error.code().map(str::to_owned);
    let errors = error.clone().into_server_errors();
    errors.as_deref().and_then(<[_]>::first).map(|(_, error)| error.code().to_owned()).or_else(of_one)
}

/// Why a server that answers does not execute requests, and what to change there.
fn remedy(code: &str) -> Option<&'static str> {
    Some(match code {
        "NOREPLICAS" => {
            "Redis refuses writes because fewer replicas are connected than `min-replicas-to-write` demands; connect more, or lower that \
             setting of Redis"
        }
        "OOM" => {
            "Redis refuses writes because its memory is full; raise `maxmemory` in its configuration, or remove records"
        }
        "MISCONF" => {
            "Redis refuses writes because it cannot save them; make room on its disk and check the permissions of its `dir`, or, where \
             only snapshots fail, set `stop-writes-on-bgsave-error no`"
        }
        "CLUSTERDOWN" => {
            "the Redis Cluster is down: no server has some of its hash slots; start its missing servers, or assign the slots with \
             `redis-cli --cluster fix` (`cluster-require-full-coverage` decides whether it serves the other slots meanwhile)"
        }
        _ => return None,
    })
}

/// The text of an error, with what to change where that is known. The client's own messages contain no password.
pub(super) fn describe(error: &RedisError) -> String {
    // The client's own error, when no server has any slot.
    let is_down = error.kind() == ErrorKind::ClusterConnectionNotFound;
    let code = if is_down { Some("CLUSTERDOWN".to_owned()) } else { code_of(error) };
    if let Some((text, code)) = code.and_then(|code| Some((remedy(&code)?, code))) {
        return format!("{text} ({code})");
    }
    let text = error.to_string();
    if text.is_empty() { error.category().to_owned() } else { text }
}

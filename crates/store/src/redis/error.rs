//! Errors of opening a store in Redis, and what a failed request says about its outcome.

use redis::{ErrorKind, RedisError, ServerErrorKind};

use super::address::AddressError;

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
        "the Redis server at {address} refuses user or password; check them in `store.url`, or `store.redis.password`"
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
        ErrorKind::Extension => {
            // Of several commands that were sent together, the first that failed.
            let errors = error.clone().into_server_errors();
            match errors.as_deref().and_then(<[_]>::first).map(|(_, error)| error.code()) {
                Some("NOREPLICAS" | "BUSY") => Failure::Refused,
                Some("OOM" | "MISCONF") => Failure::Full,
                _ => Failure::Final,
            }
        }
        _ => Failure::NoAnswer,
    }
}

//! Connection pools and OAuth 2 tokens that all tools of a process share.
//!
//! In: the origin of a request and its connection settings. Out: a connection pool, or a token cache. `toolhub-net` opens and pools
//! the connections.

use std::{
    fmt,
    path::Path,
    sync::{Arc, LazyLock},
};

use toolhub_core::ConnectionStateConfig;
use toolhub_net::{AddressPolicy, Origin, Pool, PoolOptions, Pools, Resolve, WeakMap};

use super::credentials::{TokenCache, TokenKey};

/// The connection pools of all services. Cheap to clone; clones share the pools.
///
/// The default value is shared by the whole process. A pool lives as long as a tool uses its service.
#[derive(Clone)]
pub struct Upstreams {
    pools: Pools,
    tokens: Arc<WeakMap<TokenKey, TokenCache>>,
}

impl Upstreams {
    /// Pools separate from those of the rest of the process.
    #[must_use]
    pub fn new() -> Self {
        Self { pools: Pools::default(), tokens: Arc::default() }
    }

    /// Pools separate from those of the rest of the process, with a custom DNS resolver.
    pub fn with_resolver(resolver: impl Resolve) -> Self {
        Self { pools: Pools::with_resolver(resolver), tokens: Arc::default() }
    }

    /// The pool of a service.
    pub(crate) fn pool(&self, origin: &Origin, options: &PoolOptions) -> Arc<Pool> {
        self.pools.pool(origin, options)
    }

    /// The token cache of this key.
    pub(crate) fn tokens(&self, key: &TokenKey) -> Arc<TokenCache> {
        self.tokens.get_or_insert_with(key.clone(), TokenCache::default)
    }
}

impl Default for Upstreams {
    fn default() -> Self {
        static PROCESS: LazyLock<Upstreams> = LazyLock::new(Upstreams::new);
        PROCESS.clone()
    }
}

impl fmt::Debug for Upstreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Upstreams")
    }
}

/// The pool options of a tool.
pub(crate) fn pool_options(
    config: &ConnectionStateConfig,
    allow_hosts: &[String],
    ca_file: Option<&Path>,
) -> PoolOptions {
    PoolOptions {
        max_idle: config.pool_size,
        max_in_flight: config.pool_size.saturating_add(config.max_overflow),
        permit_timeout: config.pool_timeout,
        max_age: config.pool_recycle,
        connect_timeout: config.connect_timeout,
        write_timeout: config.write_timeout,
        idle_timeout: config.keep_alive.then_some(config.keep_alive_timeout),
        tcp_keepalive: config.keep_alive_interval,
        address_policy: AddressPolicy::PublicOrHosts(allow_hosts.to_vec()),
        ca_file: ca_file.map(Path::to_owned),
        // The address guard cannot check where a proxy connects to.
        proxy: None,
    }
}

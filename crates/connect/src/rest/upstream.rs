//! What all tools of a process share: connections to services, and the tokens that were fetched for them.
//!
//! In: where a request goes and how its owner wants to be connected. Out: a pool of connections, or the cell of a token. Connections are made
//! and kept by `toolhub-net`.

use std::{
    fmt,
    path::Path,
    sync::{Arc, LazyLock},
};

use toolhub_core::ConnectionStateConfig;
use toolhub_net::{AddressPolicy, Origin, Pool, PoolOptions, Pools, Resolve, WeakMap};

use super::credentials::{TokenCache, TokenKey};

/// The connections to all services, and how many requests each bears. Cheap to clone; clones are the same.
///
/// The default is one for the whole process. A connection is kept for as long as a tool uses its service.
#[derive(Clone)]
pub struct Upstreams {
    pools: Pools,
    tokens: Arc<WeakMap<TokenKey, TokenCache>>,
}

impl Upstreams {
    /// Connections apart from those of the rest of the process.
    #[must_use]
    pub fn new() -> Self {
        Self { pools: Pools::default(), tokens: Arc::default() }
    }

    /// Connections apart from those of the rest of the process, to hosts that are found in another way.
    pub fn with_resolver(resolver: impl Resolve) -> Self {
        Self { pools: Pools::with_resolver(resolver), tokens: Arc::default() }
    }

    /// The connections to a service.
    pub(crate) fn pool(&self, origin: &Origin, options: &PoolOptions) -> Arc<Pool> {
        self.pools.pool(origin, options)
    }

    /// The tokens that are fetched with the same words.
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

/// How connections are made for a tool.
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
        // The guard could not see where a proxy connects to.
        proxy: None,
    }
}

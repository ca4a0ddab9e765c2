//! Connection pools by service, shared by everyone who wants the same options.
//!
//! In: an origin and the options for its connections. Out: its [`Pool`]. A pool lives for as long as somebody holds it; this registry
//! only finds it again.

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use tokio::sync::Semaphore;

use crate::{
    dns::{Lookups, Resolve, SystemResolver},
    origin::Origin,
    pool::Pool,
    proxy::Proxy,
    tls,
    weak_map::WeakMap,
};

/// How connections to a service are made and kept. Whoever wants the same shares connections.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PoolOptions {
    /// How many idle connections are kept.
    pub max_idle: usize,
    /// How many [permits](Pool::permit) are out at once, over all pools of the origin.
    pub max_in_flight: usize,
    /// How long to wait for a permit.
    pub permit_timeout: Duration,
    /// An older connection is not used again.
    pub max_age: Duration,
    /// How long DNS, TCP, proxy and TLS may take together.
    pub connect_timeout: Duration,
    /// How long a service may accept no bytes.
    pub write_timeout: Duration,
    /// How long an unused connection is kept; `None` where none is.
    pub idle_timeout: Option<Duration>,
    /// The interval of TCP keep-alive probes; none at zero.
    pub tcp_keepalive: Duration,
    /// Which addresses may be connected to.
    pub addresses: Addresses,
    /// A PEM file with root certificates beside the system's.
    pub ca_file: Option<PathBuf>,
    /// The proxy between.
    pub proxy: Option<Proxy>,
}

/// Which addresses may be connected to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Addresses {
    /// Any, also of this machine: an operator wrote the address.
    Any,
    /// Public ones, and those of the hosts that are named here, with or without a port.
    PublicOr(Vec<String>),
}

impl Default for PoolOptions {
    /// For an address that an operator wrote: no limit of requests, connections to any address, kept for 90 seconds.
    fn default() -> Self {
        Self {
            max_idle: 256,
            max_in_flight: Semaphore::MAX_PERMITS,
            permit_timeout: Duration::MAX,
            max_age: Duration::from_secs(3600),
            connect_timeout: Duration::from_secs(10),
            write_timeout: Duration::MAX,
            idle_timeout: Some(Duration::from_secs(90)),
            tcp_keepalive: Duration::from_secs(15),
            addresses: Addresses::Any,
            ca_file: None,
            proxy: None,
        }
    }
}

impl PoolOptions {
    /// Whether the file with certificates can be read.
    ///
    /// # Errors
    /// Why not.
    pub fn check_ca_file(&self) -> Result<(), String> {
        self.ca_file.as_deref().map_or(Ok(()), |path| tls::certificates(path).map(|_| ()))
    }
}

/// The pools of all services. Cheap to clone; clones are the same. The default finds hosts with the system resolver.
#[derive(Clone)]
pub struct Pools(Arc<Inner>);

struct Inner {
    lookups: Arc<Lookups>,
    pools: WeakMap<(Origin, PoolOptions), Pool>,
    permits: WeakMap<(Origin, usize), Semaphore>,
}

impl Pools {
    /// Pools of hosts that this resolver finds.
    pub fn resolving(resolver: impl Resolve) -> Self {
        let (pools, permits) = (WeakMap::default(), WeakMap::default());
        Self(Arc::new(Inner { lookups: Lookups::new(resolver), pools, permits }))
    }

    /// The connections to a service.
    #[must_use]
    pub fn pool(&self, origin: &Origin, options: &PoolOptions) -> Arc<Pool> {
        let limit = options.max_in_flight.min(Semaphore::MAX_PERMITS);
        let permits = self.0.permits.get_or_insert_with((origin.clone(), limit), || Semaphore::new(limit));
        self.0.pools.get_or_insert_with((origin.clone(), options.clone()), || {
            Pool::new(origin.clone(), options.clone(), permits, self.0.lookups.clone())
        })
    }
}

impl Default for Pools {
    fn default() -> Self {
        Self::resolving(SystemResolver)
    }
}

impl fmt::Debug for Pools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pools")
    }
}

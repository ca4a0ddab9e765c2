//! Registry of connection pools, shared by callers with the same origin and options.
//!
//! In: an origin and the options for its connections. Out: its [`Pool`]. The registry holds weak references: a pool lives as long as a
//! caller holds it.

use std::{fmt, sync::Arc};

use tokio::sync::Semaphore;

use crate::{
    dns::{Lookups, Resolve, SystemResolver},
    options::PoolOptions,
    origin::Origin,
    pool::Pool,
    weak_map::WeakMap,
};

/// The pools of all services. Cheap to clone; clones share the pools. The default uses the system resolver.
#[derive(Clone)]
pub struct Pools(Arc<Inner>);

struct Inner {
    lookups: Arc<Lookups>,
    pools: WeakMap<(Origin, PoolOptions), Pool>,
    permits: WeakMap<(Origin, usize), Semaphore>,
}

impl Pools {
    /// A registry whose pools use this resolver.
    pub fn with_resolver(resolver: impl Resolve) -> Self {
        let (pools, permits) = (WeakMap::default(), WeakMap::default());
        Self(Arc::new(Inner { lookups: Lookups::new(resolver), pools, permits }))
    }

    /// The pool of a service; created on first use.
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
        Self::with_resolver(SystemResolver)
    }
}

impl fmt::Debug for Pools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pools")
    }
}

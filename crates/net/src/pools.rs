//! Connection pools by service, shared by everyone who wants the same options.
//!
//! In: an origin and the options for its connections. Out: its [`Pool`]. A pool lives for as long as somebody holds it; this registry
//! only finds it again.

use std::{fmt, sync::Arc};

use tokio::sync::Semaphore;

use crate::{
    dns::{Lookups, Resolve, SystemResolver},
    options::PoolOptions,
    origin::Origin,
    pool::Pool,
    weak_map::WeakMap,
};

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
    pub fn with_resolver(resolver: impl Resolve) -> Self {
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
        Self::with_resolver(SystemResolver)
    }
}

impl fmt::Debug for Pools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pools")
    }
}

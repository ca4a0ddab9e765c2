//! Connections to services, shared by all tools that use the same one.
//!
//! In: where a request goes and how its owner wants to be connected. Out: a connection that is ready, with the right to use it.
//! `names` finds hosts, `dial` makes connections, `line` watches their bytes, `pool` keeps them and says how many requests run at once.

mod dial;
mod line;
mod names;
mod pool;
mod tls;

use std::{
    collections::HashMap,
    fmt, io,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::{Arc, LazyLock, Mutex, PoisonError, Weak},
    time::Duration,
};

use tokio::sync::Semaphore;
use toolhub_core::{BoxFuture, ConnectionStateConfig};

pub(crate) use dial::DialError;
pub(crate) use line::Line;
pub(crate) use pool::{Leased, Pool, Turn};

use names::Names;

use super::{
    credentials::{TokenKey, Tokens},
    origin::Origin,
};

/// Finds the addresses of hosts. The system's way is used where nothing else is said.
///
/// An implementation need not mind which addresses it finds: each is looked at before it is connected to. It is asked once for all
/// calls that need a host at the same time, and should come to an end by itself: it is asked on when their time is up.
pub trait Resolve: Send + Sync + 'static {
    /// The addresses of a host, best first.
    fn resolve<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>>;
}

/// The connections to all services, and how many requests each bears. Cheap to clone; clones are the same.
///
/// The default is one for the whole process. A connection is kept for as long as a tool uses its service.
#[derive(Clone)]
pub struct Upstreams(Arc<Inner>);

struct Inner {
    names: Arc<Names>,
    pools: Mutex<HashMap<(Origin, Wiring), Weak<Pool>>>,
    gates: Mutex<HashMap<(Origin, usize), Weak<Semaphore>>>,
    tokens: Mutex<HashMap<TokenKey, Weak<Tokens>>>,
}

/// How an owner wants to be connected to a service. Tools that want the same share connections.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Wiring {
    pub(crate) pool_size: usize,
    pub(crate) most: usize,
    pub(crate) pool_timeout: Duration,
    pub(crate) recycle: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) write_timeout: Duration,
    /// How long an unused connection is kept; `None` where none is.
    pub(crate) keep: Option<Duration>,
    pub(crate) probe: Duration,
    /// Hosts that may be reached although their addresses are special ones.
    pub(crate) allow_hosts: Vec<String>,
    pub(crate) ca_file: Option<PathBuf>,
}

impl Wiring {
    pub(crate) fn new(config: &ConnectionStateConfig, allow_hosts: &[String], ca_file: Option<&Path>) -> Self {
        Self {
            pool_size: config.pool_size,
            most: config.pool_size.saturating_add(config.max_overflow).min(Semaphore::MAX_PERMITS),
            pool_timeout: config.pool_timeout,
            recycle: config.pool_recycle,
            connect_timeout: config.connect_timeout,
            write_timeout: config.write_timeout,
            keep: config.keep_alive.then_some(config.keep_alive_timeout),
            probe: config.keep_alive_interval,
            allow_hosts: allow_hosts.to_vec(),
            ca_file: ca_file.map(Path::to_owned),
        }
    }

    /// Whether the file with certificates can be read.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn trust(&self) -> Result<(), String> {
        self.ca_file.as_deref().map_or(Ok(()), |path| tls::certificates(path).map(|_| ()))
    }
}

impl Upstreams {
    /// Connections apart from those of the rest of the process.
    #[must_use]
    pub fn new() -> Self {
        Self::resolving(System)
    }

    /// Connections apart from those of the rest of the process, to hosts that are found in another way.
    pub fn resolving(resolver: impl Resolve) -> Self {
        let (pools, gates, tokens) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self(Arc::new(Inner { names: Names::new(resolver), pools, gates, tokens }))
    }

    /// The connections to a service.
    pub(crate) fn pool(&self, origin: &Origin, wiring: &Wiring) -> Arc<Pool> {
        let gate = shared(&self.0.gates, (origin.clone(), wiring.most), || Semaphore::new(wiring.most));
        shared(&self.0.pools, (origin.clone(), wiring.clone()), || {
            Pool::new(origin.clone(), wiring.clone(), gate, self.0.names.clone())
        })
    }

    /// The tokens that are fetched with the same words.
    pub(crate) fn tokens(&self, key: &TokenKey) -> Arc<Tokens> {
        shared(&self.0.tokens, key.clone(), Tokens::default)
    }
}

/// What others have already, or a new one. What nobody has any more is forgotten on the way.
fn shared<K: Eq + std::hash::Hash, V>(map: &Mutex<HashMap<K, Weak<V>>>, key: K, make: impl FnOnce() -> V) -> Arc<V> {
    let mut map = map.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(there) = map.get(&key).and_then(Weak::upgrade) {
        return there;
    }
    map.retain(|_, weak| weak.strong_count() > 0);
    let made = Arc::new(make());
    map.insert(key, Arc::downgrade(&made));
    made
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

/// The system's own way to find addresses.
struct System;

impl Resolve for System {
    fn resolve<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async move { Ok(tokio::net::lookup_host((host, 0)).await?.map(|address| address.ip()).collect()) })
    }
}

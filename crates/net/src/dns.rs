//! DNS lookups, deduplicated: concurrent requests for the same host share one lookup.
//!
//! In: a host name. Out: its addresses, as the resolver returns them. A hanging resolver is called once per host, however many calls
//! start and end meanwhile, and for a bounded number of hosts concurrently: the system resolver blocks a thread while it hangs.
//! Nothing is cached: only requests that are already waiting get a result.

use std::{
    collections::HashMap,
    io,
    net::IpAddr,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::{Semaphore, watch};

/// Maximum number of concurrent lookups.
const MAX_CONCURRENT: usize = 32;
/// A lookup fails after this time, and the next call starts another. Longer than the system resolver's own timeout.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A boxed future, for traits that are used as `dyn`.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Finds the addresses of hosts. The default is the system resolver.
///
/// An implementation need not filter addresses: the address guard checks each one before connecting. Concurrent calls for the same host
/// share one lookup, which should time out by itself: it is not cancelled when those calls time out.
pub trait Resolve: Send + Sync + 'static {
    /// The addresses of a host, best first.
    fn resolve<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>>;
}

/// The system resolver.
pub(crate) struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async move { Ok(tokio::net::lookup_host((host, 0)).await?.map(|address| address.ip()).collect()) })
    }
}

/// The result of a lookup: addresses or the reason of the failure. `None` while it is running.
type LookupResult = Option<Result<Arc<[IpAddr]>, Arc<str>>>;

/// The lookups in progress.
pub(crate) struct Lookups {
    resolver: Arc<dyn Resolve>,
    pending: Mutex<HashMap<String, watch::Receiver<LookupResult>>>,
    permits: Semaphore,
}

impl Lookups {
    pub(crate) fn new(resolver: impl Resolve) -> Arc<Self> {
        let (pending, permits) = (Mutex::default(), Semaphore::new(MAX_CONCURRENT));
        Arc::new(Self { resolver: Arc::new(resolver), pending, permits })
    }

    /// The addresses of a host. Cancel-safe; the lookup continues for other waiters.
    ///
    /// # Errors
    /// The reason why the lookup failed.
    pub(crate) async fn addresses(self: &Arc<Self>, host: &str) -> Result<Arc<[IpAddr]>, Arc<str>> {
        let mut receiver = self.join(host);
        let result = receiver.wait_for(Option::is_some).await;
        result.ok().and_then(|result| result.clone()).unwrap_or_else(|| Err("the DNS lookup was aborted".into()))
    }

    /// Joins the lookup that runs for a host, or starts one.
    fn join(self: &Arc<Self>, host: &str) -> watch::Receiver<LookupResult> {
        let mut pending = self.pending();
        if let Some(receiver) = pending.get(host) {
            return receiver.clone();
        }
        let (sender, receiver) = watch::channel(None);
        pending.insert(host.to_owned(), receiver.clone());
        let lookup = Lookup { lookups: self.clone(), host: host.to_owned() };
        tokio::spawn(async move {
            let result = lookup.run().await;
            // Remove it from the map first, so that later calls start a new lookup: addresses may change.
            drop(lookup);
            let _ = sender.send(Some(result));
        });
        receiver
    }

    fn pending(&self) -> MutexGuard<'_, HashMap<String, watch::Receiver<LookupResult>>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Guard that removes the pending entry on drop, also if the resolver panics or the runtime shuts down.
struct Lookup {
    lookups: Arc<Lookups>,
    host: String,
}

impl Lookup {
    async fn run(&self) -> Result<Arc<[IpAddr]>, Arc<str>> {
        let _permit = self.lookups.permits.acquire().await;
        match tokio::time::timeout(TIMEOUT, self.lookups.resolver.resolve(&self.host)).await {
            Ok(Ok(found)) => Ok(found.into()),
            Ok(Err(error)) => Err(error.to_string().into()),
            Err(_) => Err(format!("the DNS lookup timed out after {TIMEOUT:?}").into()),
        }
    }
}

impl Drop for Lookup {
    fn drop(&mut self) {
        self.lookups.pending().remove(&self.host);
    }
}

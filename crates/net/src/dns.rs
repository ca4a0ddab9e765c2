//! DNS lookups, shared by everyone who asks for the same host at the same time.
//!
//! In: the name of a host. Out: its addresses, as the resolver returns them. A resolver that hangs is asked once per host, however many
//! calls come and go meanwhile, and for a bounded number of hosts at once: the system resolver blocks a thread for as long as it hangs.
//! Nothing is cached: an answer goes to those who wait for it.

use std::{
    collections::HashMap,
    io,
    net::IpAddr,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::{Semaphore, watch};

/// How many hosts are looked up at once.
const MAX_CONCURRENT: usize = 32;
/// After this time a lookup is given up, and the next call starts another. Longer than the system resolver tries.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A boxed future, for traits that are used as `dyn`.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Finds the addresses of hosts. The default is the system resolver.
///
/// An implementation need not check which addresses it finds: the guard looks at each before it is connected to. It is asked once for all
/// calls that need a host at the same time, and should end by itself: it is not dropped when the time of those calls is up.
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

/// What a resolver answered: addresses, or why there are none. `None` while it is asked.
type LookupResult = Option<Result<Arc<[IpAddr]>, Arc<str>>>;

/// The lookups that are under way.
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

    /// The addresses of a host. Cancel-safe; the lookup goes on for others.
    ///
    /// # Errors
    /// Why there are none.
    pub(crate) async fn addresses(self: &Arc<Self>, host: &str) -> Result<Arc<[IpAddr]>, Arc<str>> {
        let mut answer = self.join(host);
        let told = answer.wait_for(Option::is_some).await;
        told.ok().and_then(|told| told.clone()).unwrap_or_else(|| Err("the DNS lookup was aborted".into()))
    }

    /// Joins the lookup that runs for a host, or starts one.
    fn join(self: &Arc<Self>, host: &str) -> watch::Receiver<LookupResult> {
        let mut pending = self.pending();
        if let Some(answer) = pending.get(host) {
            return answer.clone();
        }
        let (sender, answer) = watch::channel(None);
        pending.insert(host.to_owned(), answer.clone());
        let lookup = Lookup { lookups: self.clone(), host: host.to_owned() };
        tokio::spawn(async move {
            let found = lookup.run().await;
            // Later calls start a lookup of their own: names may move.
            drop(lookup);
            let _ = sender.send(Some(found));
        });
        answer
    }

    fn pending(&self) -> MutexGuard<'_, HashMap<String, watch::Receiver<LookupResult>>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lookup that is pending until this is dropped: also where a resolver panics, or the runtime ends.
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

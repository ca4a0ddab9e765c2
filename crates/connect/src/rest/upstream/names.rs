//! Finds the addresses of hosts, once for all who ask at the same time.
//!
//! In: the name of a host. Out: its addresses, as the resolver tells them. A resolver that hangs is asked once for each host, however many
//! calls come and go meanwhile, and for so many hosts at once: the system's way holds a thread for as long as it hangs, and others
//! need threads too. What was found is told to whoever waits, and kept for nobody.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::{Semaphore, watch};

use super::Resolve;

/// How many hosts are asked for at once.
const MOST: usize = 32;
/// After so long a resolver is taken not to answer any more, and the next call asks again. Longer than the system's way tries.
const LONGEST: Duration = Duration::from_secs(120);

/// What a resolver says: addresses, or why there are none. Nothing while it is asked.
type Answer = Option<Result<Arc<[IpAddr]>, Arc<str>>>;

/// The way to the addresses of hosts.
pub(crate) struct Names {
    resolver: Arc<dyn Resolve>,
    asked: Mutex<HashMap<String, watch::Receiver<Answer>>>,
    turns: Semaphore,
}

impl Names {
    pub(super) fn new(resolver: impl Resolve) -> Arc<Self> {
        Arc::new(Self { resolver: Arc::new(resolver), asked: Mutex::default(), turns: Semaphore::new(MOST) })
    }

    /// The addresses of a host. May be cut off; the resolver is asked on.
    ///
    /// # Errors
    /// Why there are none.
    pub(super) async fn addresses(self: &Arc<Self>, host: &str) -> Result<Arc<[IpAddr]>, Arc<str>> {
        let mut answer = self.answer(host);
        let told = answer.wait_for(Option::is_some).await;
        told.ok().and_then(|told| told.clone()).unwrap_or_else(|| Err("whoever was asked for it broke off".into()))
    }

    /// Where the answer will be: one that somebody waits for already, or a new one.
    fn answer(self: &Arc<Self>, host: &str) -> watch::Receiver<Answer> {
        let mut asked = self.asked();
        if let Some(answer) = asked.get(host) {
            return answer.clone();
        }
        let (tell, answer) = watch::channel(None);
        asked.insert(host.to_owned(), answer.clone());
        let asking = Asking { names: self.clone(), host: host.to_owned() };
        tokio::spawn(async move {
            let found = asking.found().await;
            // Whoever asks from now on asks anew: names may move.
            drop(asking);
            let _ = tell.send(Some(found));
        });
        answer
    }

    fn asked(&self) -> MutexGuard<'_, HashMap<String, watch::Receiver<Answer>>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A host that is asked for, until this is dropped: also where a resolver panics, or the runtime ends.
struct Asking {
    names: Arc<Names>,
    host: String,
}

impl Asking {
    async fn found(&self) -> Result<Arc<[IpAddr]>, Arc<str>> {
        let _turn = self.names.turns.acquire().await;
        let found = tokio::time::timeout(LONGEST, self.names.resolver.resolve(&self.host)).await;
        match found {
            Ok(Ok(found)) => Ok(found.into()),
            Ok(Err(error)) => Err(error.to_string().into()),
            Err(_) => Err(format!("nobody answered within {LONGEST:?}").into()),
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.names.asked().remove(&self.host);
    }
}

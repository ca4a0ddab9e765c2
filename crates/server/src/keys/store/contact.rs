//! When the store last said something about the keys, and what follows from that.
//!
//! In: the ends of requests to the store. Out: whether cached keys may be believed. Nothing is asked while no key is used.

use std::{
    sync::{
        Mutex as StdMutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{sync::Mutex, time::Instant};
use toolhub_core::backend::StoreError;

/// A store that has answered within this time is not asked for the use of a key.
const RECENT: Duration = Duration::from_secs(10);
/// How long keys are believed after the store has last answered.
const BELIEVED: Duration = Duration::from_secs(60);
/// The longest wait for the answer of a store.
const TIMEOUT: Duration = Duration::from_secs(5);
/// After a failure, requests in this time are refused without asking again.
const FAILURE_TIME: Duration = Duration::from_secs(1);

/// The contact with the store.
#[derive(Default)]
pub(super) struct Contact {
    times: StdMutex<Times>,
    /// Whether keys were changed that could not be read.
    is_incomplete: AtomicBool,
    /// Held while the store is asked.
    asking: Mutex<()>,
}

#[derive(Default, Clone, Copy)]
struct Times {
    answered: Option<Instant>,
    failed: Option<Instant>,
}

impl Contact {
    /// All keys were read.
    pub(super) fn reloaded(&self) {
        self.is_incomplete.store(false, Relaxed);
        self.times().answered = Some(Instant::now());
    }

    /// Keys were changed and could not be read.
    pub(super) fn reload_failed(&self) {
        self.is_incomplete.store(true, Relaxed);
    }

    /// Fails while there may be keys that are not known here.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    pub(super) fn check_complete(&self) -> Result<(), StoreError> {
        if self.is_incomplete.load(Relaxed) { Err(unavailable()) } else { Ok(()) }
    }

    /// Whether the store has answered just now.
    pub(super) fn is_recent(&self) -> bool {
        is_within(self.times().answered, RECENT)
    }

    /// Whether the store has answered so short a time ago that keys may be believed.
    pub(super) fn is_believable(&self) -> bool {
        is_within(self.times().answered, BELIEVED)
    }

    /// Whether the store is being asked.
    pub(super) fn is_asking(&self) -> bool {
        self.asking.try_lock().is_err()
    }

    /// Asks the store, unless another request has just done so.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(super) async fn renew(&self, ask: impl Future<Output = Result<(), StoreError>>) -> Result<(), StoreError> {
        let _guard = self.asking.lock().await;
        let times = *self.times();
        if is_within(times.answered, RECENT) {
            return Ok(());
        }
        if is_within(times.failed, FAILURE_TIME) {
            return Err(unavailable());
        }
        let answer = tokio::time::timeout(TIMEOUT, ask).await.unwrap_or_else(|_| Err(unavailable()));
        match answer {
            Ok(()) => self.times().answered = Some(Instant::now()),
            Err(_) => self.times().failed = Some(Instant::now()),
        }
        answer
    }

    fn times(&self) -> MutexGuard<'_, Times> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_within(time: Option<Instant>, duration: Duration) -> bool {
    time.is_some_and(|time| time.elapsed() < duration)
}

fn unavailable() -> StoreError {
    StoreError::Unavailable("the API keys cannot be read".into())
}

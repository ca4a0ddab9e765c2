//! The runs that are driven on one hub, by whatever service there.
//!
//! In: who wants to drive a thread's run. Out: a place, of which a thread has one; whoever holds it drives alone. A place is given back
//! whatever happens, before the end of its run is told: whoever hears of the end may begin the next one.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::watch;
use toolhub_core::{
    CancellationToken,
    ids::{RunId, Tenant, ThreadKey},
};

use crate::record::RunRecord;

/// The runs that are driven, by thread.
#[derive(Clone, Default)]
pub(crate) struct ActiveRuns(Arc<Mutex<HashMap<ThreadKey, Option<ActiveRun>>>>);

/// A run that is driven here.
#[derive(Clone)]
pub(crate) struct ActiveRun {
    pub(crate) run: RunId,
    pub(crate) record_rx: watch::Receiver<RunRecord>,
    pub(crate) cancel: CancellationToken,
}

/// The right to drive the run of a thread.
pub(crate) struct DrivePermit {
    active_runs: ActiveRuns,
    thread_key: ThreadKey,
}

impl ActiveRuns {
    /// Takes the place of a thread, if nobody has it.
    pub(crate) fn try_acquire(&self, thread_key: &ThreadKey) -> Option<DrivePermit> {
        let mut places = self.lock();
        if places.contains_key(thread_key) {
            return None;
        }
        places.insert(thread_key.clone(), None);
        Some(DrivePermit { active_runs: self.clone(), thread_key: thread_key.clone() })
    }

    /// The run of a thread that is driven here.
    pub(crate) fn get(&self, thread_key: &ThreadKey) -> Option<ActiveRun> {
        self.lock().get(thread_key).cloned().flatten()
    }

    /// A run that is driven here, by its id.
    pub(crate) fn find(&self, tenant: &Tenant, run: RunId) -> Option<ActiveRun> {
        let places = self.lock();
        let mut driven =
            places.iter().filter(|(thread_key, _)| thread_key.tenant == *tenant).filter_map(|(_, it)| it.as_ref());
        driven.find(|it| it.run == run).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ThreadKey, Option<ActiveRun>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DrivePermit {
    /// Says which run is driven.
    pub(crate) fn register(&self, driven: ActiveRun) {
        self.active_runs.lock().insert(self.thread_key.clone(), Some(driven));
    }
}

impl Drop for DrivePermit {
    fn drop(&mut self) {
        self.active_runs.lock().remove(&self.thread_key);
    }
}

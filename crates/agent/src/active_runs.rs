//! The runs that are driven on one hub, at most one per thread, shared by all agent services of that hub.
//!
//! In: a thread. Out: a drive permit, if no other driver has it. The permit is released on drop, and before the end of
//! its run is emitted, because a subscriber of that event may start the next run.

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
    /// Takes the drive permit of a thread, if it is free.
    pub(crate) fn try_acquire(&self, thread_key: &ThreadKey) -> Option<DrivePermit> {
        let mut runs = self.lock();
        if runs.contains_key(thread_key) {
            return None;
        }
        runs.insert(thread_key.clone(), None);
        Some(DrivePermit { active_runs: self.clone(), thread_key: thread_key.clone() })
    }

    /// The run of a thread that is driven here.
    pub(crate) fn get(&self, thread_key: &ThreadKey) -> Option<ActiveRun> {
        self.lock().get(thread_key).cloned().flatten()
    }

    /// Whether the drive permit of a thread is taken, and its holder has no run registered yet.
    pub(crate) fn is_starting(&self, thread_key: &ThreadKey) -> bool {
        self.lock().get(thread_key).is_some_and(Option::is_none)
    }

    /// A run that is driven here, by its id.
    pub(crate) fn find(&self, tenant: &Tenant, run: RunId) -> Option<ActiveRun> {
        let runs = self.lock();
        let mut active = runs
            .iter()
            .filter(|(thread_key, _)| thread_key.tenant == *tenant)
            .filter_map(|(_, active)| active.as_ref());
        active.find(|active| active.run == run).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ThreadKey, Option<ActiveRun>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DrivePermit {
    /// Registers the run that the holder drives.
    pub(crate) fn register(&self, active: ActiveRun) {
        self.active_runs.lock().insert(self.thread_key.clone(), Some(active));
    }
}

impl Drop for DrivePermit {
    fn drop(&mut self) {
        self.active_runs.lock().remove(&self.thread_key);
    }
}

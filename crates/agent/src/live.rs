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
    ids::{RunId, Tenant},
};

use crate::{record::RunRecord, shelf::Owner};

/// The runs that are driven, by thread.
#[derive(Clone, Default)]
pub(crate) struct Live(Arc<Mutex<HashMap<Owner, Option<Driven>>>>);

/// A run that is driven here.
#[derive(Clone)]
pub(crate) struct Driven {
    pub(crate) run: RunId,
    pub(crate) told: watch::Receiver<RunRecord>,
    pub(crate) cancel: CancellationToken,
}

/// The right to drive the run of a thread.
pub(crate) struct Place {
    live: Live,
    owner: Owner,
}

impl Live {
    /// Takes the place of a thread, if nobody has it.
    pub(crate) fn take(&self, owner: &Owner) -> Option<Place> {
        let mut places = self.lock();
        if places.contains_key(owner) {
            return None;
        }
        places.insert(owner.clone(), None);
        Some(Place { live: self.clone(), owner: owner.clone() })
    }

    /// The run of a thread that is driven here.
    pub(crate) fn of(&self, owner: &Owner) -> Option<Driven> {
        self.lock().get(owner).cloned().flatten()
    }

    /// A run that is driven here, by its id.
    pub(crate) fn find(&self, tenant: &Tenant, run: RunId) -> Option<Driven> {
        let places = self.lock();
        let mut driven = places.iter().filter(|(owner, _)| owner.tenant == *tenant).filter_map(|(_, it)| it.as_ref());
        driven.find(|it| it.run == run).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Owner, Option<Driven>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Says which run is driven.
    pub(crate) fn drives(&self, driven: Driven) {
        self.live.lock().insert(self.owner.clone(), Some(driven));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.live.lock().remove(&self.owner);
    }
}

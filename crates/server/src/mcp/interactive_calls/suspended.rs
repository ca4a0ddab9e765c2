//! The calls that wait for an answer of their caller, in memory.
//!
//! In: a call that asked its caller. Out: the same call for the request that brings the answers, once and for its owner only. A call
//! whose answers do not come in time goes on as if its caller had declined.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use smol_str::{SmolStr, format_smolstr};
use toolhub_core::{
    CancellationToken,
    count_by_key::{CountByKey, is_full},
    ids::{Caller, Tenant},
};

use super::InteractiveCall;

/// How many calls may be suspended; each tenant has a guaranteed share on top.
const MAX_SUSPENDED: usize = 1_000;

/// Who made a call. For all others it does not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallOwner {
    pub(crate) tenant: Tenant,
    pub(crate) caller: Caller,
}

/// The call could not be suspended.
#[derive(Debug, thiserror::Error)]
#[error("too many calls wait for an answer of their caller")]
pub(crate) struct TooManySuspended;

/// Why a call cannot be resumed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ResumeError {
    /// It was resumed before, its time is over, the server was restarted, or it belongs to another caller.
    #[error("no call waits for this answer; start again")]
    NotFound,
}

/// The suspended calls of a server.
#[derive(Default)]
pub(crate) struct SuspendedCalls {
    table: Mutex<SuspendedTable>,
    /// After it no answer can come: the calls go on at once, and do not hold up the shutdown.
    stopping: CancellationToken,
}

#[derive(Default)]
struct SuspendedTable {
    by_id: HashMap<SmolStr, SuspendedCall>,
    by_tenant: CountByKey<Tenant>,
}

struct SuspendedCall {
    owner: CallOwner,
    call: InteractiveCall,
}

impl SuspendedCalls {
    pub(crate) fn new(stopping: &CancellationToken) -> Arc<Self> {
        Arc::new(Self { table: Mutex::default(), stopping: stopping.clone() })
    }

    /// Keeps a call until it is resumed or the time for its answers is over. Returns the id to resume it by.
    ///
    /// # Errors
    /// When there are too many. The requests of the call are declined then, and it goes on.
    pub(crate) fn park(self: &Arc<Self>, owner: CallOwner, call: InteractiveCall) -> Result<SmolStr, TooManySuspended> {
        let id = format_smolstr!("{:032x}", fastrand::u128(..));
        let until = call.answer_until();
        let refused = self.lock().insert(id.clone(), SuspendedCall { owner, call });
        if let Some(call) = refused {
            tokio::spawn(call.finish_declined());
            return Err(TooManySuspended);
        }
        let (calls, expiring, stopping) = (Arc::downgrade(self), id.clone(), self.stopping.clone());
        tokio::spawn(async move {
            stopping.run_until_cancelled(tokio::time::sleep_until(until)).await;
            let expired = calls.upgrade().and_then(|calls| calls.lock().remove(&expiring));
            if let Some(call) = expired {
                call.finish_declined().await;
            }
        });
        Ok(id)
    }

    /// Takes a call, to give it its answers.
    ///
    /// # Errors
    /// When there is no such call of this owner.
    pub(crate) fn take(&self, id: &str, owner: &CallOwner) -> Result<InteractiveCall, ResumeError> {
        self.lock().take(id, owner).ok_or(ResumeError::NotFound)
    }

    /// The number of suspended calls.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.lock().by_id.len()
    }

    fn lock(&self) -> MutexGuard<'_, SuspendedTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SuspendedTable {
    /// Adds a call; returns it if there are too many.
    fn insert(&mut self, id: SmolStr, suspended: SuspendedCall) -> Option<InteractiveCall> {
        let tenant = &suspended.owner.tenant;
        if is_full(MAX_SUSPENDED, self.by_tenant.total(), self.by_tenant.of(tenant)) {
            return Some(suspended.call);
        }
        self.by_tenant.add(tenant, 1);
        self.by_id.insert(id, suspended);
        None
    }

    fn take(&mut self, id: &str, owner: &CallOwner) -> Option<InteractiveCall> {
        let is_owned = self.by_id.get(id).is_some_and(|suspended| suspended.owner == *owner);
        is_owned.then(|| self.remove(id)).flatten()
    }

    fn remove(&mut self, id: &str) -> Option<InteractiveCall> {
        let suspended = self.by_id.remove(id)?;
        self.by_tenant.subtract(&suspended.owner.tenant, 1);
        Some(suspended.call)
    }
}

//! The calls that wait for an answer of their caller, in memory.
//!
//! In: a call that asked its caller. Out: the same call for the request that brings the answers, once and only if it repeats the call. A
//! call whose answers do not come in time goes on as if its caller had declined. An id names this node, so that the others
//! know whom to ask.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use smol_str::{SmolStr, format_smolstr};
use tokio::task::AbortHandle;
use toolhub_core::{
    CancellationToken,
    count_by_key::{CountByKey, is_full},
    digest,
    ids::{Caller, Tenant, ThreadId},
};

use super::InteractiveCall;
use crate::{keys::random_text, scope::Principal};

/// How many calls may be suspended; each tenant has a guaranteed share on top.
const MAX_SUSPENDED: usize = 1_000;
/// Number of letters and digits of an id: more than 2^128 ids.
const ID_LEN: usize = 22;
/// Who made which call. For all other requests a suspended call does not exist.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ResumeKey {
    tenant: Tenant,
    caller: Caller,
    /// The thread that the client names, the tool, and a digest of the arguments.
    call: String,
}

impl ResumeKey {
    pub(crate) fn new(principal: &Principal, thread: Option<&ThreadId>, tool: &str, arguments: &Value) -> Self {
        let call = json!([thread, tool, digest::hash_json(arguments)]).to_string();
        Self { tenant: principal.tenant.clone(), caller: principal.caller.clone(), call }
    }
}

/// Why a call cannot be resumed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ResumeError {
    /// It was resumed before, its time is over, or it is another call or that of another caller.
    #[error("no such call waits for this answer; start again, without `requestState`")]
    NotFound,
    /// The call waits on another node, or waited there until it stopped.
    #[error(
        "the call waited on a node of this hub that is gone, and was declined or interrupted there; look whether it took effect, and \
         start again, without `requestState`"
    )]
    OtherNode(SmolStr),
}

/// The suspended calls of a server.
pub(crate) struct SuspendedCalls {
    /// The id of this node. Ids of calls begin with it.
    node: SmolStr,
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
    key: ResumeKey,
    call: InteractiveCall,
    /// The task that waits for the end of the time for its answers.
    timer: AbortHandle,
}

impl SuspendedCalls {
    pub(crate) fn new(node: &str, stopping: &CancellationToken) -> Arc<Self> {
        Arc::new(Self { node: node.into(), table: Mutex::default(), stopping: stopping.clone() })
    }

    /// Keeps a call until it is resumed or the time for its answers is over. Returns the id to resume it by.
    ///
    /// # Errors
    /// The call, if there are too many, or the operating system has no random bytes for an id.
    pub(crate) fn park(
        self: &Arc<Self>,
        key: ResumeKey,
        call: InteractiveCall,
    ) -> Result<SmolStr, Box<InteractiveCall>> {
        let Ok(secret) = random_text(ID_LEN) else { return Err(Box::new(call)) };
        let id = format_smolstr!("{}-{secret}", self.node);
        let until = call.answer_until();
        let mut table = self.lock();
        if is_full(MAX_SUSPENDED, table.by_tenant.total(), table.by_tenant.of(&key.tenant)) {
            return Err(Box::new(call));
        }
        let (calls, expiring, stopping) = (Arc::downgrade(self), id.clone(), self.stopping.clone());
        let timer = tokio::spawn(async move {
            stopping.run_until_cancelled(tokio::time::sleep_until(until)).await;
            let expired = calls.upgrade().and_then(|calls| calls.lock().remove(&expiring));
            if let Some(expired) = expired {
                expired.call.finish_declined().await;
            }
        });
        table.by_tenant.add(&key.tenant, 1);
        table.by_id.insert(id.clone(), SuspendedCall { key, call, timer: timer.abort_handle() });
        Ok(id)
    }

    /// Takes a call, to give it its answers.
    ///
    /// # Errors
    /// When there is no such call with this key.
    pub(crate) fn take(&self, id: &str, key: &ResumeKey) -> Result<InteractiveCall, ResumeError> {
        if let Some((node, _)) =
            id.split_once('-').filter(|(node, _)| node.len() == self.node.len() && *node != self.node)
        {
            return Err(ResumeError::OtherNode(node.into()));
        }
        let mut table = self.lock();
        let is_same = table.by_id.get(id).is_some_and(|suspended| suspended.key == *key);
        let taken = is_same.then(|| table.remove(id)).flatten().ok_or(ResumeError::NotFound)?;
        taken.timer.abort();
        Ok(taken.call)
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
    fn remove(&mut self, id: &str) -> Option<SuspendedCall> {
        let suspended = self.by_id.remove(id)?;
        self.by_tenant.subtract(&suspended.key.tenant, 1);
        Some(suspended)
    }
}

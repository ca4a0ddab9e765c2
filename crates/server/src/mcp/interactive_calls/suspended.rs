//! The calls that wait for an answer of their caller, in memory.
//!
//! In: a call that asked its caller. Out: the same call for the request that brings the answers, once and only if it repeats the call. A
//! call whose answers do not come in time goes on as if its caller had declined. The state that a client keeps is sealed with the key of the
//! store: any node can open it, and learns from it which node to ask.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use smol_str::SmolStr;
use tokio::task::AbortHandle;
use toolhub_core::{
    CancellationToken, Sealer, ToolHub,
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
/// What states are sealed for. Whose they are is checked where the call waits.
const BINDING: &str = "mcp suspended call";

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
    /// The id of this node.
    node: SmolStr,
    sealer: Sealer,
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
    pub(crate) fn new(hub: &ToolHub, stopping: &CancellationToken) -> Arc<Self> {
        let (node, sealer) = (hub.node_id().into(), hub.sealer().clone());
        Arc::new(Self { node, sealer, table: Mutex::default(), stopping: stopping.clone() })
    }

    /// Keeps a call until it is resumed or the time for its answers is over. Returns the state to resume it by.
    ///
    /// # Errors
    /// The call, if there are too many, or the operating system has no random bytes for an id.
    pub(crate) fn park(
        self: &Arc<Self>,
        key: ResumeKey,
        call: InteractiveCall,
    ) -> Result<String, Box<InteractiveCall>> {
        let Ok(id) = random_text(ID_LEN).map(SmolStr::from) else { return Err(Box::new(call)) };
        let state = self.sealer.seal_token(&json!([self.node, id]).to_string(), BINDING);
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
        Ok(state)
    }

    /// Whether a text is the state of a suspended call, of any node.
    pub(crate) fn is_state(&self, text: &str) -> bool {
        self.open(text).is_some()
    }

    /// The node where the call of a state waits, and its id there.
    fn open(&self, state: &str) -> Option<(SmolStr, SmolStr)> {
        serde_json::from_str(&self.sealer.open_token(state, BINDING)?).ok()
    }

    /// Takes a call, to give it its answers.
    ///
    /// # Errors
    /// When there is no such call with this key.
    pub(crate) fn take(&self, state: &str, key: &ResumeKey) -> Result<InteractiveCall, ResumeError> {
        let (node, id) = self.open(state).ok_or(ResumeError::NotFound)?;
        if node != self.node {
            return Err(ResumeError::OtherNode(node));
        }
        let mut table = self.lock();
        let is_same = table.by_id.get(&id).is_some_and(|suspended| suspended.key == *key);
        let taken = is_same.then(|| table.remove(&id)).flatten().ok_or(ResumeError::NotFound)?;
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

//! Acts on the requests of other nodes that concern calls of this node, and asks other nodes on behalf of callers here.
//!
//! In: request rows as they appear. Out: cancelled calls, accepted results, and the answers to them. `requests.rs` beside the hub holds
//! the rows.

use std::{
    pin::pin,
    sync::{Arc, Weak},
    time::Duration,
};

use futures_util::{
    StreamExt,
    future::{Either, select},
};
use serde_json::Value;
use tokio::sync::watch;

use super::{ToolHub, node_requests};
use crate::{
    call::ReportError,
    engine::Engine,
    journal::{CallRecord, CallTracker, OpenCall},
    requests::{self, ReportAnswer, ReportRequest, RequestKind},
    services::Services,
};
use toolhub_storage::{
    backend::{Partition, RowKey, RowVersion, StoreError, WatchEvent, Watcher},
    clock::Instant,
};
use toolhub_types::{
    error::{ErrorKind, ToolError},
    ids::{CallId, Tenant, ThreadId},
};

/// Shortest and longest time between two looks for an answer or the end of a call on another node.
pub(super) const POLL_INTERVALS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// How long an answer is awaited after the call has ended.
const ANSWER_GRACE: Duration = Duration::from_secs(5);
/// How long a store that does not answer is asked what became of a reported result.
const STORE_PATIENCE: Duration = Duration::from_secs(15);

/// Acts on requests of other nodes until the hub is dropped. `departures` changes when a node has died or left.
pub(super) async fn watch_requests(mut rows: Watcher, mut departures: watch::Receiver<u64>, hub: Weak<Engine>) {
    loop {
        let change = {
            let departed = pin!(departures.changed());
            match select(rows.next(), departed).await {
                Either::Left((None, _)) | Either::Right((Err(_), _)) => return,
                Either::Left((Some(change), _)) => Some(change),
                Either::Right((Ok(()), _)) => None,
            }
        };
        let Some(engine) = hub.upgrade() else { return };
        match change {
            Some(WatchEvent::Row(key, Some(_))) => act(&engine, key).await,
            Some(WatchEvent::Row(key, None)) => engine.node_requests.cancel(&key.id),
            Some(WatchEvent::Lagged) => act_on_all(&engine).await,
            None => {
                // On a task of its own: it reads all requests. Those that it misses expire.
                engine.runtime.clone().spawn(async move {
                    if let Err(error) = node_requests::drop_orphans(&engine).await {
                        tracing::debug!(%error, "requests of nodes that are gone not removed");
                    }
                });
            }
        }
    }
}

/// Acts on all requests, after changes were missed.
async fn act_on_all(engine: &Arc<Engine>) {
    let Services { store, clock, .. } = &*engine.services;
    let keys = loop {
        match requests::all(&**store, engine.nodes.own_id(), clock.now()).await {
            Ok(keys) => break keys,
            Err(error) => tracing::warn!(%error, "requests of other nodes not read after missed changes; retrying"),
        }
        tokio::time::sleep(POLL_INTERVALS.1).await;
    };
    engine.node_requests.retain(|id| keys.iter().any(|key| key.id == id));
    for key in keys {
        act(engine, key).await;
    }
}

/// Acts on a request that has changed, and wakes those on this node that wait for its answer.
async fn act(engine: &Arc<Engine>, key: RowKey) {
    if let Some(RequestKind::Report(_)) = requests::kind_of(&key) {
        engine.node_requests.notify(&key.id);
    }
    act_here(engine, key).await;
}

/// Acts on a request if it is to this node or its call runs here.
async fn act_here(engine: &Arc<Engine>, key: RowKey) {
    let Some(kind) = requests::kind_of(&key) else { return };
    let find = |call| engine.live_calls.find(call).filter(|live| live.head.tenant == key.partition.tenant);
    let (store, now) = (&*engine.services.store, engine.services.clock.now());
    match kind {
        RequestKind::Cancel(call) => {
            let Some(live) = find(call) else { return };
            live.cancel.cancel();
            requests::remove(store, key, now).await;
        }
        RequestKind::Report(call) => {
            let Some(live) = find(call) else { return };
            match requests::load_report(store, &key, now).await {
                Ok(Some((report, version))) if report.answer.is_none() => {
                    // On a task of its own: the answer waits for the end of the call.
                    engine.runtime.spawn(answer_report(engine.clone(), live, key, report, version));
                }
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, %call, "result that was reported on another node not read"),
            }
        }
        RequestKind::Node => node_requests::row_changed(engine, key),
    }
}

/// Takes the reported result and writes what became of it.
async fn answer_report(
    engine: Arc<Engine>,
    live: Arc<CallTracker>,
    key: RowKey,
    mut report: ReportRequest,
    version: RowVersion,
) {
    let hub = ToolHub { engine };
    let answer = match hub.report_here(&live, report.result()).await {
        Ok(()) => ReportAnswer::Accepted,
        Err(ReportError::Early) => ReportAnswer::Early,
        Err(ReportError::NotExternal) => ReportAnswer::NotExternal,
        // It was taken, and the record of the call will say what became of it.
        Err(ReportError::Store(_)) => return,
        Err(ReportError::Late | ReportError::NotFound) => ReportAnswer::Late,
    };
    report.answer = Some(answer);
    let store = &*hub.engine.services.store;
    let put = || requests::put_report(store, key.clone(), &report, Some(version), hub.now());
    if let Err(error) = node_requests::retry(put).await {
        tracing::debug!(%error, "answer to a reported result not written");
    }
}

/// Cancels a call that was resumed here if another node has asked for it before.
pub(super) fn cancel_if_requested(engine: &Arc<Engine>, tenant: &Tenant, open: &OpenCall) {
    if engine.nodes.is_exclusive() {
        return;
    }
    let record = &open.record;
    let key = requests::cancel_key(partition(tenant, record.thread.as_ref(), record.id), record.id);
    let engine = engine.clone();
    let tasks = engine.runtime.clone();
    tasks.spawn(async move {
        if let Ok(true) = requests::exists(&*engine.services.store, &key, engine.services.clock.now()).await {
            act(&engine, key).await;
        }
    });
}

impl ToolHub {
    /// Asks the node that runs the call to cancel it.
    pub(super) async fn cancel_elsewhere(&self, tenant: &Tenant, record: &CallRecord) -> Result<(), StoreError> {
        let key = requests::cancel_key(partition(tenant, record.thread.as_ref(), record.id), record.id);
        requests::put_cancel(&*self.engine.services.store, key, self.now()).await
    }

    /// Ends a call of this node with a reported result.
    pub(super) async fn report_here(
        &self,
        live: &CallTracker,
        result: Result<Value, ToolError>,
    ) -> Result<(), ReportError> {
        live.report(result)?;
        live.wait_ended().await;
        // Another node may have considered this one dead and closed the call as interrupted, or may do so yet.
        let head = &live.head;
        match self.retry_read(|| self.call_record_in(&head.tenant, head.thread.as_ref(), head.id)).await? {
            Some(record) if is_interrupted(&record) => Err(ReportError::Late),
            Some(CallRecord { outcome: None, .. }) if !self.has_exclusive_store() => {
                Err(StoreError::Unavailable("the end of the call could not be stored yet".into()).into())
            }
            _ => Ok(()),
        }
    }

    /// Passes a reported result to the node that runs the call, and waits for its answer. If the answer is lost, the record of the call says
    /// what became of the result.
    pub(super) async fn report_elsewhere(
        &self,
        tenant: &Tenant,
        call: CallId,
        thread: Option<&ThreadId>,
        result: Result<Value, ToolError>,
    ) -> Result<(), ReportError> {
        let store = &*self.engine.services.store;
        let key = requests::report_key(partition(tenant, thread, call), call);
        let report = ReportRequest::new(result);
        let changed = self.engine.node_requests.wait(&key.id);
        self.put_report(&key, &report).await?;
        let (mut delay, longest) = POLL_INTERVALS;
        let mut give_up_at: Option<Instant> = None;
        let answer = loop {
            let _ = tokio::time::timeout(delay, changed.changed()).await;
            delay = (2 * delay).min(longest);
            // The call may go on here.
            act_here(&self.engine, key.clone()).await;
            // The request first: its answer is written after the end of the call.
            let found = self.retry_read(|| requests::load_report(store, &key, self.now())).await?;
            if let Some(answer) = found.as_ref().and_then(|(request, _)| request.answer) {
                break answer;
            }
            let record = self.retry_read(|| self.call_record_in(tenant, thread, call)).await?;
            let Some(record) = record else {
                // It was deleted with its thread.
                break ReportAnswer::Late;
            };
            let Some(outcome) = record.outcome else {
                if found.is_none() {
                    // The store has lost the request.
                    self.put_report(&key, &report).await?;
                }
                continue;
            };
            let now = self.engine.services.clock.instant();
            if found.is_none() || now >= *give_up_at.get_or_insert(now + ANSWER_GRACE) {
                // The answer was lost.
                break if report.is_of(&outcome) { ReportAnswer::Accepted } else { ReportAnswer::Late };
            }
            if outcome.error_kind() == Some(ErrorKind::Interrupted) {
                break ReportAnswer::Late;
            }
        };
        requests::remove(store, key, self.now()).await;
        match answer {
            ReportAnswer::Accepted => Ok(()),
            ReportAnswer::Late => Err(ReportError::Late),
            ReportAnswer::Early => Err(ReportError::Early),
            ReportAnswer::NotExternal => Err(ReportError::NotExternal),
        }
    }

    /// Writes the request about a reported result; again if the answer was lost and the store does not have it.
    async fn put_report(&self, key: &RowKey, report: &ReportRequest) -> Result<(), StoreError> {
        let Services { store, clock, .. } = &*self.engine.services;
        let (give_up_at, mut may_be_written) = (clock.instant() + STORE_PATIENCE, false);
        loop {
            let error = match requests::put_report(&**store, key.clone(), report, None, clock.now()).await {
                Ok(()) => return Ok(()),
                Err(StoreError::Conflict { .. }) if may_be_written => return Ok(()),
                Err(error) => error,
            };
            may_be_written |= matches!(error, StoreError::Unknown(_));
            // Unless it may be written, nothing was asked.
            if !may_be_written || clock.instant() >= give_up_at {
                return Err(error);
            }
            if let Ok(true) = requests::exists(&**store, key, clock.now()).await {
                return Ok(());
            }
            tokio::time::sleep(POLL_INTERVALS.1).await;
        }
    }

    /// Asks the store until it answers, but not for long.
    async fn retry_read<T, F: Future<Output = Result<T, StoreError>>>(
        &self,
        mut ask: impl FnMut() -> F,
    ) -> Result<T, StoreError> {
        let clock = &self.engine.services.clock;
        let give_up_at = clock.instant() + STORE_PATIENCE;
        loop {
            match ask().await {
                Err(StoreError::Unavailable(_) | StoreError::Unknown(_)) if clock.instant() < give_up_at => {
                    tokio::time::sleep(POLL_INTERVALS.1).await;
                }
                answer => return answer,
            }
        }
    }
}

fn is_interrupted(record: &CallRecord) -> bool {
    record.outcome.as_ref().is_some_and(|outcome| outcome.error_kind() == Some(ErrorKind::Interrupted))
}

fn partition(tenant: &Tenant, thread: Option<&ThreadId>, call: CallId) -> Partition {
    Partition::for_call(tenant.clone(), thread, call)
}

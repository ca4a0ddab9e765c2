//! Call recovery: closes or resumes calls that a dead process left open.
//!
//! In: the open calls in the store. Out: each of them closed as `interrupted`, exactly once however many hubs scan; or resumed, if
//! the tool allows that. `nodes.rs` decides which nodes are dead. A call of this hub that is open but not running is one whose outcome could not be stored; it is stored now, if the
//! outcome is still buffered.

use std::{
    collections::{HashMap, HashSet},
    pin::pin,
    sync::{Arc, Weak},
    time::Duration,
};

use futures_util::{
    StreamExt,
    future::{Either, select},
    stream::FuturesUnordered,
};
use smol_str::SmolStr;
use tokio::sync::{Semaphore, watch};

use super::requests;
use crate::{
    engine::Engine,
    execution::{EvidenceDemand, Tool},
    journal::{self, Journal, OpenCall},
    pipeline,
    sealing::UnsealError,
};
use toolhub_storage::backend::{Batch, Change, Durability, Expect, Row, RowKey, Scan, Scope, StoreError, Table, Write};
use toolhub_types::{
    effect::Effect,
    ids::{CallId, Tenant},
    outcome::Outcome,
};

/// Maximum number of starts of a call: one that kills its process must not do so forever.
const MAX_STARTS: u32 = 3;
/// Number of open calls read and closed in one batch.
const BATCH_SIZE: usize = 100;
/// Number of calls resumed concurrently.
const RESUME_CONCURRENCY: usize = 16;
/// Number of unreadable records that are logged.
const MAX_UNREADABLE_WARNINGS: usize = 1_000;
/// Time before another scan if a call could not be closed.
const RESCAN_DELAY: Duration = Duration::from_secs(5);
/// How long a call that has not started waits for a node that has its tool.
const UNKNOWN_TOOL_WAIT: Duration = Duration::from_secs(24 * 3600);
/// Time between scans while no open call needs attention and no other node dies or leaves.
const IDLE_INTERVAL: Duration = Duration::from_secs(600);

/// Why a call cannot go on without the key.
const KEY_MISSING: &str = "the process that ran the call is gone, and its secret arguments cannot be read: the key file of the store is \
                        missing or another one, as after restoring a backup elsewhere";

/// State of the recovery task across scans.
pub(super) struct Recovery {
    /// Unreadable records that were logged, so that each is logged once.
    unreadable: HashSet<SmolStr>,
    resume_permits: Arc<Semaphore>,
}

impl Default for Recovery {
    fn default() -> Self {
        Self { unreadable: HashSet::new(), resume_permits: Arc::new(Semaphore::new(RESUME_CONCURRENCY)) }
    }
}

/// Whether to scan again soon: a call could not be closed, or is being resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScanResult {
    Clean,
    RescanSoon,
}

/// Recovers open calls until the hub is dropped. `last_scan` is the result of the scan at start-up, if there was one;
/// `departures` changes when a node has died or left.
pub(super) async fn recover(
    (hub, journal): (Weak<Engine>, Journal),
    mut recovery: Recovery,
    mut last_scan: Option<ScanResult>,
    mut departures: watch::Receiver<u64>,
) {
    loop {
        match last_scan {
            None => {}
            Some(ScanResult::RescanSoon) => pause(RESCAN_DELAY, &mut departures).await,
            Some(ScanResult::Clean) => {
                let is_own = {
                    let (own, other) =
                        (pin!(journal.recovery_needed.notified()), pin!(next_departure(&mut departures)));
                    let woken = tokio::time::timeout(IDLE_INTERVAL, select(own, other)).await;
                    // After the interval, on each node: a call of its own may be opened long after its opening was given up.
                    matches!(woken, Ok(Either::Left(_)))
                };
                if is_own {
                    pause(RESCAN_DELAY, &mut departures).await;
                }
            }
        }
        let Some(engine) = hub.upgrade() else { return };
        departures.mark_unchanged();
        last_scan = Some(recovery.scan(&engine, usize::MAX).await);
        drop(engine);
    }
}

/// Waits for this time, or until another node has died or left: its calls are taken over at once.
async fn pause(time: Duration, departures: &mut watch::Receiver<u64>) {
    let _ = tokio::time::timeout(time, next_departure(departures)).await;
}

/// Waits until another node has died or left.
async fn next_departure(departures: &mut watch::Receiver<u64>) {
    if departures.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

impl Recovery {
    /// Scans the open calls and closes or resumes those of dead nodes; stops after about `max_closed` of them.
    pub(super) async fn scan(&mut self, engine: &Arc<Engine>, max_closed: usize) -> ScanResult {
        let mut unwritten = engine.journal.take_unwritten();
        let result = self.try_scan(engine, max_closed, &mut unwritten).await;
        if result != Ok(ScanResult::Clean) {
            engine.journal.put_back_unwritten(unwritten);
        }
        result.unwrap_or_else(|error| {
            tracing::warn!(%error, "scan of open calls failed; retrying");
            ScanResult::RescanSoon
        })
    }

    /// One scan. Outcomes that it stores are removed from `unwritten`.
    async fn try_scan(
        &mut self,
        engine: &Arc<Engine>,
        max_closed: usize,
        unwritten: &mut HashMap<CallId, Outcome>,
    ) -> Result<ScanResult, StoreError> {
        let Engine { journal, nodes, services, .. } = &**engine;
        let mut result = ScanResult::Clean;
        let (mut open_ids, mut closed) = (HashSet::new(), 0);
        let mut scan = Scan::new(Table::OpenCalls, Scope::All).limit(BATCH_SIZE);
        loop {
            let page = services.store.scan(scan.clone(), services.clock.now()).await?;
            if !page.rows.is_empty() {
                // After the calls: a node has a row before it opens a call.
                nodes.look().await?;
            }
            let mut closing = FuturesUnordered::new();
            for (key, row) in &page.rows {
                let Some(mut open) = self.read(&key.id, row) else {
                    // One of a newer version is left to the nodes that read it.
                    let is_newer = row.schema > journal::LAYOUT;
                    if !is_newer && services.clock.now().since(row.created) > journal.max_retention() {
                        remove_unreadable(engine, key, row).await;
                    }
                    continue;
                };
                open_ids.insert(key.id.clone());
                // Checked after the row was read: a call of this hub is in `live_calls` before its record is opened.
                if engine.live_calls.contains(open.record.id) {
                    // A rerun that is still waiting to start may be refused.
                    if open.node() != journal.node {
                        result = ScanResult::RescanSoon;
                    }
                    continue;
                }
                // Its end is noticed, so there is no need to scan again before.
                if open.node() != journal.node && nodes.was_alive(open.node()) {
                    continue;
                }
                let tenant = key.partition.tenant.clone();
                let unsealed = journal.unseal_arguments(&tenant, &mut open);
                match find_resuming_tool(engine, &open).filter(|_| unsealed.is_ok()) {
                    Some(tool) => {
                        let open = Arc::new(open);
                        let permits = self.resume_permits.clone();
                        pipeline::spawn_resumed(engine, tenant.clone(), open.clone(), tool, permits);
                        requests::cancel_if_requested(engine, &tenant, &open);
                        result = ScanResult::RescanSoon;
                    }
                    // During shutdown, waiting calls are left to the next start.
                    None if unsealed.is_ok()
                        && open.is_waiting()
                        && engine.is_shutting_down()
                        && !unwritten.contains_key(&open.record.id) => {}
                    // Another node may have the tool, or this one after the update that brings it.
                    None if unsealed.is_ok()
                        && open.is_waiting()
                        && open.node() != journal.node
                        && !unwritten.contains_key(&open.record.id)
                        && waits_for_tool(engine, &open) =>
                    {
                        result = ScanResult::RescanSoon;
                    }
                    None => {
                        let buffered = unwritten.get(&open.record.id);
                        let outcome = buffered.filter(|outcome| is_valid_end(journal, &open, outcome)).cloned();
                        closing.push(close_call(engine, tenant, open, (unsealed, outcome)));
                    }
                }
            }
            while let Some((call, is_settled)) = closing.next().await {
                closed += 1;
                if is_settled {
                    unwritten.remove(&call);
                } else {
                    result = ScanResult::RescanSoon;
                }
            }
            match page.next {
                None => break,
                Some(_) if closed >= max_closed => return Ok(ScanResult::RescanSoon),
                Some(next) => scan.after = Some(next),
            }
            tokio::task::yield_now().await;
        }
        // Calls that are no longer open were closed after all, so their buffered outcomes are not needed.
        let unconfirmed = journal.unconfirmed();
        let is_unconfirmed = |call: &CallId| unconfirmed.iter().any(|(_, open)| open.record.id == *call);
        unwritten.retain(|call, _| open_ids.contains(&SmolStr::from(*call)) || is_unconfirmed(call));
        for (tenant, open) in unconfirmed {
            let call = open.record.id;
            if open_ids.contains(&SmolStr::from(call)) {
                journal.confirm(call);
            } else if engine.live_calls.contains(call)
                || !close_unopened(engine, &tenant, &open, unwritten.get(&call)).await
            {
                result = ScanResult::RescanSoon;
            } else {
                journal.confirm(call);
                unwritten.remove(&call);
            }
        }
        Ok(result)
    }

    /// Decodes an open call. A row that cannot be decoded stays, and keeps its thread, for as long as its record would be
    /// retained: an operator may inspect it, and a hub of a later version may be running the call.
    fn read(&mut self, id: &SmolStr, row: &Row) -> Option<OpenCall> {
        match OpenCall::read(id, row) {
            Ok(open) => Some(open),
            Err(error) => {
                if self.unreadable.len() < MAX_UNREADABLE_WARNINGS && self.unreadable.insert(id.clone()) {
                    error.log_skipped();
                }
                None
            }
        }
    }
}

/// The tool, if it may run the call again.
fn find_resuming_tool(engine: &Engine, open: &OpenCall) -> Option<(Arc<Tool>, EvidenceDemand)> {
    let is_foreign = open.node() != engine.journal.node;
    let found = engine.registry.find(&open.record.tool)?;
    if open.is_waiting() {
        return is_foreign.then_some(found);
    }
    // The caller may still be executing an external call; a rerun would execute it twice.
    let is_internal = open.record.external_until.is_none();
    let can_rerun =
        |tool: &Tool| is_internal && tool.rerun_interrupted && tool.schema.accepts(&open.record.arguments.to_value());
    (is_foreign && open.start_count() < MAX_STARTS && can_rerun(&found.0)).then_some(found)
}

/// Whether the buffered outcome is the end of the open call. One without effect is not if another node has started the call since then.
fn is_valid_end(journal: &Journal, open: &OpenCall, outcome: &Outcome) -> bool {
    open.node() == journal.node || open.is_waiting() || outcome.effect != Effect::None
}

/// Whether a call that has not started is of a tool that this node of several does not have.
fn waits_for_tool(engine: &Engine, open: &OpenCall) -> bool {
    let is_unknown = engine.registry.find(&open.record.tool).is_none();
    is_unknown
        && !engine.nodes.is_exclusive()
        && engine.services.clock.now().since(open.record.opened_at) < UNKNOWN_TOOL_WAIT
}

/// Deletes an open call that cannot be decoded and whose record would have expired by now.
async fn remove_unreadable(engine: &Engine, key: &RowKey, row: &Row) {
    let (expect, durability) = (Expect::Same(row.version), Durability::KillSafe);
    let removal = Write { table: key.table, id: key.id.clone(), expect, change: Change::Remove, durability };
    let batch = Batch::new(key.partition.clone()).with(removal);
    match engine.journal.store.commit(batch, engine.services.clock.now()).await {
        Ok(_) => {
            tracing::warn!(call = %key.id, "removed an unreadable open call that was older than the call retention");
        }
        // The next scan tries again.
        Err(error) => tracing::debug!(%error, call = %key.id, "could not remove an unreadable open call"),
    }
}

/// Closes a call that the store may still open, with its buffered outcome; returns whether that is done.
async fn close_unopened(engine: &Engine, tenant: &Tenant, open: &OpenCall, outcome: Option<&Outcome>) -> bool {
    let Some(outcome) = outcome else { return true };
    match pipeline::close_unopened_call(engine, tenant, open, outcome).await {
        Ok(is_closed) => is_closed,
        Err(StoreError::Refused(_)) => true,
        Err(error) => {
            tracing::warn!(%error, call = %outcome.id, "could not close a call that may still be opened; retrying");
            false
        }
    }
}

/// Closes a call with its buffered outcome, or as interrupted if there is none; the flag says that no retry is needed soon.
async fn close_call(
    engine: &Engine,
    tenant: Tenant,
    open: OpenCall,
    (unsealed, outcome): (Result<(), UnsealError>, Option<Outcome>),
) -> (CallId, bool) {
    let is_own = open.node() == engine.journal.node;
    let why = match open.start_count() {
        _ if is_own => "the outcome of the call could not be stored".into(),
        _ if unsealed.is_err() => KEY_MISSING.into(),
        1 => "the process that ran the call is gone".into(),
        starts => format!("the process that ran the call is gone; it was started {starts} times"),
    };
    let outcome = outcome.unwrap_or_else(|| pipeline::interrupted_outcome(&open, &why, engine.services.clock.now()));
    let closed = pipeline::close_open_call(engine, &tenant, &open, &outcome).await;
    match &closed {
        // For a call of this hub, the event was emitted when it ended.
        Ok(true) if !is_own => pipeline::emit_interrupted(engine, &tenant, &open, &outcome),
        Ok(_) => {}
        Err(error) => tracing::warn!(%error, call = %outcome.id, "could not close an interrupted call"),
    }
    // A permanent store error is not retried until something else triggers a scan.
    (
        outcome.id,
        matches!(
            closed,
            Ok(_) | Err(StoreError::Refused(_) | StoreError::Damaged { .. } | StoreError::NewerLayout { .. })
        ),
    )
}

//! Ends what the dead have begun: calls that a process left open when it stopped.
//!
//! In: the open calls in the store. Out: each of them closed as `interrupted`, once, however many hubs look; or run again
//! where the tool's owner asked for that. Who is dead is told by `journal/nodes.rs`; a hub that has its store alone need not
//! ask. A call of this very hub that is open and does not run had an end that could not be written down; it is written down
//! now, if it is still known.

use std::{
    collections::{HashMap, HashSet},
    pin::pin,
    sync::{Arc, Weak},
    time::Duration,
};

use futures_util::{
    FutureExt, StreamExt,
    future::{Either, select},
    stream::FuturesUnordered,
};
use smol_str::SmolStr;
use tokio::sync::Semaphore;

use crate::{
    engine::Engine,
    execution::{EvidenceDemand, Tool},
    journal::{Journal, LEASE_RENEW_INTERVAL, LeaseMonitor, OpenCall},
    pipeline,
};
use toolhub_storage::backend::{
    Batch, Change, Durability, Expect, Row, RowKey, Scan, Scope, StoreError, Table, WatchEvent, Watcher, Write,
};
use toolhub_types::{
    ids::{CallId, Tenant},
    outcome::Outcome,
};

/// How often a call is started at most. One that kills its process must not do so for ever.
const MAX_STARTS: u32 = 3;
/// How many open calls are read and closed at a time.
const BATCH_SIZE: usize = 100;
/// How many calls are run again at a time.
const RERUN_CONCURRENCY: usize = 16;
/// Of how many records that cannot be read is told.
const MAX_UNREADABLE_WARNINGS: usize = 1_000;
/// How long nobody looks while nothing is open elsewhere and no other node says anything.
const IDLE_INTERVAL: Duration = Duration::from_secs(600);

/// What was seen of the open calls so far.
pub(super) struct Recovery {
    liveness: LeaseMonitor,
    /// Records that cannot be read, which was said once.
    unreadable: HashSet<SmolStr>,
    rerun_permits: Arc<Semaphore>,
}

impl Default for Recovery {
    fn default() -> Self {
        Self {
            liveness: LeaseMonitor::default(),
            unreadable: HashSet::new(),
            rerun_permits: Arc::new(Semaphore::new(RERUN_CONCURRENCY)),
        }
    }
}

/// Whether to look again soon: a call of somebody else is open, or one could not be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScanResult {
    Clean,
    RescanSoon,
}

/// Looks after open calls for as long as the hub lives. `looked` is what was found when it began, if it was looked.
pub(super) async fn recover(
    (hub, journal): (Weak<Engine>, Journal),
    mut recovery: Recovery,
    mut looked: Option<ScanResult>,
    mut nodes: Option<Watcher>,
) {
    loop {
        match looked {
            None => {}
            Some(ScanResult::RescanSoon) => tokio::time::sleep(LEASE_RENEW_INTERVAL).await,
            Some(ScanResult::Clean) => {
                let (here, there) =
                    (pin!(journal.recovery_needed.notified()), pin!(wait_for_other_node(&mut nodes, &journal.node)));
                if let Ok(Either::Right(_)) = tokio::time::timeout(IDLE_INTERVAL, select(here, there)).await {
                    tokio::time::sleep(LEASE_RENEW_INTERVAL).await;
                }
            }
        }
        let Some(engine) = hub.upgrade() else { return };
        looked = Some(recovery.scan(&engine, usize::MAX).await);
        drop(engine);
    }
}

/// Waits until another node says that it runs calls.
async fn wait_for_other_node(nodes: &mut Option<Watcher>, own: &SmolStr) {
    let Some(news) = nodes else { return std::future::pending().await };
    loop {
        match news.next().await {
            Some(WatchEvent::Row(key, _)) if key.id == *own => {}
            Some(_) => break,
            // A store that tells nothing more is asked now and then.
            None => return std::future::pending().await,
        }
    }
    // Whatever else was said meanwhile is answered by the same look.
    while let Some(Some(_)) = news.next().now_or_never() {}
}

impl Recovery {
    /// Looks at the open calls, and ends those of the dead; about `most` of them.
    pub(super) async fn scan(&mut self, engine: &Arc<Engine>, most: usize) -> ScanResult {
        let mut unwritten = engine.journal.take_unwritten();
        let looked = self.try_scan(engine, most, &mut unwritten).await;
        if looked != Ok(ScanResult::Clean) {
            engine.journal.buffer_outcomes(unwritten);
        }
        looked.unwrap_or_else(|error| {
            tracing::warn!(%error, "the calls that are open could not be looked at; they are looked at again");
            ScanResult::RescanSoon
        })
    }

    /// The same; what it closes is taken out of `unwritten`.
    async fn try_scan(
        &mut self,
        engine: &Arc<Engine>,
        most: usize,
        unwritten: &mut HashMap<CallId, Outcome>,
    ) -> Result<ScanResult, StoreError> {
        let Engine { journal, services, .. } = &**engine;
        // Before they are read: what is said while all these calls are looked at is news the next time.
        let asked_at = services.clock.instant();
        let leases =
            if journal.store_is_exclusive { Default::default() } else { journal.leases(services.clock.now()).await? };
        let mut looked = ScanResult::Clean;
        let (mut seen, mut closed) = (HashSet::new(), 0);
        let mut scan = Scan::new(Table::OpenCalls, Scope::All).limit(BATCH_SIZE);
        loop {
            let page = services.store.scan(scan.clone(), services.clock.now()).await?;
            let mut closing = FuturesUnordered::new();
            for (key, row) in &page.rows {
                let Some(open) = self.read(&key.id, row) else {
                    if services.clock.now().since(row.created) > journal.max_retention() {
                        remove_unreadable(engine, key, row).await;
                    }
                    continue;
                };
                seen.insert(key.id.clone());
                // Looked up after the row was read: a call of this hub is running before it is opened.
                if engine.live_calls.contains(open.record.id) {
                    // One that waits to be run again may still be refused.
                    if open.node() != journal.node {
                        looked = ScanResult::RescanSoon;
                    }
                    continue;
                }
                let dead = open.node() == journal.node
                    || journal.store_is_exclusive
                    || self.liveness.is_dead(&key.id, &open, &leases, asked_at);
                let tenant = key.partition.tenant.clone();
                match find_rerun_tool(engine, &open) {
                    _ if !dead => looked = ScanResult::RescanSoon,
                    Some(tool) => {
                        pipeline::spawn_rerun(engine, tenant, open, tool, self.rerun_permits.clone());
                        looked = ScanResult::RescanSoon;
                    }
                    // A hub that goes down leaves those that wait to the next start.
                    None if open.is_waiting()
                        && engine.is_shutting_down()
                        && !unwritten.contains_key(&open.record.id) => {}
                    None => {
                        let ended = unwritten.get(&open.record.id).cloned();
                        closing.push(close_call(engine, tenant, open, ended));
                    }
                }
            }
            while let Some((call, done)) = closing.next().await {
                closed += 1;
                if done {
                    unwritten.remove(&call);
                } else {
                    looked = ScanResult::RescanSoon;
                }
            }
            match page.next {
                None => break,
                Some(_) if closed >= most => return Ok(ScanResult::RescanSoon),
                Some(next) => scan.after = Some(next),
            }
            tokio::task::yield_now().await;
        }
        self.liveness.retain_open(&seen);
        // The others are closed: their ends were written down after all.
        unwritten.retain(|call, _| seen.contains(&SmolStr::from(*call)));
        Ok(looked)
    }

    /// The open call in a row. One that cannot be read stays, and holds its thread, for as long as its record would be kept: a
    /// person may look at it, and a hub of a later version may be running it.
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

/// The tool, if it may run the call once more.
fn find_rerun_tool(engine: &Engine, open: &OpenCall) -> Option<(Arc<Tool>, EvidenceDemand)> {
    let elsewhere = open.node() != engine.journal.node;
    let found = engine.registry.find(&open.record.tool)?;
    if open.is_waiting() {
        return elsewhere.then_some(found);
    }
    // Somebody outside may be at it still, and would do it beside the other.
    let inside = open.record.external_until.is_none();
    let fits = |tool: &Tool| inside && tool.rerun_interrupted && tool.schema.check(&open.record.arguments).is_ok();
    (elsewhere && open.start_count() < MAX_STARTS && fits(&found.0)).then_some(found)
}

/// Takes an open call away that nobody can read and whose record, had it been closed, would be gone by now.
async fn remove_unreadable(engine: &Engine, key: &RowKey, row: &Row) {
    let (expect, durability) = (Expect::Same(row.version), Durability::KillSafe);
    let gone = Write { table: key.table, id: key.id.clone(), expect, change: Change::Remove, durability };
    let batch = Batch::new(key.partition.clone()).with(gone);
    match engine.journal.store.commit(batch, engine.services.clock.now()).await {
        Ok(_) => {
            tracing::warn!(call = %key.id, "an open call that cannot be read is as old as records become, and is removed");
        }
        // It is looked at again.
        Err(error) => tracing::debug!(%error, call = %key.id, "an open call that cannot be read is not removed"),
    }
}

/// Closes a call as it ended, or as interrupted where nobody knows; says whether nothing is to be tried again soon.
async fn close_call(engine: &Engine, tenant: Tenant, open: OpenCall, ended: Option<Outcome>) -> (CallId, bool) {
    let own = open.node() == engine.journal.node;
    let why = match open.start_count() {
        _ if own => "the end of the call could not be written down".into(),
        1 => "the process that ran the call is gone".into(),
        starts => format!("the process that ran the call is gone; it was started {starts} times"),
    };
    let outcome = ended.unwrap_or_else(|| pipeline::interrupted(&open, &why, engine.services.clock.now()));
    let closed = pipeline::close_open(engine, &tenant, &open, &outcome).await;
    match &closed {
        // Of a call of this hub an end was told when it came.
        Ok(true) if !own => pipeline::tell_interrupted(engine, &tenant, &open, &outcome),
        Ok(_) => {}
        Err(error) => tracing::warn!(%error, call = %outcome.id, "a call that was left open could not be closed"),
    }
    // What the store will never take is tried again when there is another reason to look.
    (outcome.id, matches!(closed, Ok(_) | Err(StoreError::Refused(_) | StoreError::Damaged { .. })))
}

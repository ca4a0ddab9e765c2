//! Runs on a store with several nodes: takes over those of dead nodes, and follows and cancels those of living ones.
//!
//! In: the departures of nodes, requests of other nodes, runs that are driven elsewhere. Out: drivers of runs that were taken
//! over, cancelled runs, records of runs as the store has them. The hub knows which nodes are alive.

use std::{
    collections::HashMap,
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

use futures_util::StreamExt;
use tokio::sync::watch;
use toolhub_core::{
    CancellationToken,
    backend::{StoreError, Table, WatchEvent, rewatch},
    ids::{RunId, Tenant, ThreadKey},
    tasks,
};

use super::{AgentService, CONTENTION_DELAY, Inner, RunCancellation};
use crate::{
    record::RunRecord,
    run_store::{OpenRun, cancelled_run},
};

/// Time between scans for runs of dead nodes while no node dies.
const SCAN_INTERVAL: Duration = Duration::from_secs(600);
/// Time before another scan after the store did not answer.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// Shortest and longest time between two looks at a run that is driven elsewhere.
pub(crate) const POLL_INTERVALS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

impl AgentService {
    /// Whether another node that is alive drives the run.
    pub(super) async fn is_driven_elsewhere(&self, open_run: &OpenRun) -> Result<bool, StoreError> {
        let Inner { hub, .. } = &*self.0;
        match &open_run.node {
            // The caller has the drive permit, so no driver of this node has the run.
            Some(node) if node == hub.node_id() => Ok(false),
            Some(node) => hub.is_node_alive(node).await,
            None => Ok(false),
        }
    }

    /// Resumes the runs of dead nodes; returns how many.
    pub(super) async fn resume_all(&self) -> Result<usize, StoreError> {
        let Inner { hub, run_store, .. } = &*self.0;
        let (mut resumed, mut alive) = (0, HashMap::new());
        for (thread_key, node) in run_store.threads_with_open_run(hub.now()).await? {
            if let Some(node) = node {
                let is_alive = match alive.get(&node) {
                    Some(is_alive) => *is_alive,
                    None => hub.is_node_alive(&node).await?,
                };
                let is_other = node != hub.node_id();
                alive.insert(node, is_alive);
                if is_alive && is_other {
                    continue;
                }
            }
            match self.resume_thread(&thread_key).await {
                Ok(is_driven) => resumed += usize::from(is_driven),
                // A run that cannot be read must not keep the others from resuming.
                Err(error @ (StoreError::Damaged { .. } | StoreError::NewerLayout { .. })) => {
                    tracing::warn!(thread = %thread_key.thread, %error, "open run is unreadable; skipping it");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(resumed)
    }

    /// Starts the task that takes over the runs of nodes that are gone, once, if the store may have other nodes.
    pub(super) fn watch_departures(&self) {
        let Inner { hub, stopping, watches_departures, .. } = &*self.0;
        if hub.has_exclusive_store() || watches_departures.swap(true, Ordering::AcqRel) {
            return;
        }
        // Subscribed now, so that nothing is missed until the task runs.
        let (service, departures) = (Arc::downgrade(&self.0), hub.node_departures());
        tasks::spawn("agent run takeover", stopping.clone(), move |stopping| {
            Box::pin(take_over_runs(service.clone(), departures.clone(), stopping))
        });
    }

    /// Starts the task that cancels runs for other nodes, once, if the store may have any.
    pub(super) fn watch_requests(&self) {
        let Inner { hub, stopping, watches_requests, .. } = &*self.0;
        if hub.has_exclusive_store() || watches_requests.swap(true, Ordering::AcqRel) {
            return;
        }
        // Subscribed now, so that nothing is missed until the task runs.
        let (service, store) = (Arc::downgrade(&self.0), hub.store());
        let mut first = Some(store.watch(Table::Requests));
        let weak_store = Arc::downgrade(&store);
        tasks::spawn("agent run requests", stopping.clone(), move |stopping| {
            let again = || weak_store.upgrade().map(|store| rewatch(&*store, Table::Requests));
            let requests = first.take().or_else(again);
            let service = service.clone();
            Box::pin(async move {
                let Some(mut requests) = requests else { return };
                while let Some(Some(request)) = stopping.run_until_cancelled(requests.next()).await {
                    let Some(inner) = service.upgrade() else { return };
                    AgentService(inner).handle_request(request).await;
                }
            })
        });
    }

    /// Cancels the runs of this node that another node asked to cancel.
    async fn handle_request(&self, request: WatchEvent) {
        let Inner { hub, run_store, .. } = &*self.0;
        let requested = match request {
            WatchEvent::Row(key, Some(_)) => Ok(cancelled_run(&key).into_iter().collect()),
            WatchEvent::Row(_, None) => return,
            WatchEvent::Lagged => run_store.cancel_requests(hub.now()).await,
        };
        let requested = requested.unwrap_or_else(|error| {
            tracing::warn!(%error, "requests to cancel runs not read");
            Vec::new()
        });
        for (thread_key, run) in requested {
            self.cancel_here(&thread_key, run).await;
        }
    }

    async fn cancel_here(&self, thread_key: &ThreadKey, run: RunId) {
        let Inner { hub, run_store, active_runs, .. } = &*self.0;
        // Its driver may be just starting.
        while active_runs.is_starting(thread_key) {
            tokio::time::sleep(CONTENTION_DELAY).await;
        }
        if let Some(active) = active_runs.get(thread_key).filter(|active| active.run == run) {
            active.cancel.cancel();
            if let Err(error) = run_store.take_cancel_request(thread_key, run, hub.now()).await {
                tracing::debug!(%error, %run, "request to cancel a run not removed");
            }
        }
    }

    /// Asks the node that drives the run to cancel it.
    pub(super) async fn cancel_elsewhere(
        &self,
        thread_key: &ThreadKey,
        run: RunId,
    ) -> Result<RunCancellation, StoreError> {
        let Inner { hub, run_store, .. } = &*self.0;
        match run_store.run(&thread_key.tenant, run, hub.now()).await? {
            None => Ok(RunCancellation::NotFound),
            Some(record) if record.status.is_end() => Ok(RunCancellation::Ended(record.status)),
            Some(_) => {
                run_store.request_cancel(thread_key, run, hub.now()).await?;
                Ok(RunCancellation::Requested)
            }
        }
    }

    /// The record of a run that is not driven here, and what becomes of it, until it has ended.
    pub(super) fn follow_record(&self, tenant: &Tenant, record: RunRecord) -> watch::Receiver<RunRecord> {
        let Inner { hub, tasks, stopping, .. } = &*self.0;
        let is_open = !record.status.is_end();
        let (run, thread_key) = (record.id, ThreadKey::new(tenant, &record.thread));
        let (record_tx, record_rx) = watch::channel(record);
        // With one node, a run that is open and not driven waits for its agent.
        if is_open && !hub.has_exclusive_store() {
            let (service, stopping, hub) = (self.clone(), stopping.clone(), hub.clone());
            tasks.spawn(async move {
                tokio::select! {
                    biased;
                    () = service.copy_record(&thread_key, run, &record_tx) => {}
                    () = record_tx.closed() => {}
                    () = stopping.cancelled() => {}
                    () = hub.shutdown_requested() => {}
                }
            });
        }
        record_rx
    }

    /// Copies the record whenever its row changes. Also looks from time to time: notifications may be lost, and the calls of the run
    /// have rows of their own.
    async fn copy_record(&self, thread_key: &ThreadKey, run: RunId, record_tx: &watch::Sender<RunRecord>) {
        let mut changes = self.0.hub.store().watch(Table::Runs);
        let id = run.to_string();
        let (mut delay, longest) = POLL_INTERVALS;
        loop {
            match self.look_at(thread_key, run).await {
                Ok(Some(record)) => {
                    let is_end = record.status.is_end();
                    record_tx.send_if_modified(|known| {
                        let is_new = *known != record;
                        *known = record;
                        is_new
                    });
                    if is_end {
                        return;
                    }
                }
                Ok(None) => return,
                Err(_) => {}
            }
            let changed = async {
                loop {
                    match changes.next().await {
                        Some(WatchEvent::Row(key, _)) if key.id != *id => {}
                        Some(_) => break,
                        None => std::future::pending().await,
                    }
                }
            };
            let _ = tokio::time::timeout(delay, changed).await;
            delay = (2 * delay).min(longest);
        }
    }

    async fn look_at(&self, thread_key: &ThreadKey, run: RunId) -> Result<Option<RunRecord>, StoreError> {
        let Inner { hub, run_store, active_runs, .. } = &*self.0;
        // It may have been taken over by this node.
        if active_runs.find(&thread_key.tenant, run).is_some() {
            return self.run(&thread_key.tenant, run).await;
        }
        match run_store.run_in_thread(thread_key, run, hub.now()).await? {
            Some(record) => self.refresh_calls(&thread_key.tenant, record).await.map(Some),
            None => Ok(None),
        }
    }
}

/// Resumes the runs of nodes that die, and every now and then those that were missed.
async fn take_over_runs(service: Weak<Inner>, mut departures: watch::Receiver<u64>, stopping: CancellationToken) {
    let mut next_scan = SCAN_INTERVAL;
    loop {
        tokio::select! {
            biased;
            () = stopping.cancelled() => return,
            changed = departures.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(next_scan) => {}
        }
        let Some(inner) = service.upgrade() else { return };
        next_scan = match AgentService(inner).resume_all().await {
            Ok(0) => SCAN_INTERVAL,
            Ok(runs) => {
                tracing::info!(runs, "took over open agent runs of nodes that are gone");
                SCAN_INTERVAL
            }
            Err(error) => {
                tracing::warn!(%error, "open agent runs of dead nodes not read; retrying");
                RETRY_INTERVAL
            }
        };
    }
}

//! Background tasks of a hub: watches of the store, offer notifications, call recovery, the call index, membership, health checks,
//! sweepers, losses and the size limit of the store.
//!
//! In: the engine. Out: supervised tasks that end with the hub. Each calls the module it works for; nothing is decided here.

use std::{
    sync::{Arc, Weak, atomic::AtomicUsize},
    time::Duration,
};

use futures_core::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};
use tokio::{runtime::Handle, sync::Notify};
use tokio_util::sync::CancellationToken;

use super::{
    builder::BuildError,
    recovery::{self, Recovery},
    written_layouts,
};
use crate::{
    approvals::Approvals,
    batched_records::write_batched,
    engine::Engine,
    events, evidence,
    nodes::run_membership,
    scheduler::run_shared_permits,
    statuses::{OnLoad, Statuses},
    tasks, threads,
};
use toolhub_storage::backend::{StoreError, Table, WatchEvent, Watcher, rewatch};

/// Number of expired rows removed per sweep request.
const SWEEP_BATCH_SIZE: usize = 1000;
/// Number of open calls recovered before the hub is ready; the recovery task handles the rest.
const MAX_STARTUP_RECOVERIES: usize = 2_000;
/// Delay before a store that did not answer is asked again.
const STORE_RETRY_DELAY: Duration = Duration::from_secs(1);

/// Loads stored statuses and starts all background tasks, which run until `stopped` is cancelled. With `idle_threads`, threads
/// that are idle for longer are swept; with `cleanup`, expired rows are removed at that interval.
pub(super) async fn start_tasks(
    engine: &Arc<Engine>,
    stopped: &CancellationToken,
    idle_threads: Option<Duration>,
    cleanup: Option<Duration>,
) -> Result<(), BuildError> {
    let Engine { services, journal, nodes, statuses, approvals, thread_store, .. } = &**engine;
    let layouts = written_layouts::own(engine).await?;
    if let Some(newer) = written_layouts::find_newer(&*services.store, layouts.read, services.clock.now()).await? {
        return Err(newer.into());
    }
    // Watch before reading, so that no change is lost in between.
    let changes = services.store.watch(Table::Statuses);
    let answers = services.store.watch(Table::Approvals);
    let evidence_changes = services.store.watch(Table::Evidence);
    statuses.load_all(OnLoad::Silent).await?;
    // With exclusive access to the store, every call left open by another process is known to be dead.
    let mut recovery = Recovery::default();
    let first_scan =
        if nodes.is_exclusive() { Some(recovery.scan(engine, MAX_STARTUP_RECOVERIES).await) } else { None };
    // After an error the task below looks again.
    let is_indexed = journal.index.check(services.clock.now()).await.unwrap_or(false);
    let node_rows = services.store.watch(Table::Nodes);
    // Before the first call: the calls of a node without a row are taken over.
    nodes.renew().await?;
    nodes.look().await?;
    if let Some(newer) = nodes.newer_node() {
        nodes.leave().await;
        return Err(newer.into());
    }
    written_layouts::store_own(engine).await?;
    let spawner = TaskSpawner { engine, stopped };
    let weak = || Arc::downgrade(engine);
    if let Some(log) = engine.event_log.clone() {
        let (hub, mut first) = (weak(), Some(services.store.watch(Table::Events)));
        spawner.spawn_graceful("event log", move |stopped| {
            Box::pin(events::run_event_log(log.clone(), take_or_watch(&hub, &mut first, Table::Events), stopped))
        });
    }
    let (hub, mut first, statuses) = (weak(), Some(changes), Arc::downgrade(statuses));
    spawner.spawn("status watch", move || {
        Box::pin(sync_statuses(take_or_watch(&hub, &mut first, Table::Statuses), statuses.clone()))
    });
    let (hub, mut first, approvals) = (weak(), Some(answers), Arc::downgrade(approvals));
    let is_exclusive = nodes.is_exclusive();
    spawner.spawn("approval watch", move || {
        let answers = take_or_watch(&hub, &mut first, Table::Approvals);
        Box::pin(watch_approvals(answers, approvals.clone(), is_exclusive))
    });
    let (hub, mut first, changed) = (weak(), Some(evidence_changes), services.availability_changed.clone());
    spawner.spawn("evidence watch", move || {
        Box::pin(watch_evidence(take_or_watch(&hub, &mut first, Table::Evidence), changed.clone()))
    });
    if !nodes.is_exclusive() {
        let hub = weak();
        spawner.spawn("record layouts", move || Box::pin(written_layouts::follow(hub.clone())));
        let (hub, mut first) = (weak(), Some(services.store.watch(Table::Requests)));
        let departures = nodes.departures();
        spawner.spawn("request watch", move || {
            let rows = take_or_watch(&hub, &mut first, Table::Requests);
            Box::pin(super::requests::watch_requests(rows, departures.clone(), hub.clone()))
        });
        if let Some(permits) = services.shared_permits.clone() {
            let (hub, mut first) = (weak(), Some(services.store.watch(Table::Permits)));
            spawner.spawn_graceful("shared permits", move |stopped| {
                let changes = take_or_watch(&hub, &mut first, Table::Permits);
                Box::pin(run_shared_permits(permits.clone(), changes, stopped))
            });
        }
        if let Some(relay) = engine.event_relay.clone() {
            let (hub, mut first) = (weak(), Some(services.store.watch(Table::Relay)));
            spawner.spawn_graceful("event relay", move |stopped| {
                Box::pin(events::run_relay(relay.clone(), take_or_watch(&hub, &mut first, Table::Relay), stopped))
            });
        }
        thread_store.own_removals.start();
        let (hub, mut first) = (weak(), Some(services.store.watch(Table::Threads)));
        spawner.spawn("thread watch", move || {
            Box::pin(super::thread_watch::watch_threads(take_or_watch(&hub, &mut first, Table::Threads), hub.clone()))
        });
    }
    let (hub, changed) = (weak(), services.availability_changed.clone());
    // The first tools were registered before there could be an offer.
    let _ = changed.notified().now_or_never();
    spawner.spawn("offer watch", move || Box::pin(super::offer::watch_offers(hub.clone(), changed.clone())));
    let hub = weak();
    spawner.spawn("evidence expiry", move || Box::pin(evidence::watch_expiries(hub.clone())));
    let instances = Arc::downgrade(&services.instances);
    spawner.spawn("idle instances", move || Box::pin(threads::run_idle_sweeper(instances.clone())));
    let thread_store = Arc::downgrade(thread_store);
    spawner.spawn("thread activity", move || Box::pin(threads::run_activity_flusher(thread_store.clone())));
    let (hub, mut first) = (weak(), Some((recovery, first_scan)));
    spawner.spawn("call recovery", move || {
        let (recovery, first_scan) = first.take().unwrap_or_default();
        let engine = hub.upgrade().map(|engine| (engine.journal.clone(), engine.nodes.departures()));
        let hub = hub.clone();
        Box::pin(async move {
            if let Some((journal, departures)) = engine {
                recovery::recover((hub, journal), recovery, first_scan, departures).await;
            }
        })
    });
    if !is_indexed {
        let (index, clock) = (journal.index.clone(), services.clock.clone());
        spawner.spawn("call index", move || {
            let (index, clock) = (index.clone(), clock.clone());
            Box::pin(async move { index.complete(&*clock).await })
        });
    }
    let hub = weak();
    spawner.spawn("health checks", move || Box::pin(super::health_checks::run(hub.clone())));
    if !nodes.is_exclusive() {
        let (hub, mut first, nodes, log) = (weak(), Some(node_rows), nodes.clone(), engine.event_log.clone());
        spawner.spawn_graceful("node membership", move |stopped| {
            let rows = take_or_watch(&hub, &mut first, Table::Nodes);
            let (nodes, log) = (nodes.clone(), log.clone());
            Box::pin(async move {
                run_membership(nodes, rows, stopped).await;
                // The event log may have ended before this node has left.
                if let Some(log) = log {
                    log.flush(&Handle::current()).await;
                }
            })
        });
    }
    if let Some(records) = engine.batched_records.clone() {
        spawner
            .spawn_graceful("read-only call records", move |stopped| Box::pin(write_batched(records.clone(), stopped)));
    }
    // Only the server of a store can lose what it acknowledged without its user being gone.
    if !services.store.is_exclusive() {
        let (hub, seen) = (weak(), Arc::new(AtomicUsize::new(0)));
        spawner.spawn("store losses", move || {
            let (hub, seen) = (hub.clone(), seen.clone());
            Box::pin(async move { super::store_losses::run(hub, &seen).await })
        });
    }
    if services.alerts.delivers {
        let hub = weak();
        spawner.spawn("alert observation", move || Box::pin(super::alerts::run_local_observation(hub.clone())));
        let hub = weak();
        spawner.spawn("alert evaluation", move || Box::pin(super::alerts::run_evaluation(hub.clone())));
        let hub = weak();
        spawner.spawn_graceful("alert delivery", move |stopped| {
            Box::pin(super::alerts::run_delivery(hub.clone(), stopped))
        });
    }
    if services.store.size_limit().is_some() {
        let hub = weak();
        spawner.spawn("store size limit", move || Box::pin(super::store_trim::run(hub.clone())));
    }
    if let Some(idle) = idle_threads {
        let hub = weak();
        spawner.spawn("idle threads", move || Box::pin(super::threads::sweep_idle_threads(hub.clone(), idle)));
    }
    if let Some(interval) = services.state.session_sweep_interval() {
        let hub = weak();
        spawner.spawn("state sessions", move || Box::pin(super::sessions::run_expiry(hub.clone(), interval)));
    }
    if let Some(interval) = cleanup {
        let hub = weak();
        spawner.spawn("expired rows", move || Box::pin(sweep_expired(hub.clone(), interval)));
    }
    Ok(())
}

/// Spawns the background tasks of a hub. Each has a name, and is restarted if it panics.
struct TaskSpawner<'a> {
    engine: &'a Engine,
    stopped: &'a CancellationToken,
}

impl TaskSpawner<'_> {
    /// Spawns a task that is dropped when the hub stops.
    fn spawn(&self, name: &'static str, mut make: impl FnMut() -> BoxFuture<'static, ()> + Send + 'static) {
        self.spawn_graceful(name, move |stopped| Box::pin(stopped.run_until_cancelled_owned(make()).map(drop)));
    }

    /// Spawns a task that is given the stop signal and finishes its work before it ends.
    fn spawn_graceful(
        &self,
        name: &'static str,
        make: impl FnMut(CancellationToken) -> BoxFuture<'static, ()> + Send + 'static,
    ) {
        // The shutdown waits until the token is dropped: after `make`, and with it the last reference that the task has to the store.
        let mut tracked = (make, self.engine.background_tasks.token());
        tasks::spawn(name, self.stopped.clone(), move |stopped| {
            let tracked = &mut tracked;
            tracked.0(stopped)
        });
    }
}

/// The change stream of a table: the one opened at start-up, or, for a task that was restarted, a new one that reports the gap.
fn take_or_watch(hub: &Weak<Engine>, first: &mut Option<Watcher>, table: Table) -> Watcher {
    let watch = || hub.upgrade().map(|engine| rewatch(&*engine.services.store, table));
    first.take().or_else(watch).unwrap_or_else(|| Box::pin(futures_util::stream::empty()))
}

/// Applies status changes of other nodes until the hub is dropped.
async fn sync_statuses(mut changes: Watcher, statuses: Weak<Statuses>) {
    while let Some(change) = changes.next().await {
        let Some(statuses) = statuses.upgrade() else { return };
        let mut read = match change {
            WatchEvent::Row(key, _) => statuses.refresh(&key).await,
            WatchEvent::Lagged => statuses.load_all(OnLoad::Emit).await,
        };
        // A missed change is never delivered again, so reload everything. Until the store answers, the cached statuses hold.
        while let Err(StoreError::Unavailable(_) | StoreError::Unknown(_)) = read {
            tokio::time::sleep(STORE_RETRY_DELAY).await;
            read = statuses.load_all(OnLoad::Emit).await;
        }
    }
}

/// Wakes `watch_offers` when another node stores evidence.
async fn watch_evidence(mut evidence: Watcher, availability_changed: Arc<Notify>) {
    while evidence.next().await.is_some() {
        availability_changed.notify_one();
    }
}

/// Wakes calls whose approval was answered on another node and counts those that were asked there, until the hub is dropped.
async fn watch_approvals(mut answers: Watcher, approvals: Weak<Approvals>, is_exclusive: bool) {
    let load_pending = async |approvals: &Approvals| {
        if let Err(error) = approvals.load_pending().await {
            tracing::debug!(%error, "pending approvals not loaded");
        }
    };
    if let Some(approvals) = approvals.upgrade() {
        load_pending(&approvals).await;
    }
    while let Some(change) = answers.next().await {
        let Some(approvals) = approvals.upgrade() else { return };
        match change {
            WatchEvent::Row(key, version) => {
                let Ok(id) = key.id.parse() else { continue };
                approvals.row_changed(id, version);
                approvals.wake_waiters(id);
                if !is_exclusive
                    && version.is_some()
                    && let Err(error) = approvals.row_appeared(&key, id).await
                {
                    tracing::debug!(%error, "approval of another node not counted");
                }
            }
            WatchEvent::Lagged => {
                approvals.wake_all_waiters();
                load_pending(&approvals).await;
            }
        }
    }
}

/// Removes expired rows at an interval, in batches, until the hub is dropped.
async fn sweep_expired(hub: Weak<Engine>, interval: Duration) {
    loop {
        tokio::time::sleep(interval).await;
        let Some(engine) = hub.upgrade() else { return };
        let now = engine.services.clock.now();
        let mut stores = engine.services.state.store_router().non_hub_stores();
        if engine.nodes.is_maintainer() {
            stores.push(engine.services.store.clone());
        }
        for store in stores {
            while let Ok(SWEEP_BATCH_SIZE) = store.sweep(SWEEP_BATCH_SIZE, now).await {
                tokio::task::yield_now().await;
            }
        }
    }
}

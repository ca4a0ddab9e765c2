//! What a hub does by itself while it lives: hears what other nodes write, tells holders of offers, closes what the dead left
//! open, clears away.
//!
//! In: the hub's moving parts. Out: tasks that end with the hub. Each asks the room it works for; nothing is decided here.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use futures_core::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::recovery::{self, Recovery};
use crate::{
    approvals::Approvals,
    batched_records::write_batched,
    engine::Engine,
    events,
    journal::keep_lease,
    statuses::{OnLoad, Statuses},
    tasks::supervise,
    threads,
};
use toolhub_storage::backend::{StoreError, Table, WatchEvent, Watcher};

/// How many expired rows are removed at a time.
const SWEEP_BATCH_SIZE: usize = 1000;
/// How many open calls are closed before a hub is ready; the others follow.
const MAX_STARTUP_RECOVERIES: usize = 2_000;
/// How soon a store that did not answer is asked again.
const STORE_RETRY_DELAY: Duration = Duration::from_secs(1);

/// Reads what the store knows of tools, and begins everything that goes on until the hub is `gone`. Threads that are idle
/// for longer than `idle_threads` are swept, and every `cleanup` what has expired; neither where nothing is said.
pub(super) async fn start_tasks(
    engine: &Arc<Engine>,
    stopped: &CancellationToken,
    idle_threads: Option<Duration>,
    cleanup: Option<Duration>,
) -> Result<(), StoreError> {
    let Engine { services, journal, statuses, approvals, thread_store: book, .. } = &**engine;
    // Watched before it is read, so that no change falls in between.
    let changes = services.store.watch(Table::Statuses);
    let answers = services.store.watch(Table::Approvals);
    let evidence = services.store.watch(Table::Evidence);
    statuses.load_all(OnLoad::Silent).await?;
    // Whoever has the store alone knows at once that what others left open is of the dead.
    let mut recovery = Recovery::default();
    let looked =
        if journal.store_is_exclusive { Some(recovery.scan(engine, MAX_STARTUP_RECOVERIES).await) } else { None };
    let nodes = (!journal.store_is_exclusive).then(|| services.store.watch(Table::Nodes));
    let tasks = TaskSpawner { engine, stopped };
    let weak = || Arc::downgrade(engine);
    if let Some(kept) = engine.event_log.clone() {
        tasks.spawn_graceful("event log", move |gone| Box::pin(events::run_event_log(kept.clone(), gone)));
    }
    let (hub, mut first, statuses) = (weak(), Some(changes), Arc::downgrade(statuses));
    tasks.spawn("status watch", move || {
        Box::pin(sync_statuses(take_or_watch(&hub, &mut first, Table::Statuses), statuses.clone()))
    });
    let (hub, mut first, approvals) = (weak(), Some(answers), Arc::downgrade(approvals));
    tasks.spawn("approval watch", move || {
        Box::pin(watch_approvals(take_or_watch(&hub, &mut first, Table::Approvals), approvals.clone()))
    });
    let (hub, mut first, stirred) = (weak(), Some(evidence), services.availability_changed.clone());
    tasks.spawn("evidence watch", move || {
        Box::pin(watch_evidence(take_or_watch(&hub, &mut first, Table::Evidence), stirred.clone()))
    });
    let (hub, stirred) = (weak(), services.availability_changed.clone());
    tasks.spawn("offer watch", move || Box::pin(super::offer::watch_offers(hub.clone(), stirred.clone())));
    let rooms = Arc::downgrade(&services.instances);
    tasks.spawn("idle instances", move || Box::pin(threads::run_idle_sweeper(rooms.clone())));
    let book = Arc::downgrade(book);
    tasks.spawn("thread activity", move || Box::pin(threads::run_activity_flusher(book.clone())));
    let (hub, mut first) = (weak(), Some((recovery, looked, nodes)));
    tasks.spawn("call recovery", move || {
        let (recovery, looked, nodes) = first.take().unwrap_or_else(|| {
            let shared = hub.upgrade().filter(|engine| !engine.journal.store_is_exclusive);
            (Recovery::default(), None, shared.map(|engine| engine.services.store.watch(Table::Nodes)))
        });
        let journal = hub.upgrade().map(|engine| engine.journal.clone());
        let hub = hub.clone();
        Box::pin(async move {
            if let Some(journal) = journal {
                recovery::recover((hub, journal), recovery, looked, nodes).await;
            }
        })
    });
    let hub = weak();
    tasks.spawn("health checks", move || Box::pin(super::health_checks::run(hub.clone())));
    if !journal.store_is_exclusive {
        let (journal, clock, live) = (journal.clone(), services.clock.clone(), engine.live_calls.clone());
        tasks.spawn_graceful("node lease", move |gone| {
            Box::pin(keep_lease(journal.clone(), clock.clone(), live.clone(), gone))
        });
    }
    if let Some(records) = engine.batched_records.clone() {
        tasks.spawn_graceful("read-only call records", move |gone| Box::pin(write_batched(records.clone(), gone)));
    }
    if let Some(idle) = idle_threads {
        let hub = weak();
        tasks.spawn("idle threads", move || Box::pin(super::threads::sweep_idle_threads(hub.clone(), idle)));
    }
    if let Some(rest) = services.state.session_sweep_interval() {
        let hub = weak();
        tasks.spawn("state sessions", move || Box::pin(super::sessions::run_expiry(hub.clone(), rest)));
    }
    if let Some(every) = cleanup {
        let hub = weak();
        tasks.spawn("expired rows", move || Box::pin(sweep_expired(hub.clone(), every)));
    }
    Ok(())
}

/// Starts the tasks of a hub. Each has a name, and is started again if it panics.
struct TaskSpawner<'a> {
    engine: &'a Engine,
    stopped: &'a CancellationToken,
}

impl TaskSpawner<'_> {
    /// A task that is cut off when the hub is gone.
    fn spawn(&self, name: &'static str, mut make: impl FnMut() -> BoxFuture<'static, ()> + Send + 'static) {
        self.spawn_graceful(name, move |gone| Box::pin(gone.run_until_cancelled_owned(make()).map(drop)));
    }

    /// A task that has something left to do when the hub is gone, and ends by itself then.
    fn spawn_graceful(
        &self,
        name: &'static str,
        mut make: impl FnMut(CancellationToken) -> BoxFuture<'static, ()> + Send + 'static,
    ) {
        let (gone, stop) = (self.stopped.clone(), self.stopped.clone());
        let task = supervise(name, stop, Box::new(move || make(gone.clone())));
        self.engine.background_tasks.spawn_on(task, &self.engine.runtime);
    }
}

/// The changes of a table: as they were watched from the beginning, or, for a task that is started again, from now on.
fn take_or_watch(hub: &Weak<Engine>, first: &mut Option<Watcher>, table: Table) -> Watcher {
    let again = || hub.upgrade().map(|engine| engine.services.store.watch(table));
    first.take().or_else(again).unwrap_or_else(|| Box::pin(futures_util::stream::empty()))
}

/// Learns what other nodes write about tools, for as long as the hub lives.
async fn sync_statuses(mut changes: Watcher, statuses: Weak<Statuses>) {
    while let Some(change) = changes.next().await {
        let Some(statuses) = statuses.upgrade() else { return };
        let mut read = match change {
            WatchEvent::Row(key, _) => statuses.refresh(&key).await,
            WatchEvent::Lagged => statuses.load_all(OnLoad::Emit).await,
        };
        // A change that was missed would be missed for ever. Until the store answers, this node goes by what it knows.
        while let Err(StoreError::Unavailable(_) | StoreError::Unknown(_)) = read {
            tokio::time::sleep(STORE_RETRY_DELAY).await;
            read = statuses.load_all(OnLoad::Emit).await;
        }
    }
}

/// Wakes whoever tells the holders of offers when a thread has achieved something on another node.
async fn watch_evidence(mut evidence: Watcher, stirred: Arc<Notify>) {
    while evidence.next().await.is_some() {
        stirred.notify_one();
    }
}

/// Wakes calls that wait for a person when somebody answered on another node, for as long as the hub lives.
async fn watch_approvals(mut answers: Watcher, approvals: Weak<Approvals>) {
    if let Some(approvals) = approvals.upgrade()
        && let Err(error) = approvals.load_pending().await
    {
        tracing::debug!(%error, "the questions that were asked before could not be counted");
    }
    while let Some(change) = answers.next().await {
        let Some(approvals) = approvals.upgrade() else { return };
        match change {
            WatchEvent::Row(key, version) => key.id.parse().map_or((), |id| {
                approvals.row_changed(id, version);
                approvals.wake_waiters(id);
            }),
            WatchEvent::Lagged => approvals.wake_all_waiters(),
        }
    }
}

/// Removes expired rows now and then, in small steps, for as long as the hub lives.
async fn sweep_expired(hub: Weak<Engine>, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        let Some(engine) = hub.upgrade() else { return };
        let now = engine.services.clock.now();
        let mut stores = engine.services.state.store_router().non_hub_stores();
        stores.push(engine.services.store.clone());
        for store in stores {
            while let Ok(SWEEP_BATCH_SIZE) = store.sweep(SWEEP_BATCH_SIZE, now).await {
                tokio::task::yield_now().await;
            }
        }
    }
}

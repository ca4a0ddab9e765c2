//! What a hub does by itself while it lives: hears what other nodes write, tells holders of offers, closes what the dead left
//! open, clears away.
//!
//! In: the hub's moving parts. Out: tasks that end with the hub. Each asks the room it works for; nothing is decided here.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use futures_util::StreamExt;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::recovery::{self, Recovery};
use crate::{
    approvals::Approvals,
    batched_records::write_batched,
    engine::Engine,
    events,
    journal::keep_lease,
    statuses::{Statuses, Told},
    threads,
};
use toolhub_storage::backend::{Changed, StoreError, Table, Watcher};

/// How many expired rows are removed at a time.
const SWEEP_AT_ONCE: usize = 1000;
/// How many open calls are closed before a hub is ready; the others follow.
const AT_START: usize = 2_000;
/// How soon a store that did not answer is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Reads what the store knows of tools, and begins everything that goes on until the hub is `gone`. Threads that are idle
/// for longer than `idle_threads` are swept, and every `cleanup` what has expired; neither where nothing is said.
pub(super) async fn begin(
    engine: &Arc<Engine>,
    gone: &CancellationToken,
    idle_threads: Option<Duration>,
    cleanup: Option<Duration>,
) -> Result<(), StoreError> {
    let Engine { services, journal, statuses, approvals, book, own, runtime, .. } = &**engine;
    // Watched before it is read, so that no change falls in between.
    let changes = services.store.watch(Table::Statuses);
    let answers = services.store.watch(Table::Approvals);
    let evidence = services.store.watch(Table::Evidence);
    statuses.follow(Told::Already).await?;
    // Whoever has the store alone knows at once that what others left open is of the dead.
    let mut recovery = Recovery::default();
    let looked = if journal.alone { Some(recovery.look(engine, AT_START).await) } else { None };
    let nodes = (!journal.alone).then(|| services.store.watch(Table::Nodes));
    let weak = || Arc::downgrade(engine);
    let until_gone = || gone.clone();
    if let Some(kept) = &engine.kept_events {
        own.spawn_on(events::keep(kept.clone(), until_gone()), runtime);
    }
    own.spawn_on(until_gone().run_until_cancelled_owned(listen(changes, Arc::downgrade(statuses))), runtime);
    own.spawn_on(until_gone().run_until_cancelled_owned(hear(answers, Arc::downgrade(approvals))), runtime);
    own.spawn_on(until_gone().run_until_cancelled_owned(stir(evidence, services.stirred.clone())), runtime);
    own.spawn_on(
        until_gone().run_until_cancelled_owned(super::offer::watch(weak(), services.stirred.clone())),
        runtime,
    );
    own.spawn_on(until_gone().run_until_cancelled_owned(threads::drop_idle(Arc::downgrade(&services.rooms))), runtime);
    own.spawn_on(until_gone().run_until_cancelled_owned(threads::keep(Arc::downgrade(book))), runtime);
    own.spawn_on(
        until_gone().run_until_cancelled_owned(recovery::recover((weak(), journal.clone()), recovery, looked, nodes)),
        runtime,
    );
    own.spawn_on(until_gone().run_until_cancelled_owned(super::checks::ask(weak())), runtime);
    if !journal.alone {
        own.spawn_on(keep_lease(journal.clone(), services.clock.clone(), engine.live.clone(), until_gone()), runtime);
    }
    if let Some(plain) = &engine.batched_records {
        own.spawn_on(write_batched(plain.clone(), until_gone()), runtime);
    }
    if let Some(idle) = idle_threads {
        own.spawn_on(until_gone().run_until_cancelled_owned(super::threads::sweep(weak(), idle)), runtime);
    }
    if let Some(rest) = services.state.session_rest() {
        own.spawn_on(until_gone().run_until_cancelled_owned(super::sessions::end(weak(), rest)), runtime);
    }
    if let Some(every) = cleanup {
        own.spawn_on(until_gone().run_until_cancelled_owned(sweep(weak(), every)), runtime);
    }
    Ok(())
}

/// Learns what other nodes write about tools, for as long as the hub lives.
async fn listen(mut changes: Watcher, statuses: Weak<Statuses>) {
    while let Some(change) = changes.next().await {
        let Some(statuses) = statuses.upgrade() else { return };
        let mut read = match change {
            Changed::Row(key, _) => statuses.refresh(&key).await,
            Changed::Missed => statuses.follow(Told::NotYet).await,
        };
        // A change that was missed would be missed for ever. Until the store answers, this node goes by what it knows.
        while let Err(StoreError::Unavailable(_) | StoreError::Unknown(_)) = read {
            tokio::time::sleep(ASK_AGAIN).await;
            read = statuses.follow(Told::NotYet).await;
        }
    }
}

/// Wakes whoever tells the holders of offers when a thread has achieved something on another node.
async fn stir(mut evidence: Watcher, stirred: Arc<Notify>) {
    while evidence.next().await.is_some() {
        stirred.notify_one();
    }
}

/// Wakes calls that wait for a person when somebody answered on another node, for as long as the hub lives.
async fn hear(mut answers: Watcher, approvals: Weak<Approvals>) {
    if let Some(approvals) = approvals.upgrade()
        && let Err(error) = approvals.count_old().await
    {
        tracing::debug!(%error, "the questions that were asked before could not be counted");
    }
    while let Some(change) = answers.next().await {
        let Some(approvals) = approvals.upgrade() else { return };
        match change {
            Changed::Row(key, version) => key.id.parse().map_or((), |id| {
                approvals.written(id, version);
                approvals.stir(id);
            }),
            Changed::Missed => approvals.stir_all(),
        }
    }
}

/// Removes expired rows now and then, in small steps, for as long as the hub lives.
async fn sweep(hub: Weak<Engine>, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        let Some(engine) = hub.upgrade() else { return };
        let now = engine.services.clock.now();
        let mut stores = engine.services.state.homes().elsewhere();
        stores.push(engine.services.store.clone());
        for store in stores {
            while let Ok(SWEEP_AT_ONCE) = store.sweep(SWEEP_AT_ONCE, now).await {
                tokio::task::yield_now().await;
            }
        }
    }
}

//! Passes events between the nodes of a shared store: what a call or run does on one node reaches listeners on the others.
//!
//! In: the threads that listeners of this node follow, and the events of this node in threads that other nodes follow. Out: rows that name the
//! followed threads; rows with events; and the events of other nodes, delivered to the subscribers here. Nothing is written for threads that
//! no node follows. Each node writes its events to a ring of rows, in numbered portions; a follower that misses one delivers a
//! `StreamReset` instead. Events that were missed are not sent again: listeners read the records of what they follow.

mod followed;
mod followers;
mod outgoing;
mod portion;

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::{FutureExt, StreamExt};
use smol_str::SmolStr;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use followed::Followed;
pub(super) use followed::FollowedThread;
use followers::FollowRow;
pub(super) use outgoing::Outgoing;
use portion::{PORTION_TTL, Portion, PortionRow};

use super::Events;
use toolhub_storage::{
    backend::{
        Backend, Batch, Change, Durability, Expect, Partition, PartitionKind, RowKey, Scan, Scope, StoreError, Table,
        WatchEvent, Watcher, Write, decode, encode, read_all,
    },
    clock::Clock,
};
use toolhub_types::ids::{Tenant, ThreadKey};

const LAYOUT: u32 = 1;
/// How long the row of a followed thread holds that is not renewed.
const FOLLOW_TTL: Duration = Duration::from_secs(60);
const RENEWAL_INTERVAL: Duration = Duration::from_secs(20);
/// Shortest time between two portions of a node.
const FLUSH_INTERVAL: Duration = Duration::from_millis(20);
/// Number of rows per batch, and of notifications that are handled together.
const BATCH_SIZE: usize = 100;
/// How long a listener waits at most until the other nodes know which thread it follows.
const ANNOUNCEMENT_TIMEOUT: Duration = Duration::from_secs(1);
/// Delay before the store is asked again that did not answer, or ended a watch.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The relay of one node.
pub(crate) struct Relay {
    events: Events,
    store: Arc<dyn Backend>,
    clock: Arc<dyn Clock>,
    node: SmolStr,
    outgoing: Arc<Outgoing>,
    followed: Arc<Followed>,
    /// The number of the last portion that this node has written.
    last_number: AtomicU64,
}

/// What the task of a relay remembers.
#[derive(Default)]
struct Progress {
    /// The number of the next portion of each other node.
    expected: HashMap<SmolStr, u64>,
    /// Followed threads that have a row.
    written: HashSet<ThreadKey>,
    /// Whether other nodes may have missed for a while that this one follows a thread.
    is_late: bool,
}

impl Relay {
    /// The relay of the node with this id.
    pub(crate) fn new(store: Arc<dyn Backend>, clock: Arc<dyn Clock>, events: Events, node: SmolStr) -> Self {
        let (outgoing, followed) = (Arc::new(Outgoing::default()), Arc::new(Followed::default()));
        events.attach_relay(outgoing.clone());
        Self { events, store, clock, node, outgoing, followed, last_number: AtomicU64::new(0) }
    }

    /// Follows a thread while the returned value exists.
    pub(crate) fn follow(&self, thread: ThreadKey) -> FollowedThread {
        self.followed.add(thread)
    }

    /// Waits until the nodes have been notified that this one follows the thread, a second at most. If that takes longer, its listeners get
    /// a [`StreamReset`](toolhub_types::event_kind::EventKind::StreamReset) afterwards.
    pub(crate) async fn announced(&self, thread: &ThreadKey) {
        self.followed.announced(thread, ANNOUNCEMENT_TIMEOUT).await;
    }

    /// Handles changes of rows.
    async fn handle(&self, changes: Vec<WatchEvent>, progress: &mut Progress) {
        let mut portions = Vec::new();
        for change in changes {
            let (key, exists) = match change {
                WatchEvent::Row(key, version) => (key, version.is_some()),
                WatchEvent::Lagged => {
                    portions.clear();
                    progress.expected.clear();
                    self.load_followers().await;
                    // The rows may have expired meanwhile.
                    progress.written.clear();
                    self.followed.forget_announcements();
                    progress.is_late = true;
                    self.followed.check_again();
                    continue;
                }
            };
            if let Some(row) = FollowRow::parse(&key.id) {
                if row.node != self.node {
                    let until = exists.then(|| self.clock.instant() + FOLLOW_TTL);
                    self.outgoing.set_follower(row.thread, row.node, until);
                } else if exists && self.followed.announce(&row.thread) {
                    self.events.deliver_reset(self.clock.now(), &row.thread);
                }
            } else if exists && PortionRow::parse(&key.id).is_some_and(|row| row.node != self.node) {
                portions.push(key);
            }
        }
        if self.followed.is_empty() {
            // The next portion that matters may have any number.
            progress.expected.clear();
        } else if !portions.is_empty() {
            portions.sort_unstable_by(|a, b| a.id.cmp(&b.id));
            portions.dedup();
            if let Err(error) = self.deliver(&portions, progress).await {
                tracing::debug!(%error, "events of other nodes not read");
                progress.expected.clear();
                self.reset_followed();
            }
        }
    }

    /// Delivers the portions in these rows.
    async fn deliver(&self, keys: &[RowKey], progress: &mut Progress) -> Result<(), StoreError> {
        let rows = self.store.load(keys, self.clock.now()).await?;
        let mut portions: Vec<(SmolStr, Portion)> = Vec::new();
        for (key, row) in keys.iter().zip(rows) {
            let (Some(row), Some(PortionRow { node, .. })) = (row, PortionRow::parse(&key.id)) else { continue };
            match decode(Table::Relay, &key.id, LAYOUT, &row) {
                Ok((portion, _)) => portions.push((node, portion)),
                // Its events are missing, which the next number shows.
                Err(error) => error.log_skipped(),
            }
        }
        portions.sort_by(|(a_node, a), (b_node, b)| (a_node, a.number).cmp(&(b_node, b.number)));
        for (node, portion) in portions {
            let is_missing = match progress.expected.get(&node) {
                Some(expected) if portion.number < *expected => continue,
                Some(expected) => portion.number > *expected,
                None => false,
            };
            progress.expected.insert(node, portion.number + 1);
            if is_missing || portion.is_incomplete {
                self.reset_followed();
            }
            for event in portion.events.into_iter().filter_map(portion::RelayedEvent::into_event) {
                if event.thread_key().is_some_and(|thread| self.followed.contains(&thread)) {
                    self.events.deliver_relayed(event);
                }
            }
        }
        Ok(())
    }

    /// Tells the listeners of all followed threads that events were missed.
    fn reset_followed(&self) {
        let now = self.clock.now();
        self.followed.threads().into_iter().for_each(|thread| self.events.deliver_reset(now, &thread));
    }

    /// Writes the queued events; returns whether the store took them.
    async fn flush(&self) -> bool {
        while let Some((events, is_incomplete)) = self.outgoing.take() {
            let number = self.last_number.fetch_add(1, Ordering::Relaxed) + 1;
            let id = PortionRow { node: self.node.clone(), number }.id();
            let events = events.iter().map(|event| &**event).collect();
            let written = async {
                let value = encode(Table::Relay, &id, &portion::Wire { number, is_incomplete, events })?;
                self.commit(vec![(id.clone(), put(value, self.clock.now() + PORTION_TTL))]).await
            };
            if let Err(error) = written.await {
                tracing::debug!(%error, "events for listeners on other nodes not written");
                self.outgoing.mark_incomplete();
                return false;
            }
        }
        true
    }

    /// Writes and removes rows of followed threads as listeners come and go.
    async fn sync_followed(&self, progress: &mut Progress) -> Result<(), StoreError> {
        let wanted = self.followed.threads();
        // One that lost its last listener and got another meanwhile is announced again, because the new listener waits for it.
        let added: Vec<_> = self.followed.unannounced().into_iter().collect();
        let removed: Vec<_> = progress.written.difference(&wanted).cloned().collect();
        self.put_followed(&added).await?;
        progress.written.extend(added);
        self.remove_followed(&removed).await?;
        removed.iter().for_each(|thread| _ = progress.written.remove(thread));
        if std::mem::take(&mut progress.is_late) {
            self.reset_followed();
        }
        Ok(())
    }

    async fn put_followed(&self, threads: &[ThreadKey]) -> Result<(), StoreError> {
        let expires = self.clock.now() + FOLLOW_TTL;
        for threads in threads.chunks(BATCH_SIZE) {
            let rows = threads.iter().map(|thread| (self.follow_row_id(thread), put(b"{}".as_slice().into(), expires)));
            self.commit(rows.collect()).await?;
        }
        Ok(())
    }

    async fn remove_followed(&self, threads: &[ThreadKey]) -> Result<(), StoreError> {
        for threads in threads.chunks(BATCH_SIZE) {
            let rows = threads.iter().map(|thread| (self.follow_row_id(thread), Change::Remove));
            self.commit(rows.collect()).await?;
        }
        Ok(())
    }

    fn follow_row_id(&self, thread: &ThreadKey) -> SmolStr {
        FollowRow { node: self.node.clone(), thread: thread.clone() }.id()
    }

    /// Reads which threads other nodes follow.
    async fn load_followers(&self) {
        let scan = Scan::new(Table::Relay, Scope::Partition(partition())).prefix(followers::PREFIX);
        match read_all(&*self.store, scan, self.clock.now()).await {
            Ok(rows) => {
                let until = self.clock.instant() + FOLLOW_TTL;
                for row in rows.iter().filter_map(|(key, _)| FollowRow::parse(&key.id)) {
                    if row.node != self.node {
                        self.outgoing.set_follower(row.thread, row.node, Some(until));
                    }
                }
            }
            // They renew their rows.
            Err(error) => tracing::debug!(%error, "threads that other nodes follow not read"),
        }
    }

    async fn commit(&self, changes: Vec<(SmolStr, Change)>) -> Result<(), StoreError> {
        let mut batch = Batch::new(partition());
        batch.writes.extend(changes.into_iter().map(|(id, change)| {
            let (table, expect, durability) = (Table::Relay, Expect::Any, Durability::KillSafe);
            Write { table, id, expect, change, durability }
        }));
        self.store.commit(batch, self.clock.now()).await.map(drop)
    }
}

fn put(value: Arc<[u8]>, expires: toolhub_types::timestamp::Timestamp) -> Change {
    Change::Put { value, schema: LAYOUT, expires: Some(expires) }
}

/// The rows of all nodes are in one partition: a thread's own would keep the thread in existence.
fn partition() -> Partition {
    Partition { tenant: Tenant::default(), kind: PartitionKind::Nodes }
}

/// Passes events on until the hub stops.
pub(crate) async fn run_relay(relay: Arc<Relay>, mut rows: Watcher, stopped: CancellationToken) {
    let mut progress = Progress::default();
    relay.load_followers().await;
    let (mut renew_at, mut flush_at) = (Instant::now() + RENEWAL_INTERVAL, Instant::now());
    loop {
        tokio::select! {
            () = stopped.cancelled() => break,
            change = rows.next() => match change {
                Some(change) => {
                    let mut changes = vec![change];
                    while changes.len() < BATCH_SIZE && let Some(Some(next)) = rows.next().now_or_never() {
                        changes.push(next);
                    }
                    relay.handle(changes, &mut progress).await;
                }
                None => {
                    let _ = stopped.run_until_cancelled(tokio::time::sleep(RETRY_DELAY)).await;
                    rows = relay.store.watch(Table::Relay);
                    relay.handle(vec![WatchEvent::Lagged], &mut progress).await;
                }
            },
            () = relay.outgoing.ready(flush_at) => {
                let interval = if relay.flush().await { FLUSH_INTERVAL } else { RETRY_DELAY };
                flush_at = Instant::now() + interval;
            }
            () = relay.followed.changed() => {
                if let Err(error) = relay.sync_followed(&mut progress).await {
                    tracing::debug!(%error, "followed threads not written; retrying");
                    progress.is_late = true;
                    renew_at = renew_at.min(Instant::now() + RETRY_DELAY);
                }
            }
            () = tokio::time::sleep_until(renew_at) => {
                renew_at = Instant::now() + RENEWAL_INTERVAL;
                relay.outgoing.remove_expired(relay.clock.instant());
                let written: Vec<_> = progress.written.iter().cloned().collect();
                match relay.put_followed(&written).await {
                    Ok(()) => relay.followed.check_again(),
                    Err(error) => {
                        tracing::debug!(%error, "followed threads not renewed; retrying");
                        progress.is_late = true;
                        renew_at = Instant::now() + RETRY_DELAY;
                    }
                }
            }
        }
    }
    relay.flush().await;
    let written: Vec<_> = progress.written.into_iter().collect();
    if let Err(error) = relay.remove_followed(&written).await {
        tracing::debug!(%error, "rows of followed threads not removed; they expire");
    }
}

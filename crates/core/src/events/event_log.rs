//! Persistent event log, for clients that reconnect.
//!
//! In: events about statuses, approvals and settings, as they are emitted. Out: rows of the table `events`, written in
//! the background and in order, and pages of them. Emitting never waits for the store; while it is unavailable, events
//! are queued up to a limit, and then the oldest are dropped. `shared_log` writes them to a store that other hubs use too.

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use smol_str::{SmolStr, format_smolstr};
use tokio::{runtime::Handle, sync::Mutex as AsyncMutex, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{Events, LogQueue, shared_log::Tail};
use toolhub_storage::{
    backend::{
        Backend, Batch, Change, Cursor, Durability, Expect, Partition, PartitionKind, Row, RowKey, Scan, Scope,
        StoreError, Table, WatchEvent, Watcher, Write, decode, encode,
    },
    clock::Clock,
};
use toolhub_types::{
    event_kind::EventKind,
    ids::{Tenant, ThreadId},
    timestamp::Timestamp,
};

pub(super) const LAYOUT: u32 = 1;
/// Number of events per write batch and per scan.
pub(super) const BATCH_SIZE: usize = 200;
/// Maximum number of events scanned for one page.
const MAX_SCANNED: usize = 2_000;
/// Retry interval after a failed write.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// How long subscribers wait for the numbers of events before they receive them without.
const MAX_NUMBERING: Duration = Duration::from_secs(2);
/// Event ids per millisecond. Ids follow the time, so that they increase across a restart even if the last ones were
/// not written, or were lost in a fail-over of a store's server. Only a hub that emits more than a million events per second would run
/// ahead of the clock.
const IDS_PER_MILLI: u64 = 1_024;
/// Sorts after the rows of all events, and before all other rows of their partition.
const AFTER_EVENTS: SmolStr = SmolStr::new_static("g");

/// The first event id of this time.
pub(super) fn first_id_at(time: Timestamp) -> u64 {
    u64::try_from(time.millis()).unwrap_or(0).saturating_mul(IDS_PER_MILLI)
}

/// An event in the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct StoredEvent {
    /// The event id, as subscribers received it.
    pub id: u64,
    /// Its name, such as `tool.status.changed`.
    pub event: SmolStr,
    /// When it happened.
    pub timestamp: Timestamp,
    /// The tenant it concerns; `None` if it concerns all.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tenant: Option<Tenant>,
    /// The thread it happened in.
    #[serde(rename = "threadId", skip_serializing_if = "Option::is_none", default)]
    pub thread: Option<ThreadId>,
    /// The other fields.
    #[serde(flatten)]
    pub data: Map<String, Value>,
}

/// A page of events, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct EventPage {
    /// The events.
    pub events: Vec<StoredEvent>,
    /// The cursor of the next page; `None` on the last page.
    pub next: Option<u64>,
}

/// Writes events to a store and reads them back.
pub(crate) struct EventLog {
    pub(super) queue: Arc<LogQueue>,
    /// Where the events of a shared store are delivered.
    pub(super) events: Events,
    /// Serializes writers, so that events are written in order.
    tail: AsyncMutex<Tail>,
    pub(super) store: Arc<dyn Backend>,
    pub(super) clock: Arc<dyn Clock>,
    /// The id of this hub, part of the row id.
    pub(super) node: SmolStr,
    pub(super) retention: Duration,
}

impl EventLog {
    /// `is_shared`: whether other hubs use the store too.
    pub(crate) fn new(
        (store, is_shared): (Arc<dyn Backend>, bool),
        clock: Arc<dyn Clock>,
        events: Events,
        node: SmolStr,
        retention: Duration,
    ) -> Self {
        let (queue, tail) = (Arc::new(LogQueue::new(is_shared)), AsyncMutex::default());
        Self { queue, events, tail, store, clock, node, retention }
    }

    /// The queue of events to write.
    pub(super) fn queue(&self) -> Arc<LogQueue> {
        self.queue.clone()
    }

    /// Starts to queue the events of the bus. Those that other nodes have stored before are not delivered.
    pub(crate) async fn attach(&self) -> Result<(), StoreError> {
        let last = self.last_id().await?;
        self.tail.lock().await.start_at(last);
        self.events.attach_log(self, last);
        Ok(())
    }

    /// The id after which a new hub starts counting: at least the last stored id.
    async fn last_id(&self) -> Result<u64, StoreError> {
        let now = self.clock.now();
        let mut scan = Scan::new(Table::Events, Scope::Partition(partition())).limit(1);
        (scan.descending, scan.after) = (true, Some(Cursor(row_key(AFTER_EVENTS))));
        let page = self.store.scan(scan, now).await?;
        let last = page.rows.first().and_then(|(key, _)| parse_id(&key.id)).unwrap_or(0);
        // Other nodes may have stored an event within this millisecond, so on a shared store only stored ones count.
        Ok(if self.queue.is_shared() { last } else { last.max(first_id_at(now)) })
    }

    /// A page of the events after an id that concern a tenant or all.
    pub(crate) async fn since(&self, tenant: &Tenant, after: u64) -> Result<EventPage, StoreError> {
        let mut scan = scan_after(after);
        let (mut page, mut scanned) = (EventPage::default(), 0);
        loop {
            let found = self.store.scan(scan.clone(), self.clock.now()).await?;
            scanned += found.rows.len();
            let events = found.rows.iter().filter_map(|(key, row)| read(key, row));
            page.events.extend(events.filter(|event| event.tenant.as_ref().is_none_or(|owner| owner == tenant)));
            let Some(next) = found.next.filter(|next| parse_id(&next.0.id).is_some()) else { return Ok(page) };
            if page.events.len() >= BATCH_SIZE || scanned >= MAX_SCANNED {
                page.next = parse_id(&next.0.id);
                return Ok(page);
            }
            scan.after = Some(next);
        }
    }

    /// Writes all queued events. In a separate task, so that dropping this future does not interrupt the write.
    pub(crate) async fn flush(self: &Arc<Self>, runtime: &Handle) {
        let log = self.clone();
        let _ = runtime.spawn(async move { log.write_all().await }).await;
    }

    async fn write_all(&self) -> Result<(), StoreError> {
        let mut tail = self.tail.lock().await;
        match self.queue.is_shared() {
            true => self.write_shared(&mut tail).await,
            false => self.write_own().await,
        }
    }

    /// Writes the events, which this hub has numbered.
    async fn write_own(&self) -> Result<(), StoreError> {
        loop {
            let queued = self.queue.unstored(BATCH_SIZE);
            let Some((last, _)) = queued.last() else { return Ok(()) };
            let now = self.clock.now();
            let mut batch = Batch::new(partition());
            for (_, queued) in &queued {
                let id = row_id(queued.event.id.unwrap_or_default(), &self.node);
                batch.writes.push(self.put(id, &*queued.event, now)?);
            }
            self.store.commit(batch, now).await?;
            self.queue.remove_until(*last);
        }
    }

    /// The write of a row that lasts as long as events.
    pub(super) fn put(&self, id: SmolStr, record: &impl Serialize, now: Timestamp) -> Result<Write, StoreError> {
        let value = encode(Table::Events, &id, record)?;
        let change = Change::Put { value, schema: LAYOUT, expires: Some(now + self.retention) };
        Ok(Write { table: Table::Events, id, expect: Expect::Any, change, durability: Durability::KillSafe })
    }

    /// Writes all queued events, and on a shared store delivers those of other nodes. Subscribers receive the queued ones without
    /// numbers if that takes too long.
    async fn write_or_deliver(&self) -> Result<(), StoreError> {
        let write = self.write_all();
        tokio::pin!(write);
        loop {
            match tokio::time::timeout(MAX_NUMBERING, &mut write).await {
                Ok(written) => return written,
                Err(_) => self.events.deliver_unnumbered(),
            }
        }
    }
}

impl StoredEvent {
    /// The event as it was emitted; `None` if this version does not know its kind.
    pub(super) fn into_event(self) -> Option<super::Event> {
        let Self { id, event, timestamp, tenant, thread, data } = self;
        let kind = EventKind::from_fields(&event, data)?;
        Some(super::Event { id: Some(id), timestamp, tenant, thread, kind })
    }
}

/// All events share one partition, so that they have one order; the tenant is in the event.
pub(super) fn partition() -> Partition {
    Partition { tenant: Tenant::default(), kind: PartitionKind::Events }
}

pub(super) fn row_key(id: SmolStr) -> RowKey {
    RowKey { partition: partition(), table: Table::Events, id }
}

/// The id of the row of an event. Those of one hub are unique, whichever hub has numbered them.
pub(super) fn row_id(id: u64, node: &str) -> SmolStr {
    format_smolstr!("{id:016x}-{node}")
}

/// The events after this one; after them, other rows of the partition.
pub(super) fn scan_after(id: u64) -> Scan {
    let mut scan = Scan::new(Table::Events, Scope::Partition(partition())).limit(BATCH_SIZE);
    // Sorts after the rows of all nodes with this event id.
    scan.after = Some(Cursor(row_key(format_smolstr!("{id:016x}~"))));
    scan
}

/// The event in a row; `None` if it cannot be read, or the row is of another kind.
pub(super) fn read(key: &RowKey, row: &Row) -> Option<StoredEvent> {
    parse_id(&key.id)?;
    match decode(Table::Events, &key.id, LAYOUT, row) {
        Ok((event, _)) => Some(event),
        Err(error) => {
            error.log_skipped();
            None
        }
    }
}

pub(super) fn parse_id(id: &str) -> Option<u64> {
    u64::from_str_radix(id.split_once('-')?.0, 16).ok()
}

/// Writes queued events until the hub stops, then flushes the rest. On a shared store, also delivers the events of other nodes.
pub(crate) async fn run_event_log(log: Arc<EventLog>, mut rows: Watcher, stopped: CancellationToken) {
    let mut failing_since = None;
    loop {
        if stopped.is_cancelled() {
            break;
        }
        match log.write_or_deliver().await {
            Ok(()) => failing_since = None,
            Err(error) => {
                tracing::warn!(%error, "event log write failed; retrying");
                let since = *failing_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= MAX_NUMBERING {
                    log.events.deliver_unnumbered();
                }
                let _ = stopped.run_until_cancelled(tokio::time::sleep(RETRY_INTERVAL)).await;
                continue;
            }
        }
        tokio::select! {
            biased;
            () = stopped.cancelled() => break,
            () = log.queue.flush_needed.notified() => {}
            () = log.await_others(&mut rows) => {}
        }
    }
    let _ = log.write_or_deliver().await;
}

impl EventLog {
    /// Waits until another node has stored an event. Pending for ever if the store is not shared.
    async fn await_others(&self, rows: &mut Watcher) {
        if !self.queue.is_shared() {
            return std::future::pending().await;
        }
        loop {
            match rows.next().await {
                Some(WatchEvent::Row(key, Some(_))) => {
                    let last = self.tail.lock().await.last();
                    if parse_id(&key.id).is_some_and(|id| id > last) {
                        return;
                    }
                }
                Some(WatchEvent::Row(_, None)) => {}
                Some(WatchEvent::Lagged) => return,
                None => {
                    tokio::time::sleep(RETRY_INTERVAL).await;
                    *rows = self.store.watch(Table::Events);
                    return;
                }
            }
        }
    }
}

//! Persistent event log, for clients that reconnect.
//!
//! In: events about statuses, approvals and settings, as they are emitted. Out: rows of the table `events`, written in
//! the background and in order, and pages of them. Emitting never waits for the store; while it is unavailable, events
//! are queued up to a limit, and then the oldest are dropped.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use smol_str::{SmolStr, format_smolstr};
use tokio::{
    runtime::Handle,
    sync::{Mutex as AsyncMutex, Notify},
};
use tokio_util::sync::CancellationToken;

use super::Event;
use toolhub_storage::{
    backend::{
        Backend, Batch, Change, Cursor, Durability, Expect, Partition, PartitionKind, RowKey, Scan, Scope, StoreError,
        Table, Write, decode, encode,
    },
    clock::Clock,
};
use toolhub_types::{
    ids::{Tenant, ThreadId},
    timestamp::Timestamp,
};

const LAYOUT: u32 = 1;
/// Maximum number of events queued while the store is unavailable.
const MAX_QUEUED: usize = 10_000;
/// Number of events per write batch and per scan.
const BATCH_SIZE: usize = 200;
/// Maximum number of events scanned for one page.
const MAX_SCANNED: usize = 2_000;
/// Retry interval after a failed write.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Event ids per millisecond. Ids follow the time, so that they increase across a restart even if the last ones were
/// not written, and so that the ids of hubs that share a store interleave: a client that resumes after one hub's id
/// misses no later event of the others. Only a hub that emits more than a million events per second would run ahead of
/// the clock.
const IDS_PER_MILLI: u64 = 1_024;

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

/// Events that wait to be written, in order. Subscriptions hold it and may outlive the hub, so it does not hold the
/// store.
#[derive(Default)]
pub(crate) struct LogQueue {
    events: Mutex<VecDeque<Arc<Event>>>,
    flush_needed: Notify,
}

impl LogQueue {
    /// Queues an event; returns whether an older one was dropped for it. Must be called in the order of their ids.
    pub(super) fn push(&self, event: Arc<Event>) -> bool {
        let mut events = self.lock();
        let is_full = events.len() == MAX_QUEUED;
        if is_full {
            events.pop_front();
            tracing::warn!("event log queue is full because the store is not writable; dropped the oldest event");
        }
        events.push_back(event);
        drop(events);
        self.flush_needed.notify_one();
        is_full
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<Event>>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes events to a store and reads them back.
pub(crate) struct EventLog {
    queue: Arc<LogQueue>,
    /// Serializes writers, so that events are written in order.
    write_lock: AsyncMutex<()>,
    store: Arc<dyn Backend>,
    clock: Arc<dyn Clock>,
    /// The id of this hub, part of the row id: two nodes may use the same event id.
    node: SmolStr,
    retention: Duration,
}

impl EventLog {
    pub(crate) fn new(store: Arc<dyn Backend>, clock: Arc<dyn Clock>, node: SmolStr, retention: Duration) -> Self {
        Self { queue: Arc::default(), write_lock: AsyncMutex::default(), store, clock, node, retention }
    }

    /// The queue of events to write.
    pub(crate) fn queue(&self) -> Arc<LogQueue> {
        self.queue.clone()
    }

    /// The id after which a new hub starts counting: at least the last stored id.
    pub(crate) async fn last_id(&self) -> Result<u64, StoreError> {
        let now = self.clock.now();
        let scan = Scan { descending: true, ..Scan::new(Table::Events, Scope::Partition(events_partition())).limit(1) };
        let page = self.store.scan(scan, now).await?;
        let last = page.rows.first().and_then(|(key, _)| parse_id(&key.id)).unwrap_or(0);
        Ok(last.max(first_id_at(now)))
    }

    /// A page of the events after an id that concern a tenant or all.
    pub(crate) async fn since(&self, tenant: &Tenant, after: u64) -> Result<EventPage, StoreError> {
        let mut scan = Scan::new(Table::Events, Scope::Partition(events_partition())).limit(BATCH_SIZE);
        // Sorts after the rows of all nodes with this event id.
        let id = format_smolstr!("{after:016x}~");
        scan.after = Some(Cursor(RowKey { partition: events_partition(), table: Table::Events, id }));
        let (mut page, mut scanned) = (EventPage::default(), 0);
        loop {
            let found = self.store.scan(scan.clone(), self.clock.now()).await?;
            scanned += found.rows.len();
            for (key, row) in &found.rows {
                match decode::<StoredEvent>(Table::Events, &key.id, LAYOUT, row) {
                    Ok((event, _)) if event.tenant.as_ref().is_none_or(|owner| owner == tenant) => {
                        page.events.push(event);
                    }
                    Ok(_) => {}
                    Err(error) => error.log_skipped(),
                }
            }
            let Some(next) = found.next else { return Ok(page) };
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
        let _guard = self.write_lock.lock().await;
        loop {
            let events: Vec<Arc<Event>> = self.queue.lock().iter().take(BATCH_SIZE).cloned().collect();
            let Some(last) = events.last().map(|event| event.id) else { return Ok(()) };
            let now = self.clock.now();
            let mut batch = Batch::new(events_partition());
            for event in &events {
                let id = format_smolstr!("{:016x}-{}", event.id, self.node);
                let value = encode(Table::Events, &id, &**event)?;
                let change = Change::Put { value, schema: LAYOUT, expires: Some(now + self.retention) };
                let (expect, durability) = (Expect::Any, Durability::KillSafe);
                batch.writes.push(Write { table: Table::Events, id, expect, change, durability });
            }
            self.store.commit(batch, now).await?;
            let mut queue = self.queue.lock();
            while queue.front().is_some_and(|event| event.id <= last) {
                queue.pop_front();
            }
        }
    }
}

/// All events share one partition, so that they have one order; the tenant is in the event.
fn events_partition() -> Partition {
    Partition { tenant: Tenant::default(), kind: PartitionKind::Events }
}

fn parse_id(id: &str) -> Option<u64> {
    u64::from_str_radix(id.split('-').next()?, 16).ok()
}

/// Writes queued events until the hub stops, then flushes the rest.
pub(crate) async fn run_event_log(log: Arc<EventLog>, stopped: CancellationToken) {
    while stopped.run_until_cancelled(log.queue.flush_needed.notified()).await.is_some() {
        if let Err(error) = log.write_all().await {
            tracing::warn!(%error, "event log write failed; retrying");
            let _ = stopped.run_until_cancelled(tokio::time::sleep(RETRY_INTERVAL)).await;
            log.queue.flush_needed.notify_one();
        }
    }
    let _ = log.write_all().await;
}

//! The events that are kept, for whoever was away when they were told.
//!
//! In: events about statuses, questions to people and settings, as they are told. Out: rows of the table `events`, written in the
//! background and in order, and pages of them. Nobody waits for the store; while it does not answer, so many wait here, and
//! then the oldest are lost.

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
/// How many events wait for a store that does not answer.
const MAX_QUEUED: usize = 10_000;
/// How many are written in one batch, and read at once.
const BATCH_SIZE: usize = 200;
/// How many are looked at for one page.
const MAX_SCANNED: usize = 2_000;
/// How soon a store that did not answer is asked again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// A millisecond has so many numbers. Numbers follow the time, so that they go on after a restart whether or not the last
/// ones were written, and so that those of hubs that share a store lie among each other: whoever has heard of one misses
/// nothing later of the others. Only a hub that told more than a million events a second would be ahead of it.
const IDS_PER_MILLI: u64 = 1_024;

/// The first number of events that happen at this time.
pub(super) fn first_id_at(time: Timestamp) -> u64 {
    u64::try_from(time.millis()).unwrap_or(0).saturating_mul(IDS_PER_MILLI)
}

/// An event that was kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct StoredEvent {
    /// The number listeners knew it by.
    pub id: u64,
    /// Its name, such as `tool.status.changed`.
    pub event: SmolStr,
    /// When it happened.
    pub timestamp: Timestamp,
    /// Whose news it is; everybody's where absent.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tenant: Option<Tenant>,
    /// The conversation it happened in.
    #[serde(rename = "threadId", skip_serializing_if = "Option::is_none", default)]
    pub thread: Option<ThreadId>,
    /// What else it has to tell.
    #[serde(flatten)]
    pub data: Map<String, Value>,
}

/// Some events, the oldest first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct EventPage {
    /// The events.
    pub events: Vec<StoredEvent>,
    /// Where to go on; `None` at the end.
    pub next: Option<u64>,
}

/// Events that wait to be written, in order. Listeners hold it, and may outlive the hub; so it does not hold the store.
#[derive(Default)]
pub(crate) struct LogQueue {
    events: Mutex<VecDeque<Arc<Event>>>,
    flush_needed: Notify,
}

impl LogQueue {
    /// Keeps an event; says whether another was lost for it. To be called in the order of their numbers.
    pub(super) fn push(&self, event: Arc<Event>) -> bool {
        let mut events = self.lock();
        let full = events.len() == MAX_QUEUED;
        if full {
            events.pop_front();
            tracing::warn!("the store does not answer, and events that were to be kept are lost");
        }
        events.push_back(event);
        drop(events);
        self.flush_needed.notify_one();
        full
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<Event>>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps events in a store.
pub(crate) struct EventLog {
    queue: Arc<LogQueue>,
    /// Whoever writes does so alone: events are written in order.
    write_lock: AsyncMutex<()>,
    store: Arc<dyn Backend>,
    clock: Arc<dyn Clock>,
    /// Numbers of two nodes may be alike; their rows are not.
    node: SmolStr,
    retention: Duration,
}

impl EventLog {
    pub(crate) fn new(store: Arc<dyn Backend>, clock: Arc<dyn Clock>, node: SmolStr, keep: Duration) -> Self {
        Self { queue: Arc::default(), write_lock: AsyncMutex::default(), store, clock, node, retention: keep }
    }

    /// Where events are handed in.
    pub(crate) fn queue(&self) -> Arc<LogQueue> {
        self.queue.clone()
    }

    /// The number before the first one of a new hub: behind all that were ever kept.
    pub(crate) async fn last_id(&self) -> Result<u64, StoreError> {
        let now = self.clock.now();
        let scan = Scan { descending: true, ..Scan::new(Table::Events, Scope::Partition(events_partition())).limit(1) };
        let page = self.store.scan(scan, now).await?;
        let last = page.rows.first().and_then(|(key, _)| parse_id(&key.id)).unwrap_or(0);
        Ok(last.max(first_id_at(now)))
    }

    /// A page of the events after a number that concern a tenant or everybody.
    pub(crate) async fn since(&self, tenant: &Tenant, after: u64) -> Result<EventPage, StoreError> {
        let mut scan = Scan::new(Table::Events, Scope::Partition(events_partition())).limit(BATCH_SIZE);
        // Behind the rows of all nodes with this number.
        let id = format_smolstr!("{after:016x}~");
        scan.after = Some(Cursor(RowKey { partition: events_partition(), table: Table::Events, id }));
        let (mut page, mut looked_at) = (EventPage::default(), 0);
        loop {
            let found = self.store.scan(scan.clone(), self.clock.now()).await?;
            looked_at += found.rows.len();
            for (key, row) in &found.rows {
                match decode::<StoredEvent>(Table::Events, &key.id, LAYOUT, row) {
                    Ok((event, _)) if event.tenant.as_ref().is_none_or(|whose| whose == tenant) => {
                        page.events.push(event);
                    }
                    Ok(_) => {}
                    Err(error) => error.log_skipped(),
                }
            }
            let Some(next) = found.next else { return Ok(page) };
            if page.events.len() >= BATCH_SIZE || looked_at >= MAX_SCANNED {
                page.next = parse_id(&next.0.id);
                return Ok(page);
            }
            scan.after = Some(next);
        }
    }

    /// Writes down what waits. On a task of its own: whoever waits for it may go away.
    pub(crate) async fn flush(self: &Arc<Self>, runtime: &Handle) {
        let kept = self.clone();
        let _ = runtime.spawn(async move { kept.write_all().await }).await;
    }

    async fn write_all(&self) -> Result<(), StoreError> {
        let _alone = self.write_lock.lock().await;
        loop {
            let some: Vec<Arc<Event>> = self.queue.lock().iter().take(BATCH_SIZE).cloned().collect();
            let Some(last) = some.last().map(|event| event.id) else { return Ok(()) };
            let now = self.clock.now();
            let mut batch = Batch::new(events_partition());
            for event in &some {
                let id = format_smolstr!("{:016x}-{}", event.id, self.node);
                let value = encode(Table::Events, &id, &**event)?;
                let change = Change::Put { value, schema: LAYOUT, expires: Some(now + self.retention) };
                let (expect, durability) = (Expect::Any, Durability::KillSafe);
                batch.writes.push(Write { table: Table::Events, id, expect, change, durability });
            }
            self.store.commit(batch, now).await?;
            let mut waiting = self.queue.lock();
            while waiting.front().is_some_and(|event| event.id <= last) {
                waiting.pop_front();
            }
        }
    }
}

/// They lie together, so that there is one order; whose they are is in them.
fn events_partition() -> Partition {
    Partition { tenant: Tenant::default(), kind: PartitionKind::Events }
}

fn parse_id(id: &str) -> Option<u64> {
    u64::from_str_radix(id.split('-').next()?, 16).ok()
}

/// Writes events down until the hub is gone, and then the rest.
pub(crate) async fn run_event_log(kept: Arc<EventLog>, gone: CancellationToken) {
    while gone.run_until_cancelled(kept.queue.flush_needed.notified()).await.is_some() {
        if let Err(error) = kept.write_all().await {
            tracing::warn!(%error, "events that are to be kept could not be written; they are written later");
            let _ = gone.run_until_cancelled(tokio::time::sleep(RETRY_INTERVAL)).await;
            kept.queue.flush_needed.notify_one();
        }
    }
    let _ = kept.write_all().await;
}

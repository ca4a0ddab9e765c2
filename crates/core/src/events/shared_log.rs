//! The event log of a store that several hubs use: gives events their numbers, in the order of the store, and delivers those of all
//! nodes in that order.
//!
//! In: queued events of this node. Out: their rows, and the events of all nodes to the subscribers of this one. A row names the last
//! number; each batch of events expects it unchanged, so batches of different nodes follow one another. All nodes see the change of a
//! status and emit an event about it: the first one stores it.

use std::collections::{HashMap, VecDeque};

use serde::{Deserialize, Serialize};
use smol_str::{SmolStr, format_smolstr};

use super::{
    Event,
    event_log::{BATCH_SIZE, EventLog, LAYOUT, first_id_at, parse_id, partition, read, row_id, row_key, scan_after},
    log_queue::{Numbered, QueuedEvent, Ticket},
};
use toolhub_storage::backend::{Batch, Change, Durability, Expect, Row, StoreError, Table, Write, decode, encode};
use toolhub_types::{status::ToolStatus, timestamp::Timestamp};

/// The row of the last number.
const HEAD_ID: SmolStr = SmolStr::new_static("head");
/// How often a batch is tried again after other nodes have stored events.
const MAX_ATTEMPTS: usize = 50;
/// For how long after a change of a status the events of nodes that saw an earlier record are dropped. The versions of a record start
/// again when its thread is deleted.
const STALE_MILLIS: i64 = 60_000;

/// Which change of a status an event is about.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StatusMark {
    /// The record of the status.
    pub(crate) record: SmolStr,
    /// The version of the record. A status also changes with time, so several changes may have the same.
    pub(crate) version: u64,
    /// The status from then on.
    pub(crate) status: ToolStatus,
}

/// The last change of a status of which there is an event.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct MarkRecord {
    version: u64,
    status: ToolStatus,
    at: Timestamp,
}

impl MarkRecord {
    /// Whether an event is about this change or an earlier one.
    fn includes(&self, mark: &StatusMark, at: Timestamp) -> bool {
        let is_stale = at.millis() < self.at.millis().saturating_add(STALE_MILLIS);
        self.status == mark.status
            || (self.version > mark.version && is_stale)
            || (self.version == mark.version && self.at > at)
    }
}

impl StatusMark {
    fn row_id(&self) -> SmolStr {
        format_smolstr!("status/{}", self.record)
    }
}

#[derive(Serialize, Deserialize)]
struct Head {
    last: u64,
}

/// Where this node is in the log.
#[derive(Default)]
pub(super) struct Tail {
    /// The last number that was delivered.
    last: u64,
    /// A batch that is stored and not yet delivered.
    stored: Option<NumberedBatch>,
    /// Batches that may be stored, the oldest first: the store did not answer. Each may still be applied as long as the row of the last
    /// number is unchanged.
    in_doubt: Vec<NumberedBatch>,
}

impl Tail {
    pub(super) fn start_at(&mut self, last: u64) {
        self.last = last;
    }

    pub(super) fn last(&self) -> u64 {
        self.last
    }
}

/// Events with their numbers; `None` for those that another node has stored.
struct NumberedBatch {
    numbers: Vec<(Ticket, Option<u64>)>,
    /// What it expects of the row of the last number.
    expect: Expect,
}

impl NumberedBatch {
    fn last(&self) -> Option<u64> {
        self.numbers.iter().rev().find_map(|(_, number)| *number)
    }
}

impl EventLog {
    /// Stores all queued events, and delivers those of all nodes.
    pub(super) async fn write_shared(&self, tail: &mut Tail) -> Result<(), StoreError> {
        while self.append(tail).await? {
            let Some(batch) = &tail.stored else { break };
            let others = match batch.last() {
                Some(last) => self.others(tail.last, last).await?,
                None => VecDeque::new(),
            };
            let last = batch.last().unwrap_or(tail.last);
            let Some(batch) = tail.stored.take() else { break };
            self.events.deliver_numbered(merge(batch.numbers, others));
            tail.last = tail.last.max(last);
        }
        loop {
            let others = self.others(tail.last, u64::MAX).await?;
            let Some(last) = others.back().and_then(|event| event.id) else { return Ok(()) };
            self.events.deliver_numbered(others.into_iter().map(Numbered::Foreign).collect());
            tail.last = last;
        }
    }

    /// Stores the first queued events as `tail.stored`; returns whether there were some.
    async fn append(&self, tail: &mut Tail) -> Result<bool, StoreError> {
        for _ in 0..MAX_ATTEMPTS {
            if tail.stored.is_some() {
                return Ok(true);
            }
            let queued = self.queue.unstored(BATCH_SIZE);
            if queued.is_empty() {
                return Ok(false);
            }
            let Some((batch, numbered)) = self.number(tail, &queued).await? else { continue };
            if batch.writes.is_empty() {
                tail.stored = Some(numbered);
                return Ok(true);
            }
            tail.in_doubt.push(numbered);
            match self.store.commit(batch, self.clock.now()).await {
                Ok(_) => {
                    tail.stored = tail.in_doubt.pop();
                    tail.in_doubt.clear();
                }
                Err(StoreError::Unknown(reason)) => return Err(StoreError::Unknown(reason)),
                Err(error) => {
                    tail.in_doubt.pop();
                    if !matches!(error, StoreError::Conflict { .. }) {
                        return Err(error);
                    }
                }
            }
        }
        Err(StoreError::Unavailable("other nodes store events at a higher rate than this one can".into()))
    }

    /// The batch that stores these events under the next numbers. Without writes if other nodes have stored all. `None` if a batch in
    /// doubt turns out to be stored; it is `tail.stored` then.
    async fn number(
        &self,
        tail: &mut Tail,
        queued: &[(Ticket, QueuedEvent)],
    ) -> Result<Option<(Batch, NumberedBatch)>, StoreError> {
        let now = self.clock.now();
        let mark_ids: Vec<SmolStr> = {
            let mut ids: Vec<_> =
                queued.iter().filter_map(|(_, queued)| queued.mark.as_ref()).map(StatusMark::row_id).collect();
            ids.sort_unstable();
            ids.dedup();
            ids
        };
        let doubted: Vec<SmolStr> =
            tail.in_doubt.iter().map(|batch| row_id(batch.last().unwrap_or_default(), &self.node)).collect();
        // One snapshot: a batch in doubt that is applied after it makes the new batch conflict.
        let ids = std::iter::once(HEAD_ID).chain(doubted.iter().cloned()).chain(mark_ids.iter().cloned());
        let keys: Vec<_> = ids.map(row_key).collect();
        let mut rows = self.store.load(&keys, now).await?.into_iter();
        let (head, expect) = head_of(rows.next().flatten())?;
        let found: Vec<bool> = rows.by_ref().take(doubted.len()).map(|row| row.is_some()).collect();
        // A later batch holds the events of the earlier ones, perhaps under the same numbers.
        if let Some(at) = found.iter().rposition(|is_stored| *is_stored) {
            tail.stored = Some(tail.in_doubt.swap_remove(at));
            tail.in_doubt.clear();
            return Ok(None);
        }
        tail.in_doubt.retain(|batch| batch.expect == expect);
        let mut marks: HashMap<SmolStr, MarkRecord> = HashMap::new();
        for (id, row) in mark_ids.into_iter().zip(rows) {
            if let Some(row) = row {
                marks.insert(id.clone(), decode(Table::Events, &id, LAYOUT, &row)?.0);
            }
        }
        let mut last = head.max(tail.last).max(first_id_at(now).saturating_sub(1));
        let (mut batch, mut numbers, mut changed_marks) = (Batch::new(partition()), Vec::new(), HashMap::new());
        for (ticket, QueuedEvent { event, mark, .. }) in queued {
            if let Some(mark) = mark {
                let id = mark.row_id();
                if marks.get(&id).is_some_and(|stored| stored.includes(mark, event.timestamp)) {
                    numbers.push((*ticket, None));
                    continue;
                }
                let record = MarkRecord { version: mark.version, status: mark.status, at: event.timestamp };
                changed_marks.insert(id.clone(), record.clone());
                marks.insert(id, record);
            }
            last += 1;
            let event = Event { id: Some(last), ..(**event).clone() };
            batch.writes.push(self.put(row_id(last, &self.node), &event, now)?);
            numbers.push((*ticket, Some(last)));
        }
        for (id, record) in changed_marks {
            batch.writes.push(self.put(id, &record, now)?);
        }
        if !batch.writes.is_empty() {
            let value = encode(Table::Events, &HEAD_ID, &Head { last })?;
            let change = Change::Put { value, schema: LAYOUT, expires: None };
            let (table, durability) = (Table::Events, Durability::KillSafe);
            batch.writes.push(Write { table, id: HEAD_ID, expect, change, durability });
        }
        Ok(Some((batch, NumberedBatch { numbers, expect })))
    }

    /// The events of other nodes between two numbers, a page at a time.
    async fn others(&self, after: u64, before: u64) -> Result<VecDeque<Event>, StoreError> {
        let mut others = VecDeque::new();
        let mut scan = scan_after(after);
        loop {
            let page = self.store.scan(scan.clone(), self.clock.now()).await?;
            let is_relevant = |id: &str| parse_id(id).is_some_and(|id| id < before);
            for (key, row) in page.rows.iter().filter(|(key, _)| is_relevant(&key.id)) {
                if !key.id.ends_with(&*self.node)
                    && let Some(event) = read(key, row).and_then(super::StoredEvent::into_event)
                {
                    others.push_back(event);
                }
            }
            let Some(next) = page.next.filter(|next| is_relevant(&next.0.id)) else { return Ok(others) };
            scan.after = Some(next);
        }
    }
}

/// The last number, and what a batch expects of its row.
fn head_of(row: Option<Row>) -> Result<(u64, Expect), StoreError> {
    let Some(row) = row else { return Ok((0, Expect::Absent)) };
    let (Head { last }, version) = decode(Table::Events, &HEAD_ID, LAYOUT, &row)?;
    Ok((last, Expect::Same(version)))
}

/// Both in the order of their numbers.
fn merge(own: Vec<(Ticket, Option<u64>)>, mut others: VecDeque<Event>) -> Vec<Numbered> {
    let mut merged = Vec::with_capacity(own.len() + others.len());
    for (ticket, number) in own {
        if let Some(number) = number {
            while let Some(event) = others.pop_front_if(|event| event.id < Some(number)) {
                merged.push(Numbered::Foreign(event));
            }
        }
        merged.push(Numbered::Own(ticket, number));
    }
    merged.extend(others.into_iter().map(Numbered::Foreign));
    merged
}

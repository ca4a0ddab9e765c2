//! Results of calls while the store does not answer: they count on this node, and are applied to the stored records afterwards.
//!
//! In: status events that the store did not take. Out: local records in the cache; and, once the store answers, its records with these
//! events applied. Operators' decisions are not taken this way: they hold on all nodes or are refused.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::{StatusKey, Statuses};
use toolhub_storage::backend::{RowVersion, StoreError};
use toolhub_types::{
    status::{self, StatusEvent, StatusRecord, StatusSettings},
    timestamp::Timestamp,
};

/// Number of events that are kept of a record; older ones give way.
const MAX_EVENTS: usize = 100;
/// Number of records that have local events.
const MAX_RECORDS: usize = 10_000;
/// How often the store is tried.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The events that the store has not taken yet.
#[derive(Default)]
pub(super) struct LocalEvents {
    by_record: Mutex<HashMap<StatusKey, RecordEvents>>,
    /// Whether any record has local events. Beside the lock, because every view of a tool asks.
    is_used: AtomicBool,
    /// Held while events are applied to stored records.
    flush_lock: tokio::sync::Mutex<()>,
}

/// The events of one record, and the writes of them that the store has not answered.
#[derive(Default)]
struct RecordEvents {
    events: VecDeque<(StatusEvent, Timestamp)>,
    /// The number of the first event, among all that the record ever had.
    first: u64,
    in_doubt: Vec<WriteInDoubt>,
}

/// A write of the first events of a record that the store may have applied.
struct WriteInDoubt {
    /// The number after that of its last event.
    until: u64,
    stamp: u64,
    /// The version that it replaces.
    replaces: Option<RowVersion>,
}

impl RecordEvents {
    fn until(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    fn push(&mut self, event: (StatusEvent, Timestamp)) {
        if self.events.len() == MAX_EVENTS {
            self.remove_until(self.first + 1);
        }
        self.events.push_back(event);
    }

    fn remove_until(&mut self, until: u64) {
        while self.first < until && self.events.pop_front().is_some() {
            self.first += 1;
        }
    }

    /// Removes what writes in doubt have applied, as the version of the stored record shows.
    fn settle(&mut self, stored: Option<RowVersion>) {
        let Some(stored) = stored else { return };
        let applied = self.in_doubt.iter().filter(|write| write.may_be_in(stored)).map(|write| write.until).max();
        if let Some(until) = applied {
            self.remove_until(until);
            self.in_doubt.clear();
        }
        // Another node has written the version that they would have written.
        self.in_doubt.retain(|write| stored.number < write.number());
    }
}

impl WriteInDoubt {
    /// The number of the version that it writes.
    fn number(&self) -> u64 {
        self.replaces.map_or(1, |replaced| replaced.number + 1)
    }

    /// Whether a record of this version has the events, or may have them: it is better to forget an event than to count it twice.
    fn may_be_in(&self, stored: RowVersion) -> bool {
        stored.stamp == self.stamp || stored.number > self.number()
    }
}

impl LocalEvents {
    fn keys(&self) -> Vec<StatusKey> {
        self.lock().keys().cloned().collect()
    }

    fn contains(&self, key: &StatusKey) -> bool {
        self.is_used.load(Ordering::Acquire) && self.lock().contains_key(key)
    }

    /// The events that a stored record of this version does not have, and the number after that of the last one.
    fn missing_in(&self, key: &StatusKey, stored: Option<RowVersion>) -> Option<(Vec<(StatusEvent, Timestamp)>, u64)> {
        if !self.is_used.load(Ordering::Acquire) {
            return None;
        }
        let mut records = self.lock();
        let record = records.get_mut(key)?;
        record.settle(stored);
        let missing = (record.events.iter().cloned().collect(), record.until());
        self.remove_empty(&mut records, key);
        Some(missing)
    }

    pub(super) fn forget(&self, key: &StatusKey) {
        if self.is_used.load(Ordering::Acquire) {
            let mut records = self.lock();
            records.remove(key);
            self.is_used.store(!records.is_empty(), Ordering::Release);
        }
    }

    /// Removes the first events of a record, which the store has.
    fn remove_until(&self, key: &StatusKey, until: u64) {
        let mut records = self.lock();
        if let Some(record) = records.get_mut(key) {
            record.remove_until(until);
            record.in_doubt.clear();
        }
        self.remove_empty(&mut records, key);
    }

    /// Notes that the store may have the first events of a record.
    fn note_in_doubt(&self, key: &StatusKey, write: WriteInDoubt) {
        if let Some(record) = self.lock().get_mut(key) {
            record.in_doubt.push(write);
        }
    }

    /// Notes that the store has not applied a write.
    fn note_failed(&self, key: &StatusKey, stamp: u64) {
        if let Some(record) = self.lock().get_mut(key) {
            record.in_doubt.retain(|write| write.stamp != stamp);
        }
    }

    fn remove_empty(&self, records: &mut HashMap<StatusKey, RecordEvents>, key: &StatusKey) {
        if records.get(key).is_some_and(|record| record.events.is_empty()) {
            records.remove(key);
        }
        self.is_used.store(!records.is_empty(), Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<StatusKey, RecordEvents>> {
        self.by_record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether an event counts on this node while the store does not answer. A probe needs the store: all nodes together send one.
fn counts_locally(event: &StatusEvent) -> bool {
    matches!(event, StatusEvent::CallEnded { .. } | StatusEvent::TimedOut { .. } | StatusEvent::Healthy)
}

fn apply_all(record: &StatusRecord, events: &[(StatusEvent, Timestamp)], settings: &StatusSettings) -> StatusRecord {
    let apply = |record: StatusRecord, (event, at): &(StatusEvent, Timestamp)| {
        status::apply(&record, event, settings, *at, fastrand::f64())
    };
    events.iter().fold(record.clone(), apply)
}

impl Statuses {
    /// Whether what is known of a record counts on this node only, because the store does not answer.
    pub(crate) fn is_local(&self, key: &StatusKey) -> bool {
        self.local_events.contains(key)
    }

    /// Applies an event to a record; returns the record afterwards. While the store does not answer, results of calls count locally.
    pub(crate) async fn apply(
        self: &Arc<Self>,
        key: &StatusKey,
        event: &StatusEvent,
    ) -> Result<Arc<StatusRecord>, StoreError> {
        let applied = match self.is_local(key) {
            // Events are applied in their order.
            true => match self.flush_local(key).await {
                Ok(()) => self.apply_stored(key, event).await,
                // This event was not sent.
                Err(StoreError::Unknown(reason)) => Err(StoreError::Unavailable(reason)),
                Err(error) => Err(error),
            },
            false => self.apply_stored(key, event).await,
        };
        match applied {
            Err(StoreError::Unavailable(_)) if counts_locally(event) && self.may_count_locally(key) => {
                Ok(self.apply_locally(key, event))
            }
            applied => applied,
        }
    }

    /// A stored record of this version with what counts on this node besides.
    pub(super) fn with_local_events(
        &self,
        key: &StatusKey,
        (stored, row_version): (Arc<StatusRecord>, RowVersion),
    ) -> Arc<StatusRecord> {
        match self.local_events.missing_in(key, Some(row_version)) {
            None => stored,
            Some((events, _)) => Arc::new(apply_all(&stored, &events, &self.settings())),
        }
    }

    fn may_count_locally(&self, key: &StatusKey) -> bool {
        let records = self.local_events.lock();
        records.len() < MAX_RECORDS || records.contains_key(key)
    }

    fn apply_locally(self: &Arc<Self>, key: &StatusKey, event: &StatusEvent) -> Arc<StatusRecord> {
        let (now, settings) = (self.clock.now(), self.settings());
        let mut records = self.local_events.lock();
        let facts = self.facts(key).unwrap_or_default();
        let next = status::apply(&facts, event, &settings, now, fastrand::f64());
        if next == *facts {
            return facts;
        }
        let is_first = records.is_empty();
        records.entry(key.clone()).or_default().push((event.clone(), now));
        self.local_events.is_used.store(true, Ordering::Release);
        let next = Arc::new(next);
        self.cache.put_local(key.clone(), next.clone());
        drop(records);
        self.emit_and_schedule(key.clone());
        self.notify_changed();
        if is_first {
            tracing::warn!(tool = %key.tool(), "the store does not answer; statuses count on this node only until it does");
            let this = Arc::downgrade(self);
            self.runtime.spawn(self.timers.clone().run_until_cancelled_owned(async move {
                loop {
                    tokio::time::sleep(RETRY_INTERVAL).await;
                    let Some(statuses) = this.upgrade() else { return };
                    if statuses.flush_all_local().await {
                        return;
                    }
                }
            }));
        }
        next
    }

    /// Applies all local events to the stored records; returns whether none is left.
    async fn flush_all_local(self: &Arc<Self>) -> bool {
        for key in self.local_events.keys() {
            if let Err(error) = self.flush_local(&key).await {
                tracing::debug!(%error, "statuses still count on this node only");
                return false;
            }
        }
        self.local_events.lock().is_empty()
    }

    /// Applies the local events of a record to the stored one.
    async fn flush_local(self: &Arc<Self>, key: &StatusKey) -> Result<(), StoreError> {
        let _one_at_a_time = self.local_events.flush_lock.lock().await;
        while self.is_local(key) {
            let (now, settings, requested) = (self.clock.now(), self.settings(), self.cache.time());
            let (stored, row_version) = self.load(key, now).await?;
            if let Some(row_version) = row_version {
                // What another node has written counts here, even if the write below fails.
                self.insert_and_emit(key.clone(), (stored.clone(), row_version), requested);
            }
            let (events, until) = self.local_events.missing_in(key, row_version).unwrap_or_default();
            let next = apply_all(&stored, &events, &settings);
            let (next, row_version) = match next == *stored {
                // A newer record was read meanwhile.
                true if self.cache.is_newer(key, row_version, requested) => continue,
                true => (stored, row_version),
                false => {
                    let next = Arc::new(next);
                    let batch = self.batch(key, (&stored, &next), (row_version, now))?;
                    let stamp = batch.stamp;
                    // Before the write: its notification may arrive before its answer.
                    self.local_events.note_in_doubt(key, WriteInDoubt { until, stamp, replaces: row_version });
                    match self.commit(batch, now).await {
                        Ok(row_version) => (next, Some(row_version)),
                        Err(error @ StoreError::Unknown(_)) => return Err(error),
                        Err(error) => {
                            self.local_events.note_failed(key, stamp);
                            if let StoreError::Conflict { .. } = error {
                                continue;
                            }
                            return Err(error);
                        }
                    }
                }
            };
            self.local_events.remove_until(key, until);
            if !self.is_local(key) {
                self.cache.replace_local(key, next, row_version, requested);
                self.emit_and_schedule(key.clone());
                self.notify_changed();
            }
        }
        Ok(())
    }
}

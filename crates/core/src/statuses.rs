//! Keeps the facts about tools: one record shared by all for each tool, and one for each thread that has something to say.
//!
//! In: events about tools. Out: records, kept in the store and known here, and the news of what changed. What an event
//! does to a record is decided by `status`; this room stores it with a compare-and-set, so that of many nodes and callers
//! exactly one is first. A tool that never made trouble has no record, and asking about it costs next to nothing.

mod probe_guard;
mod status_cache;
mod status_events;
mod successes;

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use arc_swap::ArcSwap;
use smol_str::SmolStr;
use tokio::sync::{Notify, futures::Notified};
use tokio_util::sync::{CancellationToken, DropGuard};

pub(crate) use probe_guard::{ProbeGuard, Verdict};
pub(crate) use status_cache::{StatusCache, StatusKey};
use status_events::ChangeCounts;
pub(crate) use successes::{LastSuccess, Successes};

use crate::events::Events;
use toolhub_storage::{
    backend::{
        Backend, Batch, Change, Durability, Expect, Row, RowKey, RowVersion, Scan, Scope, StoreError, Table, Write,
        read_all,
    },
    clock::Clock,
};
use toolhub_types::{
    ids::{CallId, Tenant, ThreadId},
    status::{self, Admission, Readiness, StatusEvent, StatusRecord, StatusSettings},
    timestamp::Timestamp,
    tool::ToolName,
};

/// The layout of a stored record.
const LAYOUT: u32 = 1;

pub(crate) struct Statuses {
    /// What holds now; a reload puts others in their place.
    settings: ArcSwap<StatusSettings>,
    /// Whether successes are weighed against failures, so that they are worth a record. Apart, because every call asks.
    weighs_successes: AtomicBool,
    store: Arc<dyn Backend>,
    clock: Arc<dyn Clock>,
    events: Events,
    cache: StatusCache,
    /// When tools last succeeded, also those that have no record.
    pub(crate) successes: Successes,
    /// Held while listeners are told of a record, so that they hear its words in the order in which they were true.
    emit_lock: Mutex<()>,
    change_counts: ChangeCounts,
    /// Told whenever a record changed: calls that wait for a probe listen.
    changed: Notify,
    availability_changed: Arc<Notify>,
    runtime: tokio::runtime::Handle,
    /// Ends the timers when nobody can hear of them any more; one may have been set for years.
    timers: CancellationToken,
    _cancel_timers: DropGuard,
}

impl Statuses {
    pub(crate) fn new(
        settings: StatusSettings,
        store: Arc<dyn Backend>,
        clock: Arc<dyn Clock>,
        events: Events,
        stirred: Arc<Notify>,
        runtime: tokio::runtime::Handle,
    ) -> Self {
        let (known, successes) = (StatusCache::default(), Successes::default());
        let (telling, changes) = Default::default();
        let (changed, timers) = (Notify::new(), CancellationToken::new());
        let _gone = timers.clone().drop_guard();
        let weighs = AtomicBool::new(settings.tracks_failure_rate());
        let settings = ArcSwap::from_pointee(settings);
        Self {
            settings,
            weighs_successes: weighs,
            store,
            clock,
            events,
            cache: known,
            successes,
            emit_lock: telling,
            change_counts: changes,
            changed,
            availability_changed: stirred,
            runtime,
            timers,
            _cancel_timers: _gone,
        }
    }

    /// What holds now for failing tools.
    pub(crate) fn settings(&self) -> Arc<StatusSettings> {
        self.settings.load_full()
    }

    /// Puts other settings in the place of those that held. Records stay as they are, and are read anew.
    pub(crate) fn update_settings(self: &Arc<Self>, settings: StatusSettings) {
        self.weighs_successes.store(settings.tracks_failure_rate(), Ordering::Relaxed);
        self.settings.store(Arc::new(settings));
        self.emit_all();
    }

    /// Whether successes are weighed against failures.
    pub(crate) fn weighs_successes(&self) -> bool {
        self.weighs_successes.load(Ordering::Relaxed)
    }

    /// Whether no tool has a record.
    pub(crate) fn is_empty(&self) -> bool {
        self.cache.is_empty()
    }

    /// The record, if there is one.
    pub(crate) fn facts(&self, whose: &StatusKey) -> Option<Arc<StatusRecord>> {
        self.cache.get(whose).map(|(facts, _)| facts)
    }

    /// The record as it is read now. Whoever reads one whose word has changed by itself, and nobody has said so, says so.
    pub(crate) fn facts_at(self: &Arc<Self>, whose: &StatusKey, now: Timestamp) -> Option<Arc<StatusRecord>> {
        let (facts, due) = self.cache.get_with_recheck(whose, now)?;
        if let Some(at) = due {
            self.recheck_due(whose, at);
        }
        Some(facts)
    }

    /// Whether a call may pass now, with what else is known of the tool.
    pub(crate) fn admit_with_presence(
        self: &Arc<Self>,
        tool: &ToolName,
        (tenant, thread): (&Tenant, Option<&ThreadId>),
        presence: &Readiness,
    ) -> Admission {
        let now = self.clock.now();
        let shared = self.facts_at(&StatusKey::shared(tool), now).unwrap_or_default();
        let own = thread.map(|thread| self.facts_at(&StatusKey::thread(tool, tenant, thread), now).unwrap_or_default());
        status::admit(own.as_deref(), &shared, presence, &self.settings.load(), now)
    }

    /// Whether a call may pass now. Most tools have no record, and the answer is yes.
    pub(crate) fn admit(self: &Arc<Self>, tool: &ToolName, tenant: &Tenant, thread: Option<&ThreadId>) -> Admission {
        if self.cache.is_empty() {
            return Admission::Pass;
        }
        self.admit_with_presence(tool, (tenant, thread), &Readiness::Ready)
    }

    /// Tells a record of an event; answers the record afterwards.
    pub(crate) async fn apply(
        self: &Arc<Self>,
        whose: &StatusKey,
        event: &StatusEvent,
    ) -> Result<Arc<StatusRecord>, StoreError> {
        let jitter = fastrand::f64();
        let mut known = self.cache.get(whose);
        loop {
            let now = self.clock.now();
            let (facts, seen) = match known {
                Some((facts, seen)) => (facts, seen),
                None => {
                    let (facts, seen) = self.load(whose, now).await?;
                    // Somebody else may have written it; what was read is known from here on, whatever comes of the event.
                    match seen {
                        Some(seen) => self.insert_and_emit(whose.clone(), facts.clone(), seen),
                        // Nothing, or nothing any more: what was known of a thread that was swept is no longer so.
                        None => self.cache.forget(whose),
                    }
                    (facts, seen)
                }
            };
            let next = status::apply(&facts, event, &self.settings.load(), now, jitter);
            if next == *facts {
                return Ok(facts);
            }
            let next = Arc::new(next);
            match self.write(whose, (&facts, &next), seen, now).await {
                Ok(seen) => {
                    self.insert_and_emit(whose.clone(), next.clone(), seen);
                    return Ok(next);
                }
                // Somebody was faster: look again, in the store.
                Err(StoreError::Conflict { .. }) => known = None,
                Err(error) => return Err(error),
            }
        }
    }

    /// The next change of any record. To be made before looking, so that no change falls in between.
    pub(crate) fn next_change(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Reads every record of the store. What cannot be read is passed over: one damaged row must not stop a hub.
    pub(crate) async fn load_all(self: &Arc<Self>, told: OnLoad) -> Result<(), StoreError> {
        let scan = Scan::new(Table::Statuses, Scope::All);
        for (key, row) in read_all(&*self.store, scan, self.clock.now()).await? {
            let read = decode(&key.id, &row).inspect_err(StoreError::log_skipped);
            let (Some(whose), Ok(facts)) = (StatusKey::from_key(&key), read) else { continue };
            match told {
                OnLoad::Silent => self.insert_silently(whose, facts, row.version),
                OnLoad::Emit => self.insert_and_emit(whose, facts, row.version),
            }
        }
        Ok(())
    }

    /// Learns what another node has written.
    pub(crate) async fn refresh(self: &Arc<Self>, key: &RowKey) -> Result<(), StoreError> {
        let Some(whose) = StatusKey::from_key(key) else { return Ok(()) };
        let (facts, seen) = self.load(&whose, self.clock.now()).await?;
        if seen.is_none() && whose.owner().is_some() {
            // The thread was swept, its records with it.
            self.forget(&whose);
        }
        if let Some(seen) = seen.filter(|seen| self.cache.get(&whose).and_then(|(_, known)| known) != Some(*seen)) {
            self.insert_and_emit(whose, facts, seen);
        }
        Ok(())
    }

    /// Forgets what is known of a tool in a thread that is gone.
    pub(crate) fn forget(&self, whose: &StatusKey) {
        self.cache.forget(whose);
        self.successes.forget(whose);
    }

    async fn load(
        &self,
        whose: &StatusKey,
        now: Timestamp,
    ) -> Result<(Arc<StatusRecord>, Option<RowVersion>), StoreError> {
        let keys = [whose.key()];
        match self.store.load(&keys, now).await?.pop().flatten() {
            None => Ok((Arc::default(), None)),
            Some(row) if row.schema != LAYOUT => Err(layout_error(whose.tool(), &row)),
            // A damaged record says nothing about the tool. The next thing that happens to the tool takes its place.
            Some(row) => {
                let facts = decode(whose.tool(), &row).inspect_err(StoreError::log_skipped);
                Ok((facts.unwrap_or_default(), Some(row.version)))
            }
        }
    }

    async fn write(
        &self,
        whose: &StatusKey,
        (before, facts): (&StatusRecord, &StatusRecord),
        over: Option<RowVersion>,
        now: Timestamp,
    ) -> Result<RowVersion, StoreError> {
        let RowKey { partition, table, id } = whose.key();
        let value = serde_json::to_vec(facts).map_err(|error| damaged_error(whose.tool(), &error))?;
        let write = Write {
            table,
            id,
            expect: over.map_or(Expect::Absent, Expect::Same),
            change: Change::Put { value: value.into(), schema: LAYOUT, expires: None },
            // An operator's word must survive more than the process, and so must that it was taken back.
            durability: if has_operator_decision(before) || has_operator_decision(facts) {
                Durability::PowerSafe
            } else {
                Durability::KillSafe
            },
        };
        let batch = Batch::new(partition).with(write);
        let stamp = batch.stamp;
        let versions = self.store.commit(batch, now).await?;
        Ok(RowVersion { number: versions.first().copied().unwrap_or_default(), stamp })
    }

    /// Gives a permit back, on a task of its own: whoever held it is going away.
    fn return_probe_permit(self: &Arc<Self>, whose: StatusKey, call: CallId) {
        let this = self.clone();
        self.runtime.spawn(async move {
            // The store may know of a permit whose taking got no answer. If it does not answer now, the lease runs out by
            // itself.
            let _ = this.refresh(&whose.key()).await;
            let _ = this.apply(&whose, &StatusEvent::ProbeReleased { id: call }).await;
        });
    }
}

/// Whether a person has said something about the tool.
fn has_operator_decision(facts: &StatusRecord) -> bool {
    facts.operator_override.is_some() || facts.disabled.is_some()
}

/// Whether listeners were told of a record in an earlier life.
#[derive(Clone, Copy)]
pub(crate) enum OnLoad {
    Silent,
    Emit,
}

fn decode(tool: &str, row: &Row) -> Result<Arc<StatusRecord>, StoreError> {
    if row.schema != LAYOUT {
        return Err(layout_error(tool, row));
    }
    serde_json::from_slice(&row.value).map(Arc::new).map_err(|error| damaged_error(tool, &error))
}

fn layout_error(tool: &str, row: &Row) -> StoreError {
    StoreError::unknown_layout(Table::Statuses, SmolStr::new(tool), row.schema, LAYOUT)
}

fn damaged_error(tool: &str, error: &serde_json::Error) -> StoreError {
    StoreError::unreadable(Table::Statuses, SmolStr::new(tool), error)
}

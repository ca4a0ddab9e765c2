//! Status records of tools (circuit breaker state): one shared by all threads, and one per thread that had failures.
//!
//! In: status events of tools. Out: records, stored and cached, and events about their changes. `status` in the types
//! crate decides what an event does to a record; this module stores it with a compare-and-set, so that of concurrent
//! nodes and callers exactly one succeeds. While the store does not answer, `local_events` counts results on this node. A tool that never failed has no record, and looking it up is cheap.

mod alert_signals;
mod expiries;
mod local_events;
mod probe_guard;
mod status_cache;
mod status_events;
mod successes;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use arc_swap::ArcSwap;
use smol_str::SmolStr;
use tokio::sync::{Notify, futures::Notified};
use tokio_util::sync::{CancellationToken, DropGuard};

pub(crate) use expiries::Expiries;
use local_events::LocalEvents;
pub(crate) use probe_guard::{HealthVerdict, ProbeGuard};
pub(crate) use status_cache::{StatusCache, StatusKey};
use status_events::ChangeCounts;
pub(crate) use successes::{LastSuccess, Successes};

use crate::{alerts::Alerts, events::Events};
use toolhub_storage::{
    backend::{
        Backend, Batch, Change, Durability, Expect, Row, RowKey, RowVersion, Scan, Scope, StoreError, Table, Write,
        read_all,
    },
    clock::Clock,
};
use toolhub_types::{
    ids::{CallId, Tenant, ThreadId, ThreadKey},
    status::{self, Admission, Readiness, StatusEvent, StatusRecord, StatusSettings},
    timestamp::Timestamp,
    tool::ToolName,
};

/// The layout of a stored record.
const LAYOUT: u32 = 1;

pub(crate) struct Statuses {
    /// The current settings; a reload replaces them.
    settings: ArcSwap<StatusSettings>,
    /// Whether successes count for the failure rate and so must be recorded. An atomic copy, because every call reads
    /// it.
    weighs_successes: AtomicBool,
    store: Arc<dyn Backend>,
    clock: Arc<dyn Clock>,
    events: Events,
    /// Receives the signals of changes.
    alerts: Arc<Alerts>,
    cache: StatusCache,
    /// What counts on this node only.
    local_events: LocalEvents,
    /// When tools last succeeded, including tools without a record.
    pub(crate) successes: Successes,
    /// When dependencies of tools in threads expire.
    pub(crate) expiries: Expiries,
    /// Whether a tool can be called at all, whatever its record says; set once the registry exists.
    presence: OnceLock<PresenceLookup>,
    /// Held while events about a record are emitted, so that subscribers receive them in order.
    emit_lock: Mutex<()>,
    change_counts: ChangeCounts,
    /// Notified whenever a record changes; calls that wait for a probe permit listen.
    changed: Notify,
    availability_changed: Arc<Notify>,
    runtime: tokio::runtime::Handle,
    /// Cancels the recheck timers when this is dropped; a timer may be set years ahead.
    timers: CancellationToken,
    _cancel_timers: DropGuard,
}

/// Finds the presence of a tool.
type PresenceLookup = Box<dyn Fn(&ToolName) -> Readiness + Send + Sync>;

impl Statuses {
    pub(crate) fn new(
        settings: StatusSettings,
        store: Arc<dyn Backend>,
        clock: Arc<dyn Clock>,
        (events, alerts): (Events, Arc<Alerts>),
        availability_changed: Arc<Notify>,
        runtime: tokio::runtime::Handle,
    ) -> Self {
        let timers = CancellationToken::new();
        Self {
            weighs_successes: AtomicBool::new(settings.tracks_failure_rate()),
            settings: ArcSwap::from_pointee(settings),
            store,
            clock,
            events,
            alerts,
            cache: StatusCache::default(),
            local_events: LocalEvents::default(),
            successes: Successes::default(),
            expiries: Expiries::default(),
            presence: OnceLock::new(),
            emit_lock: Mutex::default(),
            change_counts: ChangeCounts::default(),
            changed: Notify::new(),
            availability_changed,
            runtime,
            _cancel_timers: timers.clone().drop_guard(),
            timers,
        }
    }

    /// Sets how the presence of a tool is found: disabled, not connected, or waiting for approval.
    pub(crate) fn set_presence(&self, lookup: impl Fn(&ToolName) -> Readiness + Send + Sync + 'static) {
        let _ = self.presence.set(Box::new(lookup));
    }

    /// The current settings for failing tools.
    pub(crate) fn settings(&self) -> Arc<StatusSettings> {
        self.settings.load_full()
    }

    /// Replaces the settings. The records do not change, but their status is evaluated again.
    pub(crate) fn update_settings(self: &Arc<Self>, settings: StatusSettings) {
        self.weighs_successes.store(settings.tracks_failure_rate(), Ordering::Relaxed);
        self.settings.store(Arc::new(settings));
        self.emit_all();
    }

    /// Whether successes count for the failure rate.
    pub(crate) fn tracks_failure_rate(&self) -> bool {
        self.weighs_successes.load(Ordering::Relaxed)
    }

    /// Whether no tool has a record.
    pub(crate) fn is_empty(&self) -> bool {
        self.cache.is_empty()
    }

    /// The tools that have a shared record, and those that have one of this thread.
    pub(crate) fn recorded_tools(&self, owner: ThreadKey) -> [Arc<BTreeSet<ToolName>>; 2] {
        self.cache.recorded_tools(owner)
    }

    /// The number of a tenant's threads that have a record of their own by which a tool is withheld, by tool.
    pub(crate) fn withheld_threads(&self, tenant: &Tenant) -> HashMap<ToolName, usize> {
        self.cache.withheld_threads(tenant)
    }

    /// Some of the tenant's threads that have a record of their own by which the tool is withheld.
    pub(crate) fn threads_withholding(&self, tool: &ToolName, tenant: &Tenant, limit: usize) -> Vec<ThreadId> {
        self.cache.threads_withholding(tool, tenant, limit)
    }

    /// The record, if there is one.
    pub(crate) fn facts(&self, key: &StatusKey) -> Option<Arc<StatusRecord>> {
        self.cache.get(key).map(|(facts, _)| facts)
    }

    /// The current record. If its status has changed with time and no event was emitted yet, this emits it.
    pub(crate) fn facts_at(self: &Arc<Self>, key: &StatusKey, now: Timestamp) -> Option<Arc<StatusRecord>> {
        let (facts, due) = self.cache.get_with_recheck(key, now)?;
        if let Some(at) = due {
            self.recheck_due(key, at);
        }
        Some(facts)
    }

    /// Whether a call may pass now, given the readiness of the tool.
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

    /// Whether a call may pass now. Fast when there are no records at all.
    pub(crate) fn admit(self: &Arc<Self>, tool: &ToolName, tenant: &Tenant, thread: Option<&ThreadId>) -> Admission {
        if self.cache.is_empty() {
            return Admission::Pass;
        }
        self.admit_with_presence(tool, (tenant, thread), &Readiness::Ready)
    }

    /// Applies an event to a stored record; returns the record afterwards.
    async fn apply_stored(
        self: &Arc<Self>,
        key: &StatusKey,
        event: &StatusEvent,
    ) -> Result<Arc<StatusRecord>, StoreError> {
        let jitter = fastrand::f64();
        let mut cached = self.cache.get(key);
        loop {
            let (now, requested) = (self.clock.now(), self.cache.time());
            let (facts, row_version) = match cached {
                Some((facts, row_version)) => (facts, row_version),
                None => {
                    let (facts, row_version) = self.load(key, now).await?;
                    // Cache what was read, whatever the event does: another node may have written it.
                    match row_version {
                        Some(row_version) => self.insert_and_emit(key.clone(), (facts.clone(), row_version), requested),
                        // The row does not exist, or was removed when its thread was swept.
                        None => _ = self.cache.forget_unchanged(key, requested),
                    }
                    (facts, row_version)
                }
            };
            let next = status::apply(&facts, event, &self.settings.load(), now, jitter);
            if next == *facts {
                return Ok(facts);
            }
            let next = Arc::new(next);
            match self.write(key, (&facts, &next), row_version, now).await {
                Ok(row_version) => {
                    self.insert_and_emit(key.clone(), (next.clone(), row_version), requested);
                    return Ok(next);
                }
                // A concurrent write succeeded first: load the record from the store and retry.
                Err(StoreError::Conflict { .. }) => cached = None,
                Err(error) => return Err(error),
            }
        }
    }

    /// The next change of any record. Must be created before reading a record, so that no change is missed.
    pub(crate) fn next_change(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Loads every record of the store, and drops those that are no longer there. Skips unreadable rows: one damaged row must not stop a hub.
    pub(crate) async fn load_all(self: &Arc<Self>, on_load: OnLoad) -> Result<(), StoreError> {
        let (scan, requested) = (Scan::new(Table::Statuses, Scope::All), self.cache.time());
        let mut found = HashSet::new();
        for (row_key, row) in read_all(&*self.store, scan, self.clock.now()).await? {
            let Some(key) = StatusKey::from_key(&row_key) else { continue };
            found.insert(key.clone());
            let Ok(facts) = decode(&row_key.id, &row).inspect_err(StoreError::log_skipped) else { continue };
            match on_load {
                OnLoad::Silent => self.insert_silently(key, (facts, row.version), requested),
                OnLoad::Emit => self.insert_and_emit(key, (facts, row.version), requested),
            }
        }
        // Records are deleted with their thread only.
        let vanished = |key: &StatusKey| key.owner().is_some() && !found.contains(key) && !self.is_local(key);
        self.cache.unchanged_since(requested).iter().filter(|key| vanished(key)).for_each(|key| self.forget(key));
        Ok(())
    }

    /// Reloads a record that another node may have written.
    pub(crate) async fn refresh(self: &Arc<Self>, row_key: &RowKey) -> Result<(), StoreError> {
        let Some(key) = StatusKey::from_key(row_key) else { return Ok(()) };
        let requested = self.cache.time();
        let (facts, row_version) = self.load(&key, self.clock.now()).await?;
        if row_version.is_none()
            && key.owner().is_some()
            && !self.is_local(&key)
            && self.cache.forget_unchanged(&key, requested)
        {
            // The thread was swept, its records with it.
            self.forget(&key);
        }
        let cached = || self.cache.get(&key).and_then(|(_, cached)| cached);
        if let Some(row_version) = row_version.filter(|loaded| cached() != Some(*loaded)) {
            self.insert_and_emit(key, (facts, row_version), requested);
        }
        Ok(())
    }

    /// Drops everything cached about a tool in a deleted thread.
    pub(crate) fn forget(&self, key: &StatusKey) {
        self.cache.forget(key);
        self.local_events.forget(key);
        self.successes.forget(key);
        self.expiries.forget(key);
    }

    async fn load(
        &self,
        key: &StatusKey,
        now: Timestamp,
    ) -> Result<(Arc<StatusRecord>, Option<RowVersion>), StoreError> {
        let keys = [key.key()];
        match self.store.load(&keys, now).await?.pop().flatten() {
            None => Ok((Arc::default(), None)),
            Some(row) if row.schema != LAYOUT => Err(layout_error(key.tool(), &row)),
            // A damaged record counts as empty. The next event of the tool replaces it.
            Some(row) => {
                let facts = decode(key.tool(), &row).inspect_err(StoreError::log_skipped);
                Ok((facts.unwrap_or_default(), Some(row.version)))
            }
        }
    }

    async fn write(
        &self,
        key: &StatusKey,
        change: (&StatusRecord, &StatusRecord),
        replaced: Option<RowVersion>,
        now: Timestamp,
    ) -> Result<RowVersion, StoreError> {
        self.commit(self.batch(key, change, (replaced, now))?, now).await
    }

    /// The batch that replaces a record.
    fn batch(
        &self,
        key: &StatusKey,
        (before, facts): (&StatusRecord, &StatusRecord),
        (replaced, now): (Option<RowVersion>, Timestamp),
    ) -> Result<Batch, StoreError> {
        let RowKey { partition, table, id } = key.key();
        let value = serde_json::to_vec(facts).map_err(|error| damaged_error(key.tool(), &error))?;
        let write = Write {
            table,
            id,
            expect: replaced.map_or(Expect::Absent, Expect::Same),
            change: Change::Put { value: value.into(), schema: LAYOUT, expires: None },
            // An operator's decision and its withdrawal must survive a power failure.
            durability: if has_operator_decision(before) || has_operator_decision(facts) {
                Durability::PowerSafe
            } else {
                Durability::KillSafe
            },
        };
        let durability = write.durability;
        let mut batch = Batch::new(partition).with(write);
        let version = replaced.map_or(1, |replaced| replaced.number + 1);
        batch.writes.extend(
            self.alert_signal(key, (before, facts), version, now).map(|signal| signal.write(durability)).transpose()?,
        );
        Ok(batch)
    }

    async fn commit(&self, batch: Batch, now: Timestamp) -> Result<RowVersion, StoreError> {
        let stamp = batch.stamp;
        let versions = self.store.commit(batch, now).await?;
        Ok(RowVersion { number: versions.first().copied().unwrap_or_default(), stamp })
    }

    /// Returns a probe permit in a separate task, because its holder is being dropped.
    fn return_probe_permit(self: &Arc<Self>, key: StatusKey, call: CallId) {
        let this = self.clone();
        self.runtime.spawn(async move {
            // The store may have the permit even if its response was lost. If the store fails now, the lease of the
            // permit expires by itself.
            let _ = this.refresh(&key.key()).await;
            let _ = this.apply(&key, &StatusEvent::ProbeReleased { id: call }).await;
        });
    }
}

/// Whether an operator has overridden or disabled the tool.
fn has_operator_decision(facts: &StatusRecord) -> bool {
    facts.operator_override.is_some() || facts.disabled.is_some()
}

/// Whether loading a record emits its status.
#[derive(Clone, Copy)]
pub(crate) enum OnLoad {
    /// An earlier process has emitted it already.
    Silent,
    /// Emit it if it differs from the last emitted status.
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

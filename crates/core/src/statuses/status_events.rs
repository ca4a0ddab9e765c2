//! Emits events when a tool's status changes, by a write or with time.
//!
//! In: records as they change, and timers. Out: events, counts of changes, and wake-ups of waiting calls. The status is
//! always computed from timestamps, so a late timer delays an event but never a tool.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use smol_str::format_smolstr;

use super::{StatusKey, Statuses, status_cache::CacheTime};
use crate::{events::StatusMark, monitor::StatusChanges};
use toolhub_storage::backend::RowVersion;
use toolhub_types::{
    event_kind::EventKind,
    ids::ThreadKey,
    language::Language,
    status::{self, EffectiveStatus, Readiness, StatusEvent, StatusRecord, ToolStatus},
    timestamp::Timestamp,
    tool::ToolName,
};

/// Number of status changes per tool and transition. Bounded by the tools that have records.
pub(super) type ChangeCounts = Mutex<HashMap<(ToolName, ToolStatus, ToolStatus), u64>>;

impl Statuses {
    /// Evaluates a record at the current time.
    fn reading(&self, facts: &StatusRecord) -> EffectiveStatus {
        status::evaluate(facts, &Readiness::Ready, &self.settings(), self.clock.now())
    }

    /// Caches a record whose status an earlier process has emitted.
    pub(super) fn insert_silently(
        self: &Arc<Self>,
        key: StatusKey,
        (facts, row_version): (Arc<StatusRecord>, RowVersion),
        requested: CacheTime,
    ) {
        let facts = self.with_local_events(&key, (facts, row_version));
        self.cache.put(key.clone(), facts, row_version, requested);
        if let Some(facts) = self.facts(&key) {
            self.cache.set_emitted(&key, self.reading(&facts).status);
        }
        self.emit_and_schedule(key);
    }

    /// Caches a record and emits its status if it changed.
    pub(super) fn insert_and_emit(
        self: &Arc<Self>,
        key: StatusKey,
        (facts, row_version): (Arc<StatusRecord>, RowVersion),
        requested: CacheTime,
    ) {
        let facts = self.with_local_events(&key, (facts, row_version));
        self.cache.put(key.clone(), facts, row_version, requested);
        self.emit_and_schedule(key);
        self.notify_changed();
    }

    /// Emits all statuses that changed, after a change of the settings.
    pub(super) fn emit_all(self: &Arc<Self>) {
        for key in self.cache.keys() {
            self.emit_and_schedule(key);
        }
        self.notify_changed();
    }

    /// Wakes calls that wait for a probe permit, and consumers of the list of available tools.
    pub(crate) fn notify_changed(&self) {
        self.changed.notify_waiters();
        self.availability_changed.notify_one();
    }

    /// Emits the status if it changed, and schedules a recheck for when it changes with time.
    pub(super) fn emit_and_schedule(self: &Arc<Self>, key: StatusKey) {
        let Some(next) = self.emit_now(&key) else { return };
        let wait = next.since(self.clock.now());
        let this = Arc::downgrade(self);
        self.runtime.spawn(self.timers.clone().run_until_cancelled_owned(async move {
            tokio::time::sleep(wait).await;
            if let Some(statuses) = this.upgrade() {
                statuses.recheck_due(&key, next);
            }
        }));
    }

    /// Rechecks a record whose status should have changed with time, unless another caller did. By the wall clock it
    /// may still be too early; then another recheck is scheduled.
    pub(super) fn recheck_due(self: &Arc<Self>, key: &StatusKey, at: Timestamp) {
        if self.cache.take_recheck(key, at) {
            self.emit_and_schedule(key.clone());
            self.notify_changed();
        }
    }

    /// Emits the current status if it changed; returns when to recheck, if that is not scheduled yet. Holds the lock
    /// from reading the record to emitting its status, so that events stay in order.
    fn emit_now(self: &Arc<Self>, key: &StatusKey) -> Option<Timestamp> {
        let _guard = self.emit_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let facts = self.facts(key)?;
        if facts.breaker.is_in_future(self.clock.now()) {
            self.end_cool_down(key.clone());
        }
        let reading = self.reading(&facts);
        let next = reading.next_change;
        // A local status is emitted when it is that of the stored record: all nodes together store one event of a change.
        if !self.is_local(key)
            && let Some(before) = self.cache.set_emitted(key, reading.status)
        {
            self.publish(key, &facts, before);
        }
        next.filter(|at| self.cache.schedule_recheck(key, *at))
    }

    /// Ends a cool-down whose start is in the future because the clock was set back; it must not take effect again.
    fn end_cool_down(self: &Arc<Self>, key: StatusKey) {
        let this = self.clone();
        self.runtime.spawn(async move {
            // If the store fails, the cool-down is over nevertheless until the clock reaches its start again.
            let _ = this.apply(&key, &StatusEvent::CoolDownEnded).await;
        });
    }

    /// Number of status changes since the hub started, by tool.
    pub(crate) fn changes(&self) -> Vec<StatusChanges> {
        let changes = self.change_counts.lock().unwrap_or_else(PoisonError::into_inner);
        let entries = changes.iter();
        let mut all: Vec<_> = entries
            .map(|((tool, from, to), count)| StatusChanges { tool: tool.clone(), from: *from, to: *to, count: *count })
            .collect();
        drop(changes);
        all.sort_by(|a, b| (&a.tool, a.from, a.to).cmp(&(&b.tool, b.from, b.to)));
        all
    }

    pub(crate) fn count_change(&self, tool: &ToolName, from: ToolStatus, to: ToolStatus) {
        let mut changes = self.change_counts.lock().unwrap_or_else(PoisonError::into_inner);
        *changes.entry((tool.clone(), from, to)).or_default() += 1;
    }

    /// Which change of a record this is; `None` if the record is not stored.
    fn mark(&self, key: &StatusKey, status: ToolStatus) -> Option<StatusMark> {
        let version = self.cache.get(key)?.1?.number;
        let (tool, owner) = (key.tool(), key.owner());
        let record = match owner {
            Some(ThreadKey { tenant, thread }) => format_smolstr!("{tool}/{tenant}/{thread}"),
            None => format_smolstr!("{tool}"),
        };
        Some(StatusMark { record, version, status })
    }

    /// Emits the status of a record. The cache may have a newer record already, whose status is emitted next.
    fn publish(&self, key: &StatusKey, own: &StatusRecord, before: ToolStatus) {
        // A thread sees the worse of its own and the shared status, so a change that the shared one masks is not
        // emitted.
        let shared = key.owner().and_then(|_| self.facts(&StatusKey::shared(key.tool())));
        let (settings, now) = (self.settings(), self.clock.now());
        let presence = self.presence.get().map_or(Readiness::Ready, |presence| presence(key.tool()));
        let (before, reading) = match shared {
            Some(shared) => {
                let combined = status::evaluate_in_thread(own, &shared, &presence, &settings, now);
                (before.max(self.reading(&shared).status), combined)
            }
            None => (before, status::evaluate(own, &presence, &settings, now)),
        };
        // A tool that is not connected was not available either, although its record said so.
        let before = match before {
            ToolStatus::Available => status::evaluate(&StatusRecord::default(), &presence, &settings, now).status,
            other => other,
        };
        if before == reading.status {
            return;
        }
        self.count_change(key.tool(), before, reading.status);
        tracing::warn!(
            tool = key.tool().as_str(),
            status = reading.status.as_str(),
            before = before.as_str(),
            thread = key.owner().map(|owner| owner.thread.as_str()),
            reason = reading.reason.text(Language::English),
            "tool status changed"
        );
        if !self.events.has_consumers() {
            return;
        }
        let (now, reason) = (self.clock.now(), reading.reason.text(Language::English));
        let tool_name = key.tool().clone();
        let (old_status, new_status) = (Some(before), reading.status);
        // What depends on the connections of this node is no change that other nodes see.
        let mark = (presence == Readiness::Ready).then(|| self.mark(key, new_status)).flatten();
        let mut events = vec![EventKind::StatusChanged {
            tool_name: tool_name.clone(),
            old_status,
            new_status,
            reason: reason.clone(),
        }];
        let available = new_status == ToolStatus::Available;
        if available != (before == ToolStatus::Available) {
            events.push(EventKind::AvailabilityChanged { tool_name, available, reason });
        }
        for event in events {
            self.events.emit_status(now, key.owner(), event, mark.clone());
        }
    }
}

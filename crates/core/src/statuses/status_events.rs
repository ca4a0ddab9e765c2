//! Tells of a status that changed: when it changes, and when its time has come.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use super::{StatusKey, Statuses};
use crate::monitor::StatusChanges;
use toolhub_storage::backend::RowVersion;
use toolhub_types::{
    event_kind::EventKind,
    ids::ThreadKey,
    language::Language,
    status::{self, EffectiveStatus, Readiness, StatusEvent, StatusRecord, ToolStatus},
    timestamp::Timestamp,
    tool::ToolName,
};

/// How often each tool's status changed, and how. There are as many tools in it as have records.
pub(super) type ChangeCounts = Mutex<HashMap<(ToolName, ToolStatus, ToolStatus), u64>>;

impl Statuses {
    /// What a record says now.
    fn reading(&self, facts: &StatusRecord) -> EffectiveStatus {
        status::evaluate(facts, &Readiness::Ready, &self.settings(), self.clock.now())
    }

    /// Takes in a record of which listeners were told in an earlier life.
    pub(super) fn insert_silently(self: &Arc<Self>, whose: StatusKey, facts: Arc<StatusRecord>, seen: RowVersion) {
        self.cache.put(whose.clone(), facts, seen);
        if let Some(facts) = self.facts(&whose) {
            self.cache.set_emitted(&whose, self.reading(&facts).status);
        }
        self.emit_and_schedule(whose);
    }

    /// Takes in a record and tells of it.
    pub(super) fn insert_and_emit(self: &Arc<Self>, whose: StatusKey, facts: Arc<StatusRecord>, seen: RowVersion) {
        self.cache.put(whose.clone(), facts, seen);
        self.emit_and_schedule(whose);
        self.notify_changed();
    }

    /// Everything may be read otherwise now: tells of all that is.
    pub(super) fn emit_all(self: &Arc<Self>) {
        for whose in self.cache.keys() {
            self.emit_and_schedule(whose);
        }
        self.notify_changed();
    }

    /// Wakes whoever waits for a probe, and whoever holds a list that may have changed.
    fn notify_changed(&self) {
        self.changed.notify_waiters();
        self.availability_changed.notify_one();
    }

    /// Tells listeners if the word is another than they know, and looks again when it changes by itself. The word is read
    /// from timestamps: a timer that is late delays the news, never the tool.
    fn emit_and_schedule(self: &Arc<Self>, whose: StatusKey) {
        let Some(next) = self.emit_now(&whose) else { return };
        let wait = next.since(self.clock.now());
        let this = Arc::downgrade(self);
        self.runtime.spawn(self.timers.clone().run_until_cancelled_owned(async move {
            tokio::time::sleep(wait).await;
            if let Some(statuses) = this.upgrade() {
                statuses.recheck_due(&whose, next);
            }
        }));
    }

    /// Looks at a record whose word should have changed by itself, unless somebody else did. By the wall clock it may still
    /// be too early; then somebody looks again.
    pub(super) fn recheck_due(self: &Arc<Self>, whose: &StatusKey, at: Timestamp) {
        if self.cache.take_recheck(whose, at) {
            self.emit_and_schedule(whose.clone());
            self.notify_changed();
        }
    }

    /// Tells listeners what is true at this moment; answers when to look again, where nobody else will. All of it under one
    /// lock: between reading a record and speaking of it nobody else may speak of it.
    fn emit_now(self: &Arc<Self>, whose: &StatusKey) -> Option<Timestamp> {
        let _telling = self.emit_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let facts = self.facts(whose)?;
        if facts.breaker.is_in_future(self.clock.now()) {
            self.end_cool_down(whose.clone());
        }
        let reading = self.reading(&facts);
        let next = reading.next_change;
        if let Some(before) = self.cache.set_emitted(whose, reading.status) {
            self.publish(whose, before, reading);
        }
        next.filter(|at| self.cache.schedule_recheck(whose, *at))
    }

    /// A clock was set back so far that the wait lies ahead: it is over, and must not come to life again.
    fn end_cool_down(self: &Arc<Self>, whose: StatusKey) {
        let this = self.clone();
        self.runtime.spawn(async move {
            // If the store does not answer, the wait is over all the same, until the clock gets there again.
            let _ = this.apply(&whose, &StatusEvent::CoolDownEnded).await;
        });
    }

    /// How often statuses changed since the hub began, by tool.
    pub(crate) fn changes(&self) -> Vec<StatusChanges> {
        let changes = self.change_counts.lock().unwrap_or_else(PoisonError::into_inner);
        let each = changes.iter();
        let mut all: Vec<_> = each
            .map(|((tool, from, to), many)| StatusChanges { tool: tool.clone(), from: *from, to: *to, count: *many })
            .collect();
        drop(changes);
        all.sort_by(|a, b| (&a.tool, a.from, a.to).cmp(&(&b.tool, b.from, b.to)));
        all
    }

    fn count_change(&self, tool: &ToolName, from: ToolStatus, to: ToolStatus) {
        let mut changes = self.change_counts.lock().unwrap_or_else(PoisonError::into_inner);
        *changes.entry((tool.clone(), from, to)).or_default() += 1;
    }

    fn publish(&self, whose: &StatusKey, before: ToolStatus, reading: EffectiveStatus) {
        // A thread sees the worse of its own record and the shared one; what the shared one hides is no news to it.
        let shared = whose.owner().and_then(|_| self.facts(&StatusKey::shared(whose.tool())));
        let (before, reading) = match shared.map(|shared| self.reading(&shared)) {
            Some(shared) => (before.max(shared.status), status::worst(reading, shared)),
            None => (before, reading),
        };
        if before == reading.status {
            return;
        }
        self.count_change(whose.tool(), before, reading.status);
        if !self.events.has_consumers() {
            return;
        }
        let (now, reason) = (self.clock.now(), reading.reason.text(Language::English));
        let tool_name = whose.tool().clone();
        let (old_status, new_status) = (Some(before), reading.status);
        let mut news = vec![EventKind::StatusChanged {
            tool_name: tool_name.clone(),
            old_status,
            new_status,
            reason: reason.clone(),
        }];
        let available = new_status == ToolStatus::Available;
        if available != (before == ToolStatus::Available) {
            news.push(EventKind::AvailabilityChanged { tool_name, available, reason });
        }
        for news in news {
            match whose.owner() {
                Some(ThreadKey { tenant, thread }) => self.events.emit_for_tenant(now, tenant, Some(thread), news),
                None => self.events.emit(now, news),
            }
        }
    }
}

//! Tells of a status that changed: when it changes, and when its time has come.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use super::{Statuses, Whose};
use crate::monitor::StatusChanges;
use toolhub_storage::backend::Seen;
use toolhub_types::{
    event_kind::News,
    ids::ThreadKey,
    language::Language,
    status::{self, Event, Facts, Presence, Reading, ToolStatus},
    timestamp::Timestamp,
    tool::ToolName,
};

/// How often each tool's status changed, and how. There are as many tools in it as have records.
pub(super) type Changes = Mutex<HashMap<(ToolName, ToolStatus, ToolStatus), u64>>;

impl Statuses {
    /// What a record says now.
    fn reading(&self, facts: &Facts) -> Reading {
        status::read(facts, &Presence::Ready, &self.settings(), self.clock.now())
    }

    /// Takes in a record of which listeners were told in an earlier life.
    pub(super) fn recall(self: &Arc<Self>, whose: Whose, facts: Arc<Facts>, seen: Seen) {
        self.known.put(whose.clone(), facts, seen);
        if let Some(facts) = self.facts(&whose) {
            self.known.tell(&whose, self.reading(&facts).status);
        }
        self.tell(whose);
    }

    /// Takes in a record and tells of it.
    pub(super) fn learn(self: &Arc<Self>, whose: Whose, facts: Arc<Facts>, seen: Seen) {
        self.known.put(whose.clone(), facts, seen);
        self.tell(whose);
        self.stir();
    }

    /// Everything may be read otherwise now: tells of all that is.
    pub(super) fn tell_all(self: &Arc<Self>) {
        for whose in self.known.all() {
            self.tell(whose);
        }
        self.stir();
    }

    /// Wakes whoever waits for a probe, and whoever holds a list that may have changed.
    fn stir(&self) {
        self.changed.notify_waiters();
        self.stirred.notify_one();
    }

    /// Tells listeners if the word is another than they know, and looks again when it changes by itself. The word is read
    /// from timestamps: a timer that is late delays the news, never the tool.
    fn tell(self: &Arc<Self>, whose: Whose) {
        let Some(next) = self.tell_now(&whose) else { return };
        let wait = next.since(self.clock.now());
        let this = Arc::downgrade(self);
        self.runtime.spawn(self.timers.clone().run_until_cancelled_owned(async move {
            tokio::time::sleep(wait).await;
            if let Some(statuses) = this.upgrade() {
                statuses.time_has_come(&whose, next);
            }
        }));
    }

    /// Looks at a record whose word should have changed by itself, unless somebody else did. By the wall clock it may still
    /// be too early; then somebody looks again.
    pub(super) fn time_has_come(self: &Arc<Self>, whose: &Whose, at: Timestamp) {
        if self.known.take_look(whose, at) {
            self.tell(whose.clone());
            self.stir();
        }
    }

    /// Tells listeners what is true at this moment; answers when to look again, where nobody else will. All of it under one
    /// lock: between reading a record and speaking of it nobody else may speak of it.
    fn tell_now(self: &Arc<Self>, whose: &Whose) -> Option<Timestamp> {
        let _telling = self.telling.lock().unwrap_or_else(PoisonError::into_inner);
        let facts = self.facts(whose)?;
        if facts.breaker.is_ahead(self.clock.now()) {
            self.end_cool_down(whose.clone());
        }
        let reading = self.reading(&facts);
        let next = reading.next_change;
        if let Some(before) = self.known.tell(whose, reading.status) {
            self.announce(whose, before, reading);
        }
        next.filter(|at| self.known.schedule(whose, *at))
    }

    /// A clock was set back so far that the wait lies ahead: it is over, and must not come to life again.
    fn end_cool_down(self: &Arc<Self>, whose: Whose) {
        let this = self.clone();
        self.runtime.spawn(async move {
            // If the store does not answer, the wait is over all the same, until the clock gets there again.
            let _ = this.apply(&whose, &Event::CoolDownEnded).await;
        });
    }

    /// How often statuses changed since the hub began, by tool.
    pub(crate) fn changes(&self) -> Vec<StatusChanges> {
        let changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let each = changes.iter();
        let mut all: Vec<_> = each
            .map(|((tool, from, to), many)| StatusChanges { tool: tool.clone(), from: *from, to: *to, many: *many })
            .collect();
        drop(changes);
        all.sort_by(|a, b| (&a.tool, a.from, a.to).cmp(&(&b.tool, b.from, b.to)));
        all
    }

    fn count(&self, tool: &ToolName, from: ToolStatus, to: ToolStatus) {
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        *changes.entry((tool.clone(), from, to)).or_default() += 1;
    }

    fn announce(&self, whose: &Whose, before: ToolStatus, reading: Reading) {
        // A thread sees the worse of its own record and the shared one; what the shared one hides is no news to it.
        let shared = whose.owner().and_then(|_| self.facts(&Whose::everybody(whose.tool())));
        let (before, reading) = match shared.map(|shared| self.reading(&shared)) {
            Some(shared) => (before.max(shared.status), status::worse(reading, shared)),
            None => (before, reading),
        };
        if before == reading.status {
            return;
        }
        self.count(whose.tool(), before, reading.status);
        if !self.events.wanted() {
            return;
        }
        let (now, reason) = (self.clock.now(), reading.reason.text(Language::English));
        let tool_name = whose.tool().clone();
        let (old_status, new_status) = (Some(before), reading.status);
        let mut news =
            vec![News::StatusChanged { tool_name: tool_name.clone(), old_status, new_status, reason: reason.clone() }];
        let available = new_status == ToolStatus::Available;
        if available != (before == ToolStatus::Available) {
            news.push(News::AvailabilityChanged { tool_name, available, reason });
        }
        for news in news {
            match whose.owner() {
                Some(ThreadKey { tenant, thread }) => self.events.tell_tenant(now, tenant, Some(thread), news),
                None => self.events.tell(now, news),
            }
        }
    }
}

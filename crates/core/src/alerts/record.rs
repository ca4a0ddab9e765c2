//! The record of one alert: a condition on one thing, as it is reported to one target.
//!
//! In: signals, and the time. Out: when something is to be reported, and what. A condition must hold for a while before it is reported; two
//! messages within an hour are sent at once, further ones when the state has lasted, and more than five changes within an hour are
//! reported once as flapping. Plain data and functions: `hub/alerts` stores the record in one batch with the message about it.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::{
    Alert, AlertChange, AlertPhase, AlertTarget, Condition,
    condition::ConditionKind,
    signal::{Signal, SignalKind},
};
use toolhub_types::{
    ids::{Tenant, mint_uuid_text},
    timestamp::Timestamp,
    tool::ToolName,
};

/// The time within which changes are counted.
const FLAPPING_WINDOW: Duration = Duration::from_secs(3600);
/// More changes than this within [`FLAPPING_WINDOW`] are flapping.
const MAX_CHANGES: usize = 5;
/// Number of messages within [`FLAPPING_WINDOW`] that are sent at once.
const PROMPT_MESSAGES: usize = 2;
/// How long a state must last before a further change is reported.
const SETTLING: Duration = Duration::from_secs(600);
/// For how long instant conditions are counted together after a message.
const COUNTING: Duration = Duration::from_secs(60);
/// Number of changes that a message lists.
const MAX_LISTED: usize = 20;

/// The durable record of an alert.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AlertRecord {
    pub(crate) condition: Condition,
    pub(crate) thing: SmolStr,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<Tenant>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tool: Option<ToolName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) server: Option<SmolStr>,
    /// The id of the alert, the same from its begin to its end.
    pub(crate) id: SmolStr,
    pub(crate) is_active: bool,
    pub(crate) state: SmolStr,
    pub(crate) reason: String,
    /// When it began.
    began: Timestamp,
    /// Since when it is active, or is not.
    pub(crate) since: Timestamp,
    /// The changes that were not reported, or a sample of what happened.
    pub(crate) unreported: Vec<AlertChange>,
    /// How many changes were not reported.
    pub(crate) unreported_count: u64,
    pub(crate) last_change: Timestamp,
    /// The latest changes within an hour.
    recent: Vec<Timestamp>,
    /// When messages about changes were sent within an hour.
    #[serde(default)]
    messages: Vec<Timestamp>,
    flapping: Flapping,
    /// What was reported last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reported: Option<Reported>,
    /// The version of the last signal.
    pub(crate) version: u64,
}

/// What was reported.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Reported {
    pub(crate) id: SmolStr,
    pub(crate) is_active: bool,
    pub(crate) state: SmolStr,
    pub(crate) at: Timestamp,
}

/// Whether the alert changes too often.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Flapping {
    #[default]
    No,
    Unreported,
    Reported,
}

/// When something is to be reported, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) at: Timestamp,
    pub(crate) phase: AlertPhase,
}

impl AlertRecord {
    /// The record of an alert that has not begun.
    pub(crate) fn new(signal: &Signal) -> Self {
        Self {
            condition: signal.condition,
            thing: match signal.kind {
                // What happens to several things is counted in one record.
                SignalKind::Happened => SmolStr::default(),
                _ => signal.thing.clone(),
            },
            tenant: signal.tenant.clone(),
            tool: signal.tool.clone(),
            server: signal.server.clone(),
            id: SmolStr::default(),
            is_active: false,
            state: SmolStr::default(),
            reason: String::new(),
            began: signal.at,
            since: signal.at,
            unreported: Vec::new(),
            unreported_count: 0,
            last_change: signal.at,
            recent: Vec::new(),
            messages: Vec::new(),
            flapping: Flapping::No,
            reported: None,
            version: 0,
        }
    }

    /// Takes note of a signal; returns whether the record changed.
    pub(crate) fn observe(&mut self, signal: &Signal) -> bool {
        if let Some(version) = signal.version {
            if version <= self.version {
                return false;
            }
            self.version = version;
        }
        if signal.server.is_some() {
            self.server.clone_from(&signal.server);
        }
        let is_active = signal.kind == SignalKind::Active;
        let is_change = match signal.kind {
            SignalKind::Happened => true,
            _ if is_active != self.is_active => true,
            _ => is_active && self.state != signal.state && self.kind() == ConditionKind::EachChange,
        };
        if !is_change {
            // Not worth a commit: it changes with each sample of a rate.
            if is_active {
                self.reason.clone_from(&signal.reason);
            }
            return signal.version.is_some();
        }
        let is_closed = self.reported.as_ref().is_some_and(|reported| reported.id == self.id && !reported.is_active);
        if self.id.is_empty() || (is_closed && !self.is_active && self.unreported.is_empty()) {
            self.id = mint_uuid_text("alert_", signal.at);
        }
        if is_active != self.is_active || (signal.kind == SignalKind::Happened && self.unreported.is_empty()) {
            self.since = signal.at;
            if is_active || signal.kind == SignalKind::Happened {
                self.began = signal.at;
            }
        }
        self.is_active = is_active;
        self.state.clone_from(&signal.state);
        self.reason.clone_from(&signal.reason);
        self.last_change = self.last_change.max(signal.at);
        self.unreported_count += 1;
        if self.unreported.len() < MAX_LISTED {
            self.unreported.push(AlertChange {
                at: signal.at,
                state: signal.state.clone(),
                thing: (signal.kind == SignalKind::Happened).then(|| signal.thing.clone()),
                reason: signal.reason.clone(),
            });
        }
        if signal.kind != SignalKind::Happened {
            self.note_change(signal.at);
        }
        true
    }

    fn note_change(&mut self, at: Timestamp) {
        self.recent.retain(|earlier| *earlier + FLAPPING_WINDOW > at);
        self.recent.push(at);
        if self.recent.len() > MAX_CHANGES {
            self.recent.remove(0);
            if self.flapping == Flapping::No {
                self.flapping = Flapping::Unreported;
            }
        }
    }

    fn kind(&self) -> ConditionKind {
        self.condition.row().kind
    }

    fn reported_active(&self) -> bool {
        self.reported.as_ref().is_some_and(|reported| reported.is_active)
    }

    /// What the target knows differs from what is the case.
    fn is_news(&self) -> bool {
        match &self.reported {
            Some(reported) => reported.is_active != self.is_active || (self.is_active && reported.state != self.state),
            None => self.is_active,
        }
    }

    /// When something is to be reported next, as things are now. Call [`settle`](Self::settle) before.
    pub(crate) fn due(&self, target: &AlertTarget) -> Option<Due> {
        let due = |at, phase| Some(Due { at, phase });
        if self.kind() == ConditionKind::Instant {
            let first = self.unreported.first()?.at;
            let at = self.reported.as_ref().map_or(first, |reported| first.max(reported.at + COUNTING));
            return due(at, AlertPhase::Happened);
        }
        match self.flapping {
            Flapping::Unreported => return due(self.last_change, AlertPhase::Flapping),
            Flapping::Reported => return None,
            Flapping::No => {}
        }
        if self.unreported.is_empty() {
            let reported = self.reported.as_ref().filter(|reported| self.is_active && reported.is_active)?;
            return due(reported.at + target.repeat, AlertPhase::Repeated);
        }
        let lately = self.messages.iter().filter(|at| **at + FLAPPING_WINDOW > self.last_change).count();
        let settled = if lately >= PROMPT_MESSAGES { self.last_change + SETTLING } else { self.last_change };
        match (self.is_active, self.reported_active()) {
            (true, false) => due((self.since + target.hold_of(self.condition)).max(settled), AlertPhase::Firing),
            (true, true) => due(settled, AlertPhase::Changed),
            (false, _) => due(settled, AlertPhase::Resolved),
        }
    }

    /// Drops what is not worth a message any more: a begin that ended within its hold, the end of flapping. Returns whether the record
    /// changed.
    pub(crate) fn settle(&mut self, target: &AlertTarget, now: Timestamp) -> bool {
        if self.kind() == ConditionKind::Instant {
            return false;
        }
        if self.flapping == Flapping::Reported {
            if now < self.last_change + FLAPPING_WINDOW {
                return false;
            }
            self.flapping = Flapping::No;
            self.recent.clear();
            if !self.is_news() {
                self.forget_changes();
            }
            return true;
        }
        if self.unreported.is_empty() || self.flapping == Flapping::Unreported || self.is_active {
            return false;
        }
        // It ended before it was reported.
        let has_begun = self.reported_active();
        let is_listed = self.kind() == ConditionKind::EachChange && target.hold_of(self.condition).is_zero();
        if !target.reports_end {
            if has_begun {
                self.mark_reported(now);
            }
            self.forget_changes();
            return true;
        }
        if !has_begun && !is_listed {
            self.forget_changes();
            return true;
        }
        false
    }

    fn forget_changes(&mut self) {
        self.unreported.clear();
        self.unreported_count = 0;
    }

    fn mark_reported(&mut self, now: Timestamp) {
        let (id, is_active, state) = (self.id.clone(), self.is_active, self.state.clone());
        self.reported = Some(Reported { id, is_active, state, at: now });
    }

    /// The alert as a message tells it, and marks it as reported.
    pub(crate) fn report(&mut self, phase: AlertPhase, link: Option<String>, now: Timestamp) -> Alert {
        let alert = Alert {
            id: self.id.clone(),
            thing: self.unreported.first().and_then(|it| it.thing.clone()).unwrap_or_else(|| self.thing.clone()),
            tool: self.tool.clone(),
            server: self.server.clone(),
            tenant: self.tenant.clone(),
            is_active: self.is_active,
            state: self.state.clone(),
            began: self.began,
            since: self.since,
            reason: self.reason.clone(),
            changes: std::mem::take(&mut self.unreported),
            count: self.unreported_count.max(1),
            link,
        };
        self.unreported_count = 0;
        match phase {
            // What was reported before counts when the flapping ends.
            AlertPhase::Flapping => self.flapping = Flapping::Reported,
            AlertPhase::Happened => {
                self.mark_reported(now);
                self.id = SmolStr::default();
            }
            AlertPhase::Repeated => self.mark_reported(now),
            _ => {
                self.messages.retain(|earlier| *earlier + FLAPPING_WINDOW > now);
                self.messages.push(now);
                self.mark_reported(now);
            }
        }
        alert
    }

    /// Whether there is nothing left to remember.
    pub(crate) fn is_over(&self, now: Timestamp) -> bool {
        !self.is_active
            && self.unreported.is_empty()
            && self.flapping != Flapping::Unreported
            && now > self.last_change + FLAPPING_WINDOW
    }

    /// Whether it was reported that it holds.
    pub(crate) fn is_firing(&self) -> bool {
        self.is_active && self.reported_active()
    }

    pub(crate) fn is_flapping(&self) -> bool {
        self.flapping == Flapping::Reported
    }
}

#[cfg(test)]
mod tests;

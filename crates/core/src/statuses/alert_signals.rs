//! Signals of alerts about tools: the change of a shared status, and the status as it is now.
//!
//! In: a record before and after a change. Out: a signal that is committed with the record, if the status changed and there are
//! targets. A status also changes with time and with connections; `hub/alerts` reads it as it is for that.

use toolhub_storage::backend::RowVersion;
use toolhub_types::{
    language::Language,
    status::{self, EffectiveStatus, Readiness, Reason, StatusRecord, ToolStatus},
    timestamp::Timestamp,
    tool::ToolName,
};

use super::{StatusKey, Statuses};
use crate::alerts::{Condition, Signal, SignalKind};

impl Statuses {
    /// The signal of a change of a record.
    pub(super) fn alert_signal(
        &self,
        key: &StatusKey,
        (before, after): (&StatusRecord, &StatusRecord),
        version: u64,
        now: Timestamp,
    ) -> Option<Signal> {
        if !self.alerts.is_enabled() || key.owner().is_some() {
            return None;
        }
        let settings = self.settings();
        let evaluate = |record| status::evaluate(record, &Readiness::Ready, &settings, now);
        let (before, after) = (evaluate(before), evaluate(after));
        let is_change = before.status != after.status;
        is_change.then(|| Signal { version: Some(version), ..status_signal(key.tool(), &after, now) })
    }

    /// The shared status of a tool as it is now, as a signal, and the version of its record. A tool without a record has none.
    pub(crate) fn current_alert_signal(&self, tool: &ToolName, readiness: &Readiness, now: Timestamp) -> (Signal, u64) {
        let cached = self.cache.get(&StatusKey::shared(tool));
        let version = cached.as_ref().and_then(|(_, version)| *version).map_or(0, |version: RowVersion| version.number);
        let record = cached.map(|(facts, _)| facts).unwrap_or_default();
        let status = status::evaluate(&record, readiness, &self.settings(), now);
        (status_signal(tool, &status, now), version)
    }
}

fn status_signal(tool: &ToolName, status: &EffectiveStatus, now: Timestamp) -> Signal {
    let kind = if status.status == ToolStatus::Available { SignalKind::Ended } else { SignalKind::Active };
    let reason = match &status.reason {
        // The cause may name addresses; it is on the page of the tool.
        Reason::Disconnected { .. } => Reason::Disconnected { message: None },
        reason => reason.clone(),
    };
    let reason = reason.text(Language::English);
    Signal {
        kind,
        state: status.status.as_str().into(),
        is_on_probation: status.probation,
        ..Signal::active(Condition::ToolStatus, tool.as_str(), now, reason)
    }
    .tool(tool)
}

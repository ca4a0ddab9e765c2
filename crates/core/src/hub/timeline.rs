//! The timeline of a call: what it did and waited for, and when.
//!
//! In: the record of a call, and its approval. Out: its steps. Made when it is read; the record holds only the times that most calls do
//! not have.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use super::ToolHub;
use crate::{approvals::Approval, journal::CallRecord};
use toolhub_storage::backend::StoreError;
use toolhub_types::{
    approval::{ApprovalOutcome, ApprovalState},
    error::CallError,
    ids::{ApprovalId, Caller, Tenant},
    millis::Millis,
    outcome::{Outcome, Status},
    timestamp::Timestamp,
    timing::{AttemptError, AttemptTiming, CallTiming},
};

/// A step in the timeline of a call.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct TimelineStep {
    /// What happened.
    pub stage: TimelineStage,
    /// When it began, since the arrival of the call.
    #[serde(rename = "startMs")]
    pub start: Millis,
    /// When it ended; absent while it goes on.
    #[serde(rename = "endMs", skip_serializing_if = "Option::is_none")]
    pub end: Option<Millis>,
    /// The number of the attempt, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// How long the call waited between the attempt before and this one.
    #[serde(rename = "waitedMs", skip_serializing_if = "Option::is_none")]
    pub waited: Option<Millis>,
    /// Why the attempt failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<AttemptError>,
    /// The approval, and who answered it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval: Option<TimelineApproval>,
}

/// What happens in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TimelineStage {
    /// The hub checks the call, and writes the record that it begins.
    Validating,
    /// The call waits for the approval of a person.
    AwaitingApproval,
    /// The call waits for a rate limit or a slot.
    Scheduled,
    /// The tool runs.
    Attempt,
    /// The hooks after the tool run, and the result is prepared to be stored.
    Closing,
}

/// An approval that a call waited for or was made with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct TimelineApproval {
    /// The approval.
    pub id: ApprovalId,
    /// Its state.
    pub state: ApprovalState,
    /// The answer, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<ApprovalOutcome>,
    /// Who answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<Caller>,
    /// When it was answered. Before the call arrived, if the same call had asked before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
}

impl ToolHub {
    /// The steps of a call, in their order. Of a call that has not ended, only its approval and the current step are known; that step is
    /// shown from the end of the one before.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn call_timeline(&self, tenant: &Tenant, record: &CallRecord) -> Result<Vec<TimelineStep>, StoreError> {
        let outcome = record.outcome.as_ref();
        let refused_by = outcome.and_then(|outcome| outcome.error.as_ref()).and_then(CallError::approval);
        let approval = match record.approval.or(refused_by) {
            Some(id) => self.approval(tenant, id).await?,
            None => None,
        };
        Ok(timeline(record, approval.as_ref()))
    }
}

fn timeline(record: &CallRecord, approval: Option<&Approval>) -> Vec<TimelineStep> {
    let mut steps = Steps::default();
    let Some(outcome) = &record.outcome else {
        let stage = match record.status {
            Status::AwaitingApproval => None,
            Status::Scheduled => Some(TimelineStage::Scheduled),
            Status::Executing => Some(TimelineStage::Attempt),
            Status::Validating | Status::Success | Status::Error | Status::Cancelled => Some(TimelineStage::Validating),
        };
        if let Some(approval) = approval {
            steps.add_approval(approval, record.opened_at, None);
        }
        if let Some(stage) = stage.filter(|_| steps.0.last().is_none_or(|last| last.end.is_some())) {
            steps.add(stage, steps.end(), None);
        }
        return steps.0;
    };
    // A call that continued after a restart arrived before the restart; the times of its outcome are those since then.
    let arrived_at = outcome.started_at.min(record.opened_at);
    let offset = outcome.started_at.since(arrived_at);
    // Exact to the millisecond, but also known of a call that was closed after a crash.
    let ended = outcome.ended_at.since(arrived_at);
    let started = offset + outcome.queued;
    let (start, end) = match outcome.attempts {
        // The time of the result cache is part of the time until the end.
        0 => (started.max(ended), started.max(ended)),
        _ => (started, (started + outcome.duration).max(ended)),
    };
    if let Some(approval) = approval {
        steps.add_approval(approval, arrived_at, Some(start));
    }
    let timing = outcome.timing.as_deref();
    if let Some(Millis(scheduled)) = timing.and_then(|timing| timing.scheduled) {
        let scheduled = (offset + scheduled).min(start);
        steps.validate_until(scheduled);
        steps.add(TimelineStage::Scheduled, scheduled, Some(start));
    }
    steps.validate_until(start);
    if outcome.attempts > 0 {
        let done = timing.and_then(|timing| timing.done).map_or(end, |Millis(done)| (offset + done).min(end));
        steps.add_attempts(outcome, (start, done), offset);
        steps.add(TimelineStage::Closing, done, Some(end));
    }
    steps.0
}

#[derive(Default)]
struct Steps(Vec<TimelineStep>);

impl Steps {
    fn add(&mut self, stage: TimelineStage, start: Duration, end: Option<Duration>) -> Option<&mut TimelineStep> {
        let (start, end) = (Millis(start), end.map(Millis));
        self.0.push(TimelineStep { stage, start, end, attempt: None, waited: None, error: None, approval: None });
        self.0.last_mut()
    }

    /// The end of the last step that has ended.
    fn end(&self) -> Duration {
        self.0.iter().rev().find_map(|step| step.end).map_or(Duration::ZERO, |Millis(end)| end)
    }

    /// Adds what comes before a step that begins then: the first step of a call, also if it takes no time.
    fn validate_until(&mut self, end: Duration) {
        let start = self.end();
        if self.0.is_empty() || start < end {
            self.add(TimelineStage::Validating, start, Some(end));
        }
    }

    /// Adds the wait for an approval, and what came before. `until` is when the tool started or the call ended.
    fn add_approval(&mut self, approval: &Approval, arrived_at: Timestamp, until: Option<Duration>) {
        let before = |time: Duration| until.map_or(time, |until| time.min(until));
        let start = before(approval.asked_at.since(arrived_at));
        let answer = approval.answer.as_ref();
        let end = match (answer, approval.state) {
            (Some(answer), _) => Some(before(answer.at.since(arrived_at))),
            (None, ApprovalState::Pending) => until,
            (None, _) => Some(before(approval.expires_at.since(arrived_at))),
        };
        self.validate_until(start);
        let end = end.map(|end| end.max(start));
        let (id, state) = (approval.id, approval.state);
        let (outcome, by) = answer.map(|answer| (answer.outcome, answer.by.clone())).unzip();
        let shown = TimelineApproval { id, state, outcome, by, at: answer.map(|answer| answer.at) };
        if let Some(step) = self.add(TimelineStage::AwaitingApproval, start, end) {
            step.approval = Some(shown);
        }
    }

    /// Adds the attempts of a call whose tool started and was done at these times.
    fn add_attempts(&mut self, outcome: &Outcome, (start, done): (Duration, Duration), offset: Duration) {
        let only = [AttemptTiming { start: Millis(start - offset), end: None, error: None }];
        let timed = outcome.timing.as_deref().map(|timing: &CallTiming| timing.attempts.as_slice()).unwrap_or_default();
        let attempts = if timed.is_empty() { &only } else { timed };
        let mut previous_end = None;
        for (index, attempt) in attempts.iter().enumerate() {
            let is_last = index + 1 == attempts.len();
            let start = offset + attempt.start.0;
            let end = attempt.end.map_or(done, |Millis(end)| offset + end);
            let error = attempt.error.clone();
            let error = error.or_else(|| outcome.error.as_ref().filter(|_| is_last).map(AttemptError::from));
            if let Some(step) = self.add(TimelineStage::Attempt, start, Some(end.max(start))) {
                step.attempt = u32::try_from(index + 1).ok();
                step.waited = previous_end.map(|previous| Millis(start.saturating_sub(previous)));
                step.error = error;
            }
            previous_end = Some(end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use toolhub_types::ids::CallId;

    /// The stages of a call with these members of its outcome, which arrived at second 10, with start and end in milliseconds.
    fn stages(outcome: &Value, opened_at: &str) -> Vec<(TimelineStage, u128, u128)> {
        let mut all = json!({
            "id": CallId::mint(Timestamp::default()), "tool": "t", "threadId": null, "status": "success", "effect": "none", "attempts": 1,
            "replayed": false, "queuedMs": 0, "durationMs": 0, "startedAt": "2026-01-01T00:00:10Z", "endedAt": "2026-01-01T00:00:10Z",
        });
        all.as_object_mut().unwrap().extend(outcome.as_object().unwrap().clone());
        let record = json!({
            "id": all["id"], "tool": "t", "caller": "local", "arguments": {}, "status": all["status"], "openedAt": opened_at, "outcome": all,
        });
        let record: CallRecord = serde_json::from_value(record).unwrap();
        let millis = |time: Millis| time.0.as_millis();
        let steps = timeline(&record, None).into_iter();
        steps.map(|step| (step.stage, millis(step.start), millis(step.end.unwrap()))).collect()
    }

    const ARRIVED: &str = "2026-01-01T00:00:10Z";

    #[test]
    fn a_call_that_was_closed_after_a_crash_ends_when_it_was_closed() {
        let interrupted = json!({"endedAt": "2026-01-01T00:00:15Z"});
        let expected = [
            (TimelineStage::Validating, 0, 0),
            (TimelineStage::Attempt, 0, 5_000),
            (TimelineStage::Closing, 5_000, 5_000),
        ];
        assert_eq!(stages(&interrupted, ARRIVED), expected);
        let waiting = json!({"endedAt": "2026-01-01T00:00:15Z", "attempts": 0});
        assert_eq!(stages(&waiting, ARRIVED), [(TimelineStage::Validating, 0, 5_000)]);
    }

    #[test]
    fn a_call_that_continued_after_a_restart_begins_with_its_first_arrival() {
        let resumed = json!({"queuedMs": 200, "durationMs": 100, "timing": {"scheduledMs": 50, "doneMs": 290}});
        let expected = [
            (TimelineStage::Validating, 0, 3_050),
            (TimelineStage::Scheduled, 3_050, 3_200),
            (TimelineStage::Attempt, 3_200, 3_290),
            (TimelineStage::Closing, 3_290, 3_300),
        ];
        assert_eq!(stages(&resumed, "2026-01-01T00:00:07Z"), expected);
    }

    #[test]
    fn attempts_end_when_the_next_one_is_waited_for_and_the_last_one_with_the_call() {
        let timing = json!({"attempts": [{"startMs": 1, "endMs": 4}, {"startMs": 14}]});
        let retried = json!({"queuedMs": 1, "durationMs": 29, "attempts": 2, "timing": timing});
        let expected = [
            (TimelineStage::Validating, 0, 1),
            (TimelineStage::Attempt, 1, 4),
            (TimelineStage::Attempt, 14, 30),
            (TimelineStage::Closing, 30, 30),
        ];
        assert_eq!(stages(&retried, ARRIVED), expected);
    }
}

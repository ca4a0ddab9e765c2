//! Guarantees exactly one outcome per call (a drop guard).
//!
//! In: the call's head. Out: its one `Outcome`, with timings and attempt count. If the ticket is dropped without one,
//! because the caller dropped a plain call or the runtime stopped, it emits an outcome that says so; otherwise
//! subscribers would wait forever.

use std::{sync::Arc, time::Duration};

use serde_json::Value;

use crate::{
    batched_records::{BatchedRecords, EndedCall},
    call::{Call, CallHead},
    execution::{CallContext, Tool},
    registry::Registry,
    services::Services,
};
use toolhub_storage::clock::Instant;
use toolhub_types::{
    content::Content,
    effect::Effect,
    error::{CallError, ErrorKind},
    ids::{ApprovalId, CallId, RunId, Tenant},
    millis::Millis,
    outcome::{Outcome, Status, WriteDurability},
    timing::CallTiming,
    tool::ToolName,
};

pub(super) struct Ticket<'a> {
    services: &'a Services,
    head: Arc<CallHead>,
    started: Option<Instant>,
    attempts: u32,
    in_place: bool,
    read_only: bool,
    is_unreported: bool,
    /// Whether the tool's meter has counted the end of the call.
    counted: bool,
    approval: Option<ApprovalId>,
    /// What the outcome says about times beyond its first start and its end.
    timing: Option<Box<CallTiming>>,
    /// Finds the tool's meter, to count a call that was dropped.
    registry: Option<&'a Registry>,
    /// While the tool of a plain call runs: the context for its record, should the call be dropped.
    unrecorded: Option<(&'a BatchedRecords, CallContext)>,
}

impl<'a> Ticket<'a> {
    pub(super) fn new(services: &'a Services, call: &Call) -> Self {
        Self {
            services,
            head: call.head.clone(),
            started: None,
            attempts: 0,
            in_place: false,
            read_only: false,
            is_unreported: true,
            counted: false,
            approval: None,
            timing: None,
            registry: None,
            unrecorded: None,
        }
    }

    /// Notes where the call runs and whether its tool is read-only, and counts it in its thread.
    pub(super) fn mark_running(&mut self, in_place: bool, tool: &Tool, registry: &'a Registry) {
        self.set_location(in_place, tool, registry);
        if let Some(thread) = &self.head.thread {
            self.services.thread_activity.begin_call(&self.head.tenant, thread, self.head.arrived_at);
        }
    }

    /// Like `mark_running` for a call that another process started: its thread has already counted it.
    pub(super) fn mark_resumed(&mut self, tool: &Tool, registry: &'a Registry) {
        self.set_location(false, tool, registry);
        if let Some(thread) = &self.head.thread {
            self.services.thread_activity.begin_uncounted(&self.head.tenant, thread, self.head.arrived_at);
        }
    }

    fn set_location(&mut self, in_place: bool, tool: &Tool, registry: &'a Registry) {
        (self.in_place, self.read_only) = (in_place, tool.definition.annotations.read_only);
        self.registry = Some(registry);
    }

    /// Keeps the context of a call that is about to run in its caller's task, so that it is recorded if the caller drops it.
    pub(super) fn record_if_dropped(&mut self, records: Option<&'a BatchedRecords>, context: &CallContext) {
        if self.in_place {
            self.unrecorded = records.map(|records| (records, context.clone()));
        }
    }

    /// The close stage counts and records the call, even if the caller is dropped from here on.
    pub(super) fn mark_counted(&mut self) {
        self.counted = true;
        self.unrecorded = None;
    }

    /// Counts an end that no stage has counted.
    pub(super) fn count_end(&self, error: ErrorKind) {
        if self.counted {
            return;
        }
        let Some((tool, _)) = self.registry.and_then(|registry| registry.find(&self.head.tool)) else { return };
        match self.started {
            None => tool.runtime.meter.record_refusal(error),
            Some(started) => {
                let duration = self.services.clock.instant().saturating_duration_since(started);
                tool.runtime.meter.record_end(duration, Some(error));
            }
        }
    }

    pub(super) fn head(&self) -> &CallHead {
        &self.head
    }

    pub(super) fn id(&self) -> CallId {
        self.head.id
    }

    /// The approval the call has consumed.
    pub(super) fn set_approval(&mut self, approval: ApprovalId) {
        self.approval = Some(approval);
    }

    pub(super) fn mark_started(&mut self, now: Instant) {
        self.started = Some(now);
    }

    /// The call begins to wait for a rate limit or a slot.
    pub(super) fn mark_scheduled(&mut self, now: Instant) {
        let since_arrival = self.since_arrival(now);
        self.timing.get_or_insert_default().scheduled = Some(Millis(since_arrival));
    }

    /// An attempt failed, and may be repeated.
    pub(super) fn mark_attempt_failed(&mut self, started: Instant, now: Instant, error: &CallError) {
        let (start, end) = (self.since_arrival(started), self.since_arrival(now));
        self.timing.get_or_insert_default().end_attempt(start, end, error);
    }

    /// Another attempt begins.
    pub(super) fn mark_next_attempt(&mut self, now: Instant) {
        let since_arrival = self.since_arrival(now);
        self.timing.get_or_insert_default().begin_attempt(since_arrival);
    }

    /// The tool is done; the hooks after it begin.
    pub(super) fn mark_done(&mut self, now: Instant) {
        let since_arrival = self.since_arrival(now);
        self.timing.get_or_insert_default().done = Some(Millis(since_arrival));
    }

    fn since_arrival(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.head.arrived_instant)
    }

    pub(super) fn count_attempt(&mut self) {
        self.attempts += 1;
    }

    pub(super) fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Whether this outcome refuses a repeated call id: the first call with that id has an end of its own.
    pub(super) fn is_duplicate(&self, outcome: &Outcome) -> bool {
        let refused_as_duplicate =
            matches!(outcome.error_kind(), Some(ErrorKind::IdempotencyInProgress | ErrorKind::IdempotencyKeyReused));
        self.head.caller_minted_id && self.head.idempotency_key.is_none() && refused_as_duplicate && self.attempts == 0
    }

    /// The tool that ran, if one did.
    pub(super) fn executed_tool(&self) -> Option<ToolName> {
        (self.attempts > 0).then(|| ToolName::new(self.head.tool.clone()).ok()).flatten()
    }

    /// The agent run the call belongs to.
    pub(super) fn run(&self) -> Option<RunId> {
        self.head.run
    }

    pub(super) fn tenant(&self) -> &Tenant {
        &self.head.tenant
    }

    pub(super) fn services(&self) -> &'a Services {
        self.services
    }

    /// The outcome of a call whose tool ran.
    pub(super) fn outcome(
        &self,
        effect: Effect,
        output: Value,
        content: Vec<Content>,
        error: Option<CallError>,
    ) -> Outcome {
        let now = self.services.clock.instant();
        let started = self.started.unwrap_or(now);
        let duration = now.saturating_duration_since(started);
        let status = match &error {
            None => Status::Success,
            Some(error) if error.kind == ErrorKind::Cancelled => Status::Cancelled,
            Some(_) => Status::Error,
        };
        Outcome {
            output,
            content,
            attempts: self.attempts,
            approval: self.approval,
            queued: started.saturating_duration_since(self.head.arrived_instant),
            duration,
            timing: self.timing.clone(),
            ended_at: self.head.arrived_at + now.saturating_duration_since(self.head.arrived_instant),
            ..unstarted_outcome(&self.head, status, effect, error)
        }
    }

    /// The outcome of an earlier call, replayed for this one.
    pub(super) fn replayed_outcome(&self, outcome: Outcome) -> Outcome {
        // The replay belongs to this call's trace, not to the original one.
        let trace_id = self.head.trace_id().or(outcome.trace_id);
        Outcome { replayed: true, model_call: self.head.model_call.clone(), trace_id, ..outcome }
    }

    /// The outcome of a call that did not reach the close stage. If the tool had started and is not read-only, the
    /// effect is unknown.
    pub(super) fn refused_outcome(&self, error: CallError) -> Outcome {
        let harmless = self.started.is_none() || self.read_only;
        let effect = if harmless { Effect::None } else { Effect::Unknown };
        self.outcome(effect, Value::Null, Vec::new(), Some(error))
    }

    /// The outcome was reported, or another node reports it; the drop emits nothing.
    pub(super) fn complete(mut self) {
        self.is_unreported = false;
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if self.is_unreported {
            let error = if self.in_place {
                CallError::new(ErrorKind::Cancelled).operator("the caller dropped the call before it ended")
            } else {
                // The runtime drops a task only when it shuts down.
                runtime_stopped_error()
            };
            self.count_end(error.kind);
            let outcome = self.refused_outcome(error);
            super::report::emit_outcome(self, &outcome);
            if let Some((records, context)) = self.unrecorded.take().filter(|(records, _)| records.accepts(&outcome)) {
                records.add_now(EndedCall::new(context, &outcome));
            }
        }
        // `mark_running` and `mark_resumed` set the registry and count the call in its thread.
        if let (Some(_), Some(thread)) = (self.registry, &self.head.thread) {
            self.services.thread_activity.end_call(&self.head.tenant, thread);
        }
    }
}

/// The outcome for a caller whose call's task was dropped with the runtime. Recovery closes the record.
pub(super) fn lost_outcome(head: &CallHead) -> Outcome {
    unstarted_outcome(head, Status::Error, Effect::Unknown, Some(runtime_stopped_error()))
}

/// The outcome of a call that ended on arrival.
fn unstarted_outcome(head: &CallHead, status: Status, effect: Effect, error: Option<CallError>) -> Outcome {
    Outcome {
        id: head.id,
        tool: head.tool.clone(),
        thread: head.thread.clone(),
        model_call: head.model_call.clone(),
        status,
        effect,
        output: Value::Null,
        content: Vec::new(),
        error,
        attempts: 0,
        replayed: false,
        cached: false,
        durability: WriteDurability::Durable,
        approval: None,
        trace_id: head.trace_id(),
        queued: Duration::ZERO,
        duration: Duration::ZERO,
        timing: None,
        started_at: head.arrived_at,
        ended_at: head.arrived_at,
    }
}

fn runtime_stopped_error() -> CallError {
    CallError::new(ErrorKind::Interrupted).operator("the runtime stopped while the call was running")
}

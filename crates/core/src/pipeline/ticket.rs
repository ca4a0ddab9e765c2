//! The promise of one outcome.
//!
//! In: who the call is. Out: its one `Outcome`. A ticket that is dropped without one belonged to a caller that went
//! away in the middle of a plain call; it says so, or listeners would wait for ever.

use std::sync::Arc;

use serde_json::Value;

use crate::{
    call::{Call, CallHead},
    execution::Tool,
    registry::Registry,
    services::Services,
};
use toolhub_storage::clock::Instant;
use toolhub_types::{
    content::Content,
    effect::Effect,
    error::{CallError, ErrorKind},
    ids::{ApprovalId, CallId, RunId, Tenant},
    outcome::{Acknowledged, Outcome, Status},
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
    /// Whether the end of the call is among the numbers of its tool.
    counted: bool,
    approval: Option<ApprovalId>,
    /// Where the tool is found, to count a call that nobody waited for.
    registry: Option<&'a Registry>,
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
            registry: None,
        }
    }

    /// Where the call runs, and what its tool may do to the world.
    pub(super) fn mark_running(&mut self, in_place: bool, tool: &Tool, registry: &'a Registry) {
        self.set_location(in_place, tool, registry);
        if let Some(thread) = &self.head.thread {
            self.services.thread_activity.begin_call(&self.head.tenant, thread, self.head.arrived_at);
        }
    }

    /// A call that began in another process goes on here. Its thread has counted it.
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

    /// The closing counts the call: from here on its end is known, whoever waits for it.
    pub(super) fn mark_counted(&mut self) {
        self.counted = true;
    }

    /// Counts an end that no door has counted.
    pub(super) fn count_end(&self, error: ErrorKind) {
        if self.counted {
            return;
        }
        let Some((tool, _)) = self.registry.and_then(|registry| registry.find(&self.head.tool)) else { return };
        match self.started {
            None => tool.runtime.meter.record_refusal(error),
            Some(begun) => {
                let took = self.services.clock.instant().saturating_duration_since(begun);
                tool.runtime.meter.record_end(took, Some(error));
            }
        }
    }

    /// The call, as listeners know it.
    pub(super) fn id(&self) -> CallId {
        self.head.id
    }

    /// The approval the call is made on.
    pub(super) fn set_approval(&mut self, approval: ApprovalId) {
        self.approval = Some(approval);
    }

    /// The tool starts.
    pub(super) fn mark_started(&mut self, now: Instant) {
        self.started = Some(now);
    }

    /// The tool is tried once more.
    pub(super) fn count_attempt(&mut self) {
        self.attempts += 1;
    }

    /// How often the tool was tried.
    pub(super) fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Whether this is no end of the call its id names: that one was made before, and has an end of its own.
    pub(super) fn is_duplicate(&self, outcome: &Outcome) -> bool {
        let made_before =
            matches!(outcome.error_kind(), Some(ErrorKind::IdempotencyInProgress | ErrorKind::IdempotencyKeyReused));
        self.head.caller_minted_id && self.head.idempotency_key.is_none() && made_before && self.attempts == 0
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

    /// The end of a call whose tool ran.
    pub(super) fn outcome(
        &self,
        effect: Effect,
        output: Value,
        content: Vec<Content>,
        error: Option<CallError>,
    ) -> Outcome {
        let now = self.services.clock.instant();
        let begun = self.started.unwrap_or(now);
        let duration = now.saturating_duration_since(begun);
        let status = match &error {
            None => Status::Success,
            Some(error) if error.kind == ErrorKind::Cancelled => Status::Cancelled,
            Some(_) => Status::Error,
        };
        Outcome {
            id: self.head.id,
            tool: self.head.tool.clone(),
            thread: self.head.thread.clone(),
            model_call: self.head.model_call.clone(),
            status,
            effect,
            output,
            content,
            error,
            attempts: self.attempts,
            replayed: false,
            cached: false,
            durability: Acknowledged::Durable,
            approval: self.approval,
            trace_id: self.head.trace_id(),
            queued: begun.saturating_duration_since(self.head.arrived_instant),
            duration,
            started_at: self.head.arrived_at,
            ended_at: self.head.arrived_at + now.saturating_duration_since(self.head.arrived_instant),
        }
    }

    /// The answer of an earlier call, given again to this one.
    pub(super) fn replayed_outcome(&self, outcome: Outcome) -> Outcome {
        // It is told in this trace, whatever trace it was made in.
        let trace_id = self.head.trace_id().or(outcome.trace_id);
        Outcome { replayed: true, model_call: self.head.model_call.clone(), trace_id, ..outcome }
    }

    /// The end of a call that did not reach its closing. If the tool had begun, nobody knows what it did.
    pub(super) fn refused_outcome(&self, error: CallError) -> Outcome {
        let harmless = self.started.is_none() || self.read_only;
        let effect = if harmless { Effect::None } else { Effect::Unknown };
        self.outcome(effect, Value::Null, Vec::new(), Some(error))
    }

    /// What a caller is told when the task of its call vanished with the runtime. The journal tells the rest.
    pub(super) fn lost_outcome(mut self) -> Outcome {
        self.is_unreported = false;
        self.outcome(Effect::Unknown, Value::Null, Vec::new(), Some(runtime_stopped_error()))
    }

    /// The outcome is out; the promise is kept.
    pub(super) fn complete(mut self) {
        self.is_unreported = false;
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if self.is_unreported {
            let error = if self.in_place {
                CallError::new(ErrorKind::Cancelled).operator("the caller went away before the call ended")
            } else {
                // A task is dropped only with its runtime.
                runtime_stopped_error()
            };
            self.count_end(error.kind);
            super::report::emit_outcome(self, &self.refused_outcome(error));
        }
        // Only a call that runs was counted among those of its thread.
        if let (Some(_), Some(thread)) = (self.registry, &self.head.thread) {
            self.services.thread_activity.end_call(&self.head.tenant, thread);
        }
    }
}

fn runtime_stopped_error() -> CallError {
    CallError::new(ErrorKind::Interrupted).operator("the runtime stopped while the call was running")
}

//! Stage 15: emits the events for the end of a call, exactly once per call, and logs a failure of its tool.
//!
//! In: the ticket and the outcome. Out: events for subscribers, a log line. `status.rs` reports to the tool's status.

use super::ticket::Ticket;
use crate::services::Services;
use toolhub_types::{
    event_kind::{EventClass, EventKind},
    ids::{CallId, RunId, Tenant, ThreadId},
    millis::fractional,
    outcome::{Outcome, Status},
    tool::ToolName,
};

/// Emits the outcome, and completes the ticket.
pub(super) fn report(ticket: Ticket<'_>, outcome: &Outcome) {
    emit_outcome(&ticket, outcome);
    ticket.complete();
}

pub(super) fn emit_outcome(ticket: &Ticket<'_>, outcome: &Outcome) {
    log_failure(outcome);
    if let Some(error) = outcome.error.as_ref().filter(|_| is_refusal(outcome)) {
        ticket.services().refusals.add(ticket.head(), error, outcome.ended_at);
    }
    if ticket.services().events.has_subscribers(EventClass::Calls) && !ticket.is_duplicate(outcome) {
        emit_end(ticket.services(), ticket.tenant(), (ticket.id(), ticket.run(), ticket.executed_tool()), outcome);
    }
}

/// Whether the call did not reach its tool for another reason than its caller's wish.
fn is_refusal(outcome: &Outcome) -> bool {
    outcome.status == Status::Error && outcome.attempts == 0 && !outcome.replayed
}

/// Logs a call whose tool ran and failed. Refused calls are answers to their callers, and cancelled ones their wish.
pub(super) fn log_failure(outcome: &Outcome) {
    let Some(error) = outcome.error.as_ref().filter(|_| outcome.status == Status::Error) else { return };
    if outcome.attempts == 0 || outcome.replayed {
        return;
    }
    tracing::warn!(
        tool = outcome.tool.as_str(),
        error = error.kind.name(),
        ms = fractional::from_duration(outcome.duration),
        call = %outcome.id,
        thread = outcome.thread.as_ref().map(ThreadId::as_str),
        attempts = outcome.attempts,
        detail = error.operator,
        "call failed"
    );
}

/// Emits the end of a call, and the result of its tool if the tool ran.
pub(super) fn emit_end(
    services: &Services,
    tenant: &Tenant,
    (call_id, run_id, executed): (CallId, Option<RunId>, Option<ToolName>),
    outcome: &Outcome,
) {
    let tool_name = outcome.tool.clone();
    let Outcome { effect, duration, replayed, .. } = *outcome;
    let (call_event, tool_event) = match &outcome.error {
        None => {
            let call_event = EventKind::ExecutionCompleted { call_id, run_id, tool_name, effect, duration, replayed };
            (call_event, executed.map(|tool_name| EventKind::ToolExecuted { tool_name }))
        }
        Some(error) => {
            let (status, kind, message) = (outcome.status, error.kind, error.operator.clone());
            let (counts, error, text) = (error.counts, kind, message.clone());
            let call_event =
                EventKind::ExecutionFailed { call_id, run_id, tool_name, status, effect, error, message: text };
            (call_event, executed.map(|tool_name| EventKind::ToolFailed { tool_name, error: kind, counts, message }))
        }
    };
    for event in [Some(call_event), tool_event].into_iter().flatten() {
        services.events.emit_for_tenant(outcome.ended_at, tenant, outcome.thread.as_ref(), event);
    }
}

//! Door 15: tells the tool's status and everybody who listens how the call ended. Exactly once per call.

use super::ticket::Ticket;
use crate::services::Services;
use toolhub_types::{
    error::{CallError, Detail},
    event_kind::EventKind,
    ids::{CallId, RunId, Tenant},
    outcome::Outcome,
    problem::Problem,
    tool::ToolName,
};

/// Tells of the outcome, and settles the ticket.
pub(super) fn report(ticket: Ticket<'_>, outcome: &Outcome) {
    emit_outcome(&ticket, outcome);
    ticket.complete();
}

pub(super) fn emit_outcome(ticket: &Ticket<'_>, outcome: &Outcome) {
    if ticket.services().events.has_subscribers() && !ticket.is_duplicate(outcome) {
        emit_end(ticket.services(), ticket.tenant(), (ticket.id(), ticket.run(), ticket.executed_tool()), outcome);
    }
}

/// The line for operators. What is wrong with arguments quotes them, and listeners need not know what is secret.
fn operator_text(services: &Services, error: &CallError) -> String {
    let Detail::Problems(problems) = &error.detail else { return error.operator.clone() };
    let secret = |problem: &Problem| problem.pointer.split('/').any(|name| services.redactor.is_secret(name));
    if !problems.iter().any(secret) {
        return error.operator.clone();
    }
    let fields: Vec<&str> = problems.iter().map(|problem| problem.field.as_str()).collect();
    format!("{}: {}", error.kind.row().operator, fields.join(", "))
}

/// Tells of the end of a call, and of the tool that ran, if one did.
pub(super) fn emit_end(
    services: &Services,
    tenant: &Tenant,
    (call_id, run_id, ran): (CallId, Option<RunId>, Option<ToolName>),
    outcome: &Outcome,
) {
    let tool_name = outcome.tool.clone();
    let Outcome { effect, duration, replayed, .. } = *outcome;
    let (life, reported) = match &outcome.error {
        None => {
            let life = EventKind::ExecutionCompleted { call_id, run_id, tool_name, effect, duration, replayed };
            (life, ran.map(|tool_name| EventKind::ToolExecuted { tool_name }))
        }
        Some(error) => {
            let (status, kind, message) = (outcome.status, error.kind, operator_text(services, error));
            let (counts, error, text) = (error.counts, kind, message.clone());
            let life = EventKind::ExecutionFailed { call_id, run_id, tool_name, status, effect, error, message: text };
            (life, ran.map(|tool_name| EventKind::ToolFailed { tool_name, error: kind, counts, message }))
        }
    };
    for news in [Some(life), reported].into_iter().flatten() {
        services.events.emit_for_tenant(outcome.ended_at, tenant, outcome.thread.as_ref(), news);
    }
}

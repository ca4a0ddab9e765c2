//! Door 15: tells the tool's status and everybody who listens how the call ended. Exactly once per call.

use super::ticket::Ticket;
use crate::{
    call::Outcome,
    events::News,
    ids::{CallId, Tenant},
    services::Services,
    tool::ToolName,
};

/// Tells of the outcome, and settles the ticket.
pub(super) fn report(ticket: Ticket<'_>, outcome: &Outcome) {
    tell(&ticket, outcome);
    ticket.settle();
}

pub(super) fn tell(ticket: &Ticket<'_>, outcome: &Outcome) {
    if ticket.services().events.heard() {
        tell_of(ticket.services(), ticket.tenant(), (ticket.id(), ticket.ran()), outcome);
    }
}

/// Tells of the end of a call, and of the tool that ran, if one did.
pub(super) fn tell_of(
    services: &Services,
    tenant: &Tenant,
    (call_id, ran): (CallId, Option<ToolName>),
    outcome: &Outcome,
) {
    let tool_name = outcome.tool.clone();
    let Outcome { effect, duration, replayed, .. } = *outcome;
    let (life, reported) = match &outcome.error {
        None => {
            let life = News::ExecutionCompleted { call_id, tool_name, effect, duration, replayed };
            (life, ran.map(|tool_name| News::ToolExecuted { tool_name }))
        }
        Some(error) => {
            let (status, kind, message) = (outcome.status, error.kind, error.operator.clone());
            let life =
                News::ExecutionFailed { call_id, tool_name, status, effect, error: kind, message: message.clone() };
            let counts = error.counts;
            (life, ran.map(|tool_name| News::ToolFailed { tool_name, error: kind, counts, message }))
        }
    };
    for news in [Some(life), reported].into_iter().flatten() {
        services.events.tell_tenant(outcome.ended_at, tenant, outcome.thread.as_ref(), news);
    }
}

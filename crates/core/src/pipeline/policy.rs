//! Stage 7: applies the rules and obtains approvals.
//!
//! In: valid arguments and the rules of the tool. Out: the call, with the stored approval if one was required; or a
//! refusal. The gate of the tool evaluates the rules; `policy/approval.rs` obtains the approval.

mod approval;
mod choice;
mod refusal;

use std::sync::Arc;

use super::{Allowed, Placed, Valid};
use crate::{engine::Engine, execution::CallEnvelope};
use toolhub_types::{
    digest,
    error::{CallError, ErrorKind},
    policy::{Denial, PolicyDecision},
};

use approval::{ask_for_approval, withdraw_approval};
pub(super) use refusal::{approval_consumed, approval_expired};

pub(super) async fn decide(engine: &Engine, valid: Valid) -> Result<Allowed, CallError> {
    let Valid(envelope) = valid;
    if let Some(run) = envelope.call.run.filter(|_| !envelope.is_resumed()) {
        let arguments = digest::canonical_json(&envelope.call.arguments.to_value());
        let now = engine.services.clock.instant();
        let (guard, name) = (&engine.scheduler.runaway_guard, &envelope.tool.definition.name);
        guard.count_call(run, name, &arguments, now).map_err(|found| {
            CallError::new(ErrorKind::Forbidden).operator(found.to_string()).model(found.model_text(name))
        })?;
    }
    let verdict = verdict(&envelope);
    if envelope.pending_approval().is_some() && !matches!(verdict, PolicyDecision::Ask(_)) {
        Box::pin(withdraw_approval(engine, &envelope)).await;
    }
    match verdict {
        PolicyDecision::Allow => Ok(Allowed(envelope)),
        PolicyDecision::Deny(denial) => Err(forbidden(&envelope, &denial)),
        // A call that was started before the crash has consumed its approval already.
        PolicyDecision::Ask(_) if envelope.open_record().is_some_and(|open| !open.is_waiting()) => {
            Ok(Allowed(envelope))
        }
        PolicyDecision::Ask(requirement) => Box::pin(ask_for_approval(engine, envelope, requirement)).await,
    }
}

/// The refusal of a call that a rule denies.
pub(super) fn denial(envelope: &CallEnvelope) -> Option<CallError> {
    match verdict(envelope) {
        PolicyDecision::Deny(denial) => Some(forbidden(envelope, &denial)),
        PolicyDecision::Allow | PolicyDecision::Ask(_) => None,
    }
}

fn verdict(envelope: &CallEnvelope) -> PolicyDecision {
    envelope.tool.gate.decide(&envelope.tool.definition, &envelope.call.arguments.to_value(), &envelope.call.caller)
}

/// Checks a call that has waited again, and refuses it if a rule added meanwhile denies it. Its approval is not
/// consumed.
pub(super) fn recheck_rules(engine: &Engine, placed: Placed) -> Result<Placed, CallError> {
    let envelope = &placed.envelope;
    // A removed tool has no rules any more; its calls continue with the ones they started with.
    let Some((tool, _)) = engine.registry.find(&envelope.tool.definition.name) else { return Ok(placed) };
    if Arc::ptr_eq(&tool, &envelope.tool) {
        return Ok(placed);
    }
    match tool.gate.decide(&tool.definition, &envelope.call.arguments.to_value(), &envelope.call.caller) {
        PolicyDecision::Deny(denial) => Err(forbidden(envelope, &denial)),
        PolicyDecision::Allow | PolicyDecision::Ask(_) => Ok(placed),
    }
}

fn forbidden(envelope: &CallEnvelope, denial: &Denial) -> CallError {
    let (name, reason) = (&envelope.tool.definition.name, &denial.reason);
    let error =
        CallError::new(ErrorKind::Forbidden).operator(format!("a rule forbids this call of `{name}`: {reason}"));
    match &denial.model_reason {
        None => error,
        Some(reason) => {
            let reason = reason.trim_end_matches('.');
            error.model(format!("This call is not allowed: {reason}. Do not try it again."))
        }
    }
}

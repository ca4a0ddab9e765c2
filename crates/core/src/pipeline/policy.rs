//! Stage 7: applies the rules and obtains approvals.
//!
//! In: valid arguments and the rules of the tool. Out: the call, with the stored approval if one was required; or a
//! refusal. `policy/gate.rs` evaluates the rules; `approvals` stores requests and answers.

mod choice;

use std::{pin::pin, sync::Arc, time::Duration};

use futures_util::future::{Either, select};

use super::{Allowed, Found, Placed, Valid, open, validate};
use crate::{
    approvals::{self, Approval, Approvals, StoredApproval},
    engine::Engine,
    execution::CallEnvelope,
};
use toolhub_types::{
    approval::ApprovalState,
    digest,
    error::{CallError, Detail, ErrorKind},
    ids::ApprovalId,
    outcome::Status,
    policy::{ApprovalRequirement, PolicyDecision},
    timestamp::Timestamp,
};

use choice::{Choice, EarlierApproval, EarlierState, Join};

/// How many identical calls may await approval.
const MAX_IDENTICAL_PENDING: usize = 32;
/// The retry delay if too many calls await approval; people take their time.
const RETRY_AFTER: Duration = Duration::from_secs(60);

pub(super) async fn decide(engine: &Engine, valid: Valid) -> Result<Allowed, CallError> {
    let Valid(envelope) = valid;
    if let Some(run) = envelope.call.run.filter(|_| !envelope.is_rerun()) {
        let arguments = digest::canonical_json(&envelope.call.arguments);
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
        PolicyDecision::Deny(reason) => Err(forbidden(&envelope, &reason)),
        // A call that was started before the crash has consumed its approval already.
        PolicyDecision::Ask(_) if envelope.open_record().is_some_and(|open| !open.is_waiting()) => {
            Ok(Allowed(envelope))
        }
        PolicyDecision::Ask(requirement) => Box::pin(ask_for_approval(engine, envelope, requirement)).await,
    }
}

fn verdict(envelope: &CallEnvelope) -> PolicyDecision {
    envelope.tool.gate.decide(&envelope.tool.definition, &envelope.call.arguments, &envelope.call.caller)
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
    match tool.gate.decide(&tool.definition, &envelope.call.arguments, &envelope.call.caller) {
        PolicyDecision::Deny(reason) => Err(forbidden(envelope, &reason)),
        PolicyDecision::Allow | PolicyDecision::Ask(_) => Ok(placed),
    }
}

/// Uses a standing grant or an earlier answer, or requests a new approval.
async fn ask_for_approval(
    engine: &Engine,
    mut envelope: CallEnvelope,
    requirement: ApprovalRequirement,
) -> Result<Allowed, CallError> {
    let approvals = &engine.approvals;
    let (tenant, thread) = (envelope.call.tenant.clone(), envelope.call.thread.clone());
    if approvals.is_granted(envelope.tool.version(), &tenant, thread.as_ref(), &requirement.rule).await? {
        withdraw_approval(engine, &envelope).await;
        return Ok(Allowed(envelope));
    }
    let partition = approvals::partition(&tenant, thread.as_ref(), &envelope.tool.definition.name);
    let binding = approvals::binding(&envelope.call, envelope.tool.version());
    let found = approvals.find_by_binding(&partition, &binding).await?;
    let now = engine.services.clock.now();
    let identical = found.len();
    let mut found: Vec<Option<StoredApproval>> = found.into_iter().map(Some).collect();
    let earlier: Vec<EarlierApproval> =
        found.iter().flatten().map(|stored| earlier_approval(engine, &envelope, &stored.approval, now)).collect();
    let mut joined = None;
    match choice::choose(&earlier, envelope.call.wait.waits_for_approval()) {
        Choice::Use(index) => {
            if let Some(stored) = found[index].take() {
                return allow_with_approval(envelope, stored);
            }
        }
        Choice::Deny(index) => {
            if let Some(stored) = &found[index] {
                return Err(denied_error(approvals, &envelope, stored).await);
            }
        }
        Choice::JoinOrAsk(joins) => {
            joined = joins.into_iter().find_map(|join| match join {
                Join::Same(index) => Some((found[index].take()?, None)),
                Join::Adopt(index) => {
                    let waiter = approvals.try_register_waiter(found[index].as_ref()?.approval.id)?;
                    Some((found[index].take()?, Some(waiter)))
                }
            });
        }
    }
    if let (None, Some(pending_id)) = (&joined, envelope.pending_approval()) {
        check_resolved(engine, &envelope, pending_id, &binding).await?;
    }
    // A bound against a model that repeats the same call in a loop.
    if joined.is_none() && identical >= MAX_IDENTICAL_PENDING {
        let text = format!("{identical} identical calls of `{}` already await approval", envelope.tool.definition.name);
        return Err(CallError::new(ErrorKind::Overloaded).operator(text));
    }
    // A call that resumes after a restart was admitted before.
    let new = joined.is_none() && envelope.pending_approval().is_none();
    if new && envelope.call.wait.waits_for_approval() && approvals.waiter_count() >= engine.scheduler.max_queued() {
        let mut error =
            CallError::new(ErrorKind::Overloaded).operator("the maximum number of calls awaiting approval is reached");
        error.retry_after = Some(RETRY_AFTER);
        return Err(error);
    }
    let outlives = envelope.call.wait.outlives_approval();
    loop {
        let (request, _waiter) = match joined.take() {
            Some(earlier) => {
                if outlives && envelope.pending_approval() != Some(earlier.0.approval.id) {
                    envelope = open::preopen_for_approval(engine, envelope, earlier.0.approval.id).await?;
                }
                earlier
            }
            None => {
                let approval = new_approval(engine, &envelope, &requirement, &binding);
                // Registered before the request is stored, so that an identical call cannot adopt it.
                let waiter =
                    approvals.try_register_waiter(approval.id).filter(|_| envelope.call.wait.waits_for_approval());
                // Preopened before the request is stored, so that an answer always finds the call.
                if outlives {
                    envelope = open::preopen_for_approval(engine, envelope, approval.id).await?;
                }
                (approvals.ask(partition.clone(), approval).await?, waiter)
            }
        };
        if !envelope.call.wait.waits_for_approval() {
            return Err(approval_required(&envelope, request.approval.id));
        }
        let answered = wait_for_answer(engine, &envelope, request).await?;
        // A call that shared this request has withdrawn it. This call makes a request of its own then.
        if answered.approval.state != ApprovalState::Withdrawn {
            return apply_answer(approvals, envelope, answered).await;
        }
    }
}

/// Summarizes an earlier approval request for the choice.
fn earlier_approval(engine: &Engine, envelope: &CallEnvelope, approval: &Approval, now: Timestamp) -> EarlierApproval {
    let call = &envelope.call;
    let same_key = approval.key == call.idempotency_key;
    let state = if approval.is_usable(now) {
        EarlierState::Usable
    } else if approval.is_undelivered_denial(now) {
        EarlierState::Denied
    } else if approval.state_at(now) == ApprovalState::Pending {
        EarlierState::Pending
    } else {
        EarlierState::Closed
    };
    EarlierApproval {
        state,
        is_same_call: approval.call_id == call.id || (same_key && call.idempotency_key.is_some()),
        same_key,
        is_claimed: engine.live_calls.contains(approval.call_id),
        is_foreign: envelope.pending_approval().is_some_and(|pending_id| pending_id != approval.id),
    }
}

fn new_approval(
    engine: &Engine,
    envelope: &CallEnvelope,
    requirement: &ApprovalRequirement,
    binding: &str,
) -> Approval {
    let (call, now) = (&envelope.call, engine.services.clock.now());
    Approval {
        id: ApprovalId::mint(now),
        call_id: call.id,
        tool: envelope.tool.definition.name.clone(),
        caller: call.caller.clone(),
        thread: call.thread.clone(),
        run: call.run,
        key: call.idempotency_key.clone(),
        arguments: call.arguments.clone(),
        rule: requirement.rule.clone(),
        reason: requirement.reason.clone(),
        asked_at: now,
        expires_at: now + requirement.timeout,
        state: ApprovalState::Pending,
        answer: None,
        used_by: None,
        binding: binding.to_owned(),
        digest: digest::hash_json(&call.arguments),
    }
}

/// Waits for the answer or the caller's cancellation. The call holds no slot meanwhile.
async fn wait_for_answer(
    engine: &Engine,
    envelope: &CallEnvelope,
    request: StoredApproval,
) -> Result<StoredApproval, CallError> {
    let approvals = &engine.approvals;
    let pending = request.clone();
    envelope.set_waiting(Status::AwaitingApproval, Some(pending.approval.id));
    if let Some(step_call) = envelope.step_call() {
        step_call.mark_awaiting_approval(envelope.call.id, pending.approval.id);
    }
    let answered = async {
        match &envelope.call.cancel {
            None => Some(approvals.wait_answered(request).await),
            Some(cancel) => cancel.run_until_cancelled(approvals.wait_answered(request)).await,
        }
    };
    // A call that resumes after a restart must not delay the shutdown.
    let left_for_recovery = async {
        engine.shutdown.requested().await;
        if !envelope.tracker.as_ref().is_some_and(|tracker| tracker.leave_for_recovery()) {
            std::future::pending::<()>().await;
        }
    };
    let answered = match select(pin!(answered), pin!(left_for_recovery)).await {
        Either::Left((answered, _)) => answered,
        Either::Right(_) => return Err(interrupted_by_shutdown(&pending.approval)),
    };
    match answered {
        Some(answered) => {
            envelope.set_status(Status::Validating);
            Ok(answered?)
        }
        // Cancelled by the shutdown: the request stays, so that the caller can repeat the call after the restart.
        None if envelope.tracker.as_ref().is_some_and(|tracker| tracker.is_cancelled_by_shutdown()) => {
            Err(interrupted_by_shutdown(&pending.approval))
        }
        None => {
            // If this write fails, the request times out.
            let _ = approvals.close(pending, ApprovalState::Withdrawn).await;
            Err(CallError::new(ErrorKind::Cancelled))
        }
    }
}

/// The hub was shut down while the call awaited approval; the tool has not run.
fn interrupted_by_shutdown(approval: &Approval) -> CallError {
    CallError::new(ErrorKind::Interrupted)
        .operator(format!("the hub was shut down while the call waited for approval {}", approval.id))
        .model("The call was interrupted before it began.")
        .detail(Detail::Approval(approval.id))
}

/// Checks the approval request of a resumed call that is no longer pending; `Ok` if the call needs a new request.
async fn check_resolved(
    engine: &Engine,
    envelope: &CallEnvelope,
    pending_id: ApprovalId,
    binding: &str,
) -> Result<(), CallError> {
    let approvals = &engine.approvals;
    let Some(found) = approvals.find(&envelope.call.tenant, pending_id).await? else { return Ok(()) };
    // The tool has changed since the request, so an answer to it does not count.
    if found.approval.binding != binding {
        withdraw_approval(engine, envelope).await;
        return Ok(());
    }
    match found.approval.state_at(engine.services.clock.now()) {
        ApprovalState::Pending => Ok(()),
        ApprovalState::TimedOut => {
            let closed = approvals.close(found, ApprovalState::TimedOut).await?;
            Err(approval_expired(&closed.approval, "was not answered in time"))
        }
        ApprovalState::Approved => Err(approval_expired(&found.approval, "was not used in time")),
        ApprovalState::Denied => Err(denied_error(approvals, envelope, &found).await),
        ApprovalState::Withdrawn => Err(CallError::new(ErrorKind::Cancelled)),
        ApprovalState::Used => Err(approval_consumed(envelope, &found.approval)),
    }
}

/// Withdraws the approval request of a resumed call that no longer needs one. If this write fails, the request times
/// out.
async fn withdraw_approval(engine: &Engine, envelope: &CallEnvelope) {
    let Some(pending_id) = envelope.pending_approval() else { return };
    let found = engine.approvals.find(&envelope.call.tenant, pending_id).await.ok().flatten();
    if let Some(found) = found.filter(|found| found.approval.state == ApprovalState::Pending) {
        let _ = engine.approvals.close(found, ApprovalState::Withdrawn).await;
    }
}

/// Continues or refuses the call according to the answer.
async fn apply_answer(
    approvals: &Approvals,
    envelope: CallEnvelope,
    answered: StoredApproval,
) -> Result<Allowed, CallError> {
    match answered.approval.state {
        ApprovalState::Approved => {
            if wait_for_step_turn(&envelope).await.is_none() {
                // The approval stays usable, in case the caller repeats the call.
                return Err(CallError::new(ErrorKind::Cancelled));
            }
            allow_with_approval(envelope, answered)
        }
        ApprovalState::Denied => Err(denied_error(approvals, &envelope, &answered).await),
        ApprovalState::TimedOut | ApprovalState::Pending => {
            Err(approval_expired(&answered.approval, "was not answered in time"))
        }
        ApprovalState::Withdrawn => Err(CallError::new(ErrorKind::Cancelled)),
        ApprovalState::Used => Err(approval_consumed(&envelope, &answered.approval)),
    }
}

/// Waits until the step's plan lets the call continue; `None` if the caller cancels before that.
async fn wait_for_step_turn(envelope: &CallEnvelope) -> Option<()> {
    match (envelope.step_call(), &envelope.call.cancel) {
        (None, _) => Some(()),
        (Some(step_call), None) => {
            step_call.resume_after_approval().await;
            Some(())
        }
        (Some(step_call), Some(cancel)) => cancel.run_until_cancelled(step_call.resume_after_approval()).await,
    }
}

/// Allows an approved call. Arguments that the approver edited pass the same stages as the ones they replace.
fn allow_with_approval(mut envelope: CallEnvelope, stored: StoredApproval) -> Result<Allowed, CallError> {
    if let Some(mut arguments) = stored.approval.answer.as_ref().and_then(|answer| answer.arguments.clone()) {
        let mut redacted = arguments.clone();
        let redactor = &envelope.tool.services.redactor;
        redactor.redact(&mut redacted);
        // That all redacted values can be restored was checked when the answer was accepted.
        redactor.restore(&mut arguments, &envelope.call.arguments);
        envelope.extras_mut().notes.push(format!("A person changed the arguments of this call to {redacted}."));
        envelope.call.arguments = arguments;
        let Valid(edited) = validate::check_schema(Found(envelope)).map_err(|refused| refused.0)?;
        envelope = edited;
        if let PolicyDecision::Deny(reason) = verdict(&envelope) {
            return Err(forbidden(&envelope, &reason));
        }
    }
    envelope.extras_mut().approval = Some(stored);
    Ok(Allowed(envelope))
}

async fn denied_error(approvals: &Approvals, envelope: &CallEnvelope, stored: &StoredApproval) -> CallError {
    // A denial is delivered once; the next identical call makes a new request. If this write fails, that call gets the
    // denial again.
    let _ = approvals.mark_denial_delivered(stored, envelope.call.id).await;
    let error = CallError::new(ErrorKind::ApprovalDenied).detail(Detail::Approval(stored.approval.id));
    let answer = stored.approval.answer.as_ref();
    match answer.and_then(|answer| answer.message.as_ref()) {
        None => error,
        Some(message) => error
            .operator(format!("a person refused this call: {message}"))
            .model(format!("A person refused this call: {message}")),
    }
}

fn approval_required(envelope: &CallEnvelope, id: ApprovalId) -> CallError {
    CallError::new(ErrorKind::ApprovalRequired)
        .operator(format!(
            "`{}` needs approval {id}; repeat the call once it is approved",
            envelope.tool.definition.name
        ))
        .model(format!(
            "A person must approve this call first (approval {id}). Make the same call again once it is approved."
        ))
        .detail(Detail::Approval(id))
}

/// The time limit to answer the request, or to use the approval, has passed.
pub(super) fn approval_expired(approval: &Approval, what: &str) -> CallError {
    let error = CallError::new(ErrorKind::ApprovalTimeout).operator(format!("approval {} {what}", approval.id));
    error.detail(Detail::Approval(approval.id))
}

/// An identical call has consumed the approval first. If it has the same idempotency key, it is the same call, and its
/// outcome will be replayed.
pub(super) fn approval_consumed(envelope: &CallEnvelope, approval: &Approval) -> CallError {
    if envelope.call.idempotency_key.is_some() && envelope.call.idempotency_key == approval.key {
        return CallError::new(ErrorKind::IdempotencyInProgress);
    }
    approval_required(envelope, approval.id)
        .operator("the approval was used by an identical call; repeat the call to request a new one")
}

fn forbidden(envelope: &CallEnvelope, reason: &str) -> CallError {
    let name = &envelope.tool.definition.name;
    CallError::new(ErrorKind::Forbidden).operator(format!("a rule forbids this call of `{name}`: {reason}"))
}

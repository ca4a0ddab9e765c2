//! Obtains the approval that a rule asks for.
//!
//! In: a call and the requirement of the rule. Out: the call with its approval, or a refusal. `choice.rs` decides which earlier
//! request the call uses or joins; `approvals` stores requests and answers.

use std::pin::pin;

use futures_util::future::{Either, select};

use super::{
    choice::{self, AskingCall, Bound, Choice, EarlierApproval, EarlierState},
    forbidden,
    refusal::{self, approval_consumed, approval_expired, approval_required, denied_error, interrupted_by_shutdown},
    verdict,
};
use crate::{
    approvals::{self, Approval, Approvals, StoredApproval},
    call::ApprovalReuse,
    engine::Engine,
    execution::CallEnvelope,
    pipeline::{Allowed, Found, Valid, open, validate},
};
use toolhub_types::{
    approval::ApprovalState,
    digest,
    error::{CallError, ErrorKind},
    ids::ApprovalId,
    json::CompactJson,
    outcome::Status,
    policy::{ApprovalRequirement, PolicyDecision},
    timestamp::Timestamp,
};

/// Uses a standing grant or an earlier answer, joins a pending request, or makes a new one and waits for its answer.
pub(super) async fn ask_for_approval(
    engine: &Engine,
    mut envelope: CallEnvelope,
    requirement: ApprovalRequirement,
) -> Result<Allowed, CallError> {
    let approvals = &engine.approvals;
    let (tenant, thread) = (envelope.call.tenant.clone(), envelope.call.thread.clone());
    if let Some(denial) = own_denial(engine, &envelope).await? {
        return Err(denied_error(approvals, &envelope, &denial).await);
    }
    if approvals.is_granted(envelope.tool.version(), &tenant, thread.as_ref(), &requirement.rule).await? {
        withdraw_approval(engine, &envelope).await;
        return Ok(Allowed(envelope));
    }
    if envelope.call.refuses_approval {
        return Err(refusal::approval_refused(&envelope));
    }
    let partition = approvals::partition(&tenant, thread.as_ref(), &envelope.tool.definition.name);
    let binding = approvals::binding(&envelope.call, envelope.tool.version());
    let found = approvals.find_by_binding(&partition, &binding).await?;
    let waits = envelope.call.waits_for_approval(engine.services.clock.instant());
    let outlives = envelope.call.wait.outlives_approval();
    let mut excess = None;
    let mut joined = loop {
        let now = engine.services.clock.now();
        let earlier: Vec<_> = found.iter().map(|stored| earlier_approval(engine, &envelope, stored, now)).collect();
        let asking = AskingCall {
            waits,
            max_identical: approvals::max_identical(&envelope.call.arguments),
            resumes: envelope.pending_approval().is_some(),
            approvals_full: approvals.is_full(&tenant, |total, of_tenant| engine.scheduler.is_full(total, of_tenant)),
        };
        match choice::choose(&earlier, asking) {
            Choice::Use(stored) => return allow_with_approval(envelope, stored.clone()),
            Choice::Deny(stored) => return Err(denied_error(approvals, &envelope, stored).await),
            Choice::Join(stored) => break Some((stored.clone(), None)),
            Choice::Adopt(stored) => {
                // If another call has registered first, choose again.
                if let Some(waiter) = approvals.try_register_waiter(stored.approval.id) {
                    break Some((stored.clone(), Some(waiter)));
                }
            }
            Choice::Ask => break None,
            Choice::Replace(stored) => {
                approvals.close(stored.clone(), ApprovalState::Withdrawn).await?;
                break None;
            }
            Choice::Refuse(bound) => {
                excess = Some(bound);
                break None;
            }
        }
    };
    if let (None, Some(pending_id)) = (&joined, envelope.pending_approval()) {
        check_resolved(engine, &envelope, pending_id, &binding).await?;
    }
    if let Some(bound) = excess {
        return Err(refusal::too_many_waiting(&envelope, bound, found.len()));
    }
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
                let waiter = approvals.try_register_waiter(approval.id).filter(|_| waits);
                // Preopened before the request is stored, so that an answer always finds the call.
                if outlives {
                    envelope = open::preopen_for_approval(engine, envelope, approval.id).await?;
                }
                let Some(request) = approvals.ask(partition.clone(), approval).await? else {
                    let identical = approvals::max_identical(&envelope.call.arguments);
                    return Err(refusal::too_many_waiting(&envelope, Bound::IdenticalCalls, identical));
                };
                (request, waiter)
            }
        };
        if !waits {
            return Err(approval_required(&envelope, request.approval.id, requirement.model_reason.as_deref()));
        }
        let answered = Box::pin(wait_for_answer(engine, &envelope, request, &requirement)).await?;
        // A call that shared this request has withdrawn it. This call makes a request of its own then.
        if answered.approval.state != ApprovalState::Withdrawn {
            return apply_answer(approvals, envelope, answered).await;
        }
    }
}

/// The denial of the approval that the call names.
async fn own_denial(engine: &Engine, envelope: &CallEnvelope) -> Result<Option<StoredApproval>, CallError> {
    let ApprovalReuse::Only(id) = envelope.call.approval_reuse else { return Ok(None) };
    let found = engine.approvals.find(&envelope.call.tenant, id).await?;
    let now = engine.services.clock.now();
    let binding = approvals::binding(&envelope.call, envelope.tool.version());
    Ok(found.filter(|found| found.approval.is_undelivered_denial(now) && found.approval.binding == binding))
}

/// Summarizes an earlier approval request for the choice.
fn earlier_approval<'a>(
    engine: &Engine,
    envelope: &CallEnvelope,
    stored: &'a StoredApproval,
    now: Timestamp,
) -> EarlierApproval<&'a StoredApproval> {
    let (call, approval) = (&envelope.call, &stored.approval);
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
    let is_same_call = approval.call_id == call.id || (same_key && call.idempotency_key.is_some());
    let is_reserved =
        call.approval_reuse != ApprovalReuse::Only(approval.id) && engine.approvals.is_reserved(approval.id);
    let is_pending = state == EarlierState::Pending;
    let is_excluded = !is_same_call && call.approval_reuse.excludes(approval.id, is_pending, approval.is_exclusive);
    EarlierApproval {
        request: stored,
        state,
        is_same_call,
        same_key,
        is_claimed: is_reserved || engine.live_calls.contains(approval.call_id),
        has_waiter: engine.approvals.has_waiter(approval.id),
        is_exclusive: approval.is_exclusive,
        is_foreign: is_excluded || envelope.pending_approval().is_some_and(|pending_id| pending_id != approval.id),
    }
}

fn new_approval(
    engine: &Engine,
    envelope: &CallEnvelope,
    requirement: &ApprovalRequirement,
    binding: &str,
) -> Approval<CompactJson> {
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
        digest: digest::hash_json(&call.arguments.to_value()),
        is_exclusive: call.approval_reuse.is_exclusive(),
    }
}

/// Waits for the answer or the caller's cancellation. The call holds no slot meanwhile.
async fn wait_for_answer(
    engine: &Engine,
    envelope: &CallEnvelope,
    request: StoredApproval,
    requirement: &ApprovalRequirement,
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
    // The request stays pending: the caller may repeat the call after the answer.
    let answered = async {
        match envelope.call.approval_until {
            None => Ok(answered.await),
            Some(until) => tokio::time::timeout_at(until, answered).await,
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
        Either::Right(_) => return Err(interrupted_by_shutdown(pending.approval.id)),
    };
    let Ok(answered) = answered else {
        return Err(approval_required(envelope, pending.approval.id, requirement.model_reason.as_deref()));
    };
    match answered {
        Some(answered) => {
            envelope.set_status(Status::Validating);
            Ok(answered?)
        }
        // Cancelled by the shutdown: the request stays, so that the caller can repeat the call after the restart.
        None if envelope.tracker.as_ref().is_some_and(|tracker| tracker.is_cancelled_by_shutdown()) => {
            Err(interrupted_by_shutdown(pending.approval.id))
        }
        None => {
            // If this write fails, the request times out.
            let _ = approvals.close(pending, ApprovalState::Withdrawn).await;
            Err(CallError::new(ErrorKind::Cancelled))
        }
    }
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
pub(super) async fn withdraw_approval(engine: &Engine, envelope: &CallEnvelope) {
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
        redactor.restore(&mut arguments, &envelope.call.arguments.to_value());
        envelope.extras_mut().notes.push(format!("A person changed the arguments of this call to {redacted}."));
        envelope.call.arguments = arguments.into();
        let Valid(edited) = validate::check_schema(Found(envelope)).map_err(|refused| refused.0)?;
        envelope = edited;
        if let PolicyDecision::Deny(denial) = verdict(&envelope) {
            return Err(forbidden(&envelope, &denial));
        }
    }
    envelope.extras_mut().approval = Some(stored);
    Ok(Allowed(envelope))
}

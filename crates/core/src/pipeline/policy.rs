//! Door 7: deny, ask, allow.
//!
//! In: valid arguments and the rules that concern the tool. Out: the call, with a permit where a person had to be asked;
//! or a refusal. What the rules say is decided by `policy/gate.rs`, what people said is kept by `approvals`.

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
    policy::{ApprovalRequirement, Verdict},
    timestamp::Timestamp,
};

use choice::{Choice, EarlierApproval, EarlierState, Join};

/// How many identical calls may wait for a person.
const MAX_IDENTICAL_PENDING: usize = 32;
/// When to come back if too many others wait for people, who take their time.
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
    if envelope.pending_approval().is_some() && !matches!(verdict, Verdict::Ask(_)) {
        Box::pin(withdraw_approval(engine, &envelope)).await;
    }
    match verdict {
        Verdict::Allow => Ok(Allowed(envelope)),
        Verdict::Deny(reason) => Err(forbidden(&envelope, &reason)),
        // A person was asked before it was started.
        Verdict::Ask(_) if envelope.open_record().is_some_and(|left| !left.is_waiting()) => Ok(Allowed(envelope)),
        Verdict::Ask(asks) => Box::pin(ask_for_approval(engine, envelope, asks)).await,
    }
}

fn verdict(envelope: &CallEnvelope) -> Verdict {
    envelope.tool.gate.decide(&envelope.tool.definition, &envelope.call.arguments, &envelope.call.caller)
}

/// Denies a call that has waited and not begun, if a rule forbids it that was not there when it was allowed. A yes that it has
/// is not used up.
pub(super) fn recheck_rules(engine: &Engine, placed: Placed) -> Result<Placed, CallError> {
    let envelope = &placed.envelope;
    // A tool that is gone has no rules; its calls go on with what they began with.
    let Some((tool, _)) = engine.registry.find(&envelope.tool.definition.name) else { return Ok(placed) };
    if Arc::ptr_eq(&tool, &envelope.tool) {
        return Ok(placed);
    }
    match tool.gate.decide(&tool.definition, &envelope.call.arguments, &envelope.call.caller) {
        Verdict::Deny(reason) => Err(forbidden(envelope, &reason)),
        Verdict::Allow | Verdict::Ask(_) => Ok(placed),
    }
}

/// A standing yes, an answer that was given before, or a new question.
async fn ask_for_approval(
    engine: &Engine,
    mut envelope: CallEnvelope,
    asks: ApprovalRequirement,
) -> Result<Allowed, CallError> {
    let approvals = &engine.approvals;
    let (tenant, thread) = (envelope.call.tenant.clone(), envelope.call.thread.clone());
    if approvals.is_granted(envelope.tool.version(), &tenant, thread.as_ref(), &asks.rule).await? {
        withdraw_approval(engine, &envelope).await;
        return Ok(Allowed(envelope));
    }
    let partition = approvals::partition(&tenant, thread.as_ref(), &envelope.tool.definition.name);
    let binding = approvals::binding(&envelope.call, envelope.tool.version());
    let found = approvals.find_by_binding(&partition, &binding).await?;
    let now = engine.services.clock.now();
    let alike = found.len();
    let mut found: Vec<Option<StoredApproval>> = found.into_iter().map(Some).collect();
    let earlier: Vec<EarlierApproval> =
        found.iter().flatten().map(|permit| earlier_approval(engine, &envelope, &permit.approval, now)).collect();
    let mut joined = None;
    match choice::choose(&earlier, envelope.call.wait.waits_for_approval()) {
        Choice::Use(at) => {
            if let Some(permit) = found[at].take() {
                return allow_with_approval(envelope, permit);
            }
        }
        Choice::Deny(at) => {
            if let Some(permit) = &found[at] {
                return Err(denied_error(approvals, &envelope, permit).await);
            }
        }
        Choice::JoinOrAsk(joins) => {
            joined = joins.into_iter().find_map(|join| match join {
                Join::Same(at) => Some((found[at].take()?, None)),
                Join::Adopt(at) => {
                    let place = approvals.try_register_waiter(found[at].as_ref()?.approval.id)?;
                    Some((found[at].take()?, Some(place)))
                }
            });
        }
    }
    if let (None, Some(own)) = (&joined, envelope.pending_approval()) {
        check_resolved(engine, &envelope, own, &binding).await?;
    }
    // Nobody reads the same question so often; a model that asks it so often has lost its way.
    if joined.is_none() && alike >= MAX_IDENTICAL_PENDING {
        let text = format!("{alike} identical calls of `{}` wait for a person already", envelope.tool.definition.name);
        return Err(CallError::new(ErrorKind::Overloaded).operator(text));
    }
    // One that goes on after a restart was let in before.
    let new = joined.is_none() && envelope.pending_approval().is_none();
    if new && envelope.call.wait.waits_for_approval() && approvals.waiter_count() >= engine.scheduler.max_queued() {
        let mut error = CallError::new(ErrorKind::Overloaded).operator("as many calls wait for a person as may");
        error.retry_after = Some(RETRY_AFTER);
        return Err(error);
    }
    let outlives = envelope.call.wait.outlives_approval();
    loop {
        let (asked, _place) = match joined.take() {
            Some(earlier) => {
                if outlives && envelope.pending_approval() != Some(earlier.0.approval.id) {
                    envelope = open::preopen_for_approval(engine, envelope, earlier.0.approval.id).await?;
                }
                earlier
            }
            None => {
                let question = new_approval(engine, &envelope, &asks, &binding);
                // Before anybody can see the question: it is not for an identical call to take.
                let place =
                    approvals.try_register_waiter(question.id).filter(|_| envelope.call.wait.waits_for_approval());
                // Before the question too: whoever answers it finds the call.
                if outlives {
                    envelope = open::preopen_for_approval(engine, envelope, question.id).await?;
                }
                (approvals.ask(partition.clone(), question).await?, place)
            }
        };
        if !envelope.call.wait.waits_for_approval() {
            return Err(approval_required(&envelope, asked.approval.id));
        }
        let answered = wait_for_answer(engine, &envelope, asked).await?;
        // Another call waited for the same answer and took its question back. This one has a question of its own then.
        if answered.approval.state != ApprovalState::Withdrawn {
            return apply_answer(approvals, envelope, answered).await;
        }
    }
}

/// What matters of an earlier question for this call.
fn earlier_approval(engine: &Engine, envelope: &CallEnvelope, approval: &Approval, now: Timestamp) -> EarlierApproval {
    let call = &envelope.call;
    let same_key = approval.key == call.idempotency_key;
    let standing = if approval.is_usable(now) {
        EarlierState::Usable
    } else if approval.is_undelivered_denial(now) {
        EarlierState::Denied
    } else if approval.state_at(now) == ApprovalState::Pending {
        EarlierState::Pending
    } else {
        EarlierState::Closed
    };
    EarlierApproval {
        state: standing,
        is_same_call: approval.call_id == call.id || (same_key && call.idempotency_key.is_some()),
        same_key,
        is_claimed: engine.live_calls.contains(approval.call_id),
        is_foreign: envelope.pending_approval().is_some_and(|own| own != approval.id),
    }
}

fn new_approval(engine: &Engine, envelope: &CallEnvelope, asks: &ApprovalRequirement, binding: &str) -> Approval {
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
        rule: asks.rule.clone(),
        reason: asks.reason.clone(),
        asked_at: now,
        expires_at: now + asks.timeout,
        state: ApprovalState::Pending,
        answer: None,
        used_by: None,
        binding: binding.to_owned(),
        digest: digest::hash_json(&call.arguments),
    }
}

/// Waits for the answer, or for the caller to give up. No slot is held meanwhile.
async fn wait_for_answer(
    engine: &Engine,
    envelope: &CallEnvelope,
    asked: StoredApproval,
) -> Result<StoredApproval, CallError> {
    let approvals = &engine.approvals;
    let question = asked.clone();
    envelope.set_waiting(Status::AwaitingApproval, Some(question.approval.id));
    if let Some(member) = envelope.step_call() {
        member.mark_awaiting_approval(envelope.call.id, question.approval.id);
    }
    let answered = async {
        match &envelope.call.cancel {
            None => Some(approvals.wait_answered(asked).await),
            Some(cancel) => cancel.run_until_cancelled(approvals.wait_answered(asked)).await,
        }
    };
    // A call that goes on after a restart need not hold the hub up that goes down.
    let left = async {
        engine.shutdown.requested().await;
        if !envelope.tracker.as_ref().is_some_and(|tracker| tracker.leave_for_recovery()) {
            std::future::pending::<()>().await;
        }
    };
    let answered = match select(pin!(answered), pin!(left)).await {
        Either::Left((answered, _)) => answered,
        Either::Right(_) => return Err(interrupted_by_shutdown(&question.approval)),
    };
    match answered {
        Some(answered) => {
            envelope.set_status(Status::Validating);
            Ok(answered?)
        }
        // Cut off with the hub: the question stays, for the same call made again.
        None if envelope.tracker.as_ref().is_some_and(|tracker| tracker.is_cancelled_by_shutdown()) => {
            Err(interrupted_by_shutdown(&question.approval))
        }
        None => {
            // If this does not reach the store, the question times out by itself.
            let _ = approvals.close(question, ApprovalState::Withdrawn).await;
            Err(CallError::new(ErrorKind::Cancelled))
        }
    }
}

/// The hub went down while the call waited. Nothing has happened.
fn interrupted_by_shutdown(approval: &Approval) -> CallError {
    CallError::new(ErrorKind::Interrupted)
        .operator(format!("the hub was shut down while the call waited for approval {}", approval.id))
        .model("The call was interrupted before it began.")
        .detail(Detail::Approval(approval.id))
}

/// What became of the question of a call that goes on, where it is not open any more; `Ok` where it must be asked anew.
async fn check_resolved(
    engine: &Engine,
    envelope: &CallEnvelope,
    own: ApprovalId,
    binding: &str,
) -> Result<(), CallError> {
    let approvals = &engine.approvals;
    let Some(found) = approvals.find(&envelope.call.tenant, own).await? else { return Ok(()) };
    // The tool is another one than the question was about: no answer to it counts.
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

/// Takes back the question of a call that goes on and need not be asked any more. If this does not reach the store, the
/// question times out by itself.
async fn withdraw_approval(engine: &Engine, envelope: &CallEnvelope) {
    let Some(own) = envelope.pending_approval() else { return };
    let found = engine.approvals.find(&envelope.call.tenant, own).await.ok().flatten();
    if let Some(found) = found.filter(|found| found.approval.state == ApprovalState::Pending) {
        let _ = engine.approvals.close(found, ApprovalState::Withdrawn).await;
    }
}

/// Does what the person said.
async fn apply_answer(
    approvals: &Approvals,
    envelope: CallEnvelope,
    answered: StoredApproval,
) -> Result<Allowed, CallError> {
    match answered.approval.state {
        ApprovalState::Approved => {
            if wait_for_step_turn(&envelope).await.is_none() {
                // The yes stays, for the same call made again.
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

/// Waits until it is the call's turn among the calls of its step; `None` when the caller gives up before that.
async fn wait_for_step_turn(envelope: &CallEnvelope) -> Option<()> {
    match (envelope.step_call(), &envelope.call.cancel) {
        (None, _) => Some(()),
        (Some(member), None) => {
            member.resume_after_approval().await;
            Some(())
        }
        (Some(member), Some(cancel)) => cancel.run_until_cancelled(member.resume_after_approval()).await,
    }
}

/// A person said yes, perhaps with other arguments. Those pass the same doors as the ones they replace.
fn allow_with_approval(mut envelope: CallEnvelope, permit: StoredApproval) -> Result<Allowed, CallError> {
    if let Some(mut arguments) = permit.approval.answer.as_ref().and_then(|answer| answer.arguments.clone()) {
        let mut told = arguments.clone();
        let redactor = &envelope.tool.services.redactor;
        redactor.redact(&mut told);
        // Whether all of it can be put back was looked at when the answer was taken.
        redactor.restore(&mut arguments, &envelope.call.arguments);
        envelope.extras_mut().notes.push(format!("A person changed the arguments of this call to {told}."));
        envelope.call.arguments = arguments;
        let Valid(edited) = validate::check_schema(Found(envelope)).map_err(|refused| refused.0)?;
        envelope = edited;
        if let Verdict::Deny(reason) = verdict(&envelope) {
            return Err(forbidden(&envelope, &reason));
        }
    }
    envelope.extras_mut().approval = Some(permit);
    Ok(Allowed(envelope))
}

async fn denied_error(approvals: &Approvals, envelope: &CallEnvelope, permit: &StoredApproval) -> CallError {
    // Heard once: the next identical call asks anew. If this is not written, it is told no once more.
    let _ = approvals.mark_denial_delivered(permit, envelope.call.id).await;
    let error = CallError::new(ErrorKind::ApprovalDenied).detail(Detail::Approval(permit.approval.id));
    let answer = permit.approval.answer.as_ref();
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
            "`{}` needs approval {id}; make the same call again once it is given",
            envelope.tool.definition.name
        ))
        .model(format!(
            "A person must approve this call first (approval {id}). Make the same call again once it is approved."
        ))
        .detail(Detail::Approval(id))
}

/// The time to answer is over, or the time to use the answer.
pub(super) fn approval_expired(approval: &Approval, what: &str) -> CallError {
    let error = CallError::new(ErrorKind::ApprovalTimeout).operator(format!("approval {} {what}", approval.id));
    error.detail(Detail::Approval(approval.id))
}

/// An identical call was faster and has used the answer up. With the same key it is this very call, and will answer it.
pub(super) fn approval_consumed(envelope: &CallEnvelope, approval: &Approval) -> CallError {
    if envelope.call.idempotency_key.is_some() && envelope.call.idempotency_key == approval.key {
        return CallError::new(ErrorKind::IdempotencyInProgress);
    }
    approval_required(envelope, approval.id)
        .operator("the approval was used by an identical call; make the call again to ask anew")
}

fn forbidden(envelope: &CallEnvelope, reason: &str) -> CallError {
    let name = &envelope.tool.definition.name;
    CallError::new(ErrorKind::Forbidden).operator(format!("a rule forbids this call of `{name}`: {reason}"))
}

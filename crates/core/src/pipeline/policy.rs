//! Door 7: deny, ask, allow.
//!
//! In: valid arguments and the rules that concern the tool. Out: the call, with a permit where a person had to be asked;
//! or a refusal. What the rules say is decided by `policy/gate.rs`, what people said is kept by `approvals`.

use std::sync::Arc;

use super::{Allowed, Found, Valid, Way, validate};
use crate::{
    approvals::{self, Approval, ApprovalState, Approvals, Permit},
    digest,
    engine::Engine,
    error::{CallError, Detail, ErrorKind},
    ids::ApprovalId,
    policy::{Asks, Verdict},
};

/// How many identical calls may wait for a person.
const MOST_ALIKE: usize = 32;

pub(super) async fn decide(engine: &Engine, valid: Valid) -> Result<Allowed, CallError> {
    let Valid(way) = valid;
    if let Some(run) = way.call.run.filter(|_| !way.runs_again()) {
        let arguments = digest::canonical(&way.call.arguments);
        let now = engine.services.clock.instant();
        let (guard, name) = (&engine.scheduler.guard, &way.tool.definition.name);
        guard.call(run, name, &arguments, now).map_err(|found| {
            CallError::new(ErrorKind::Forbidden).operator(found.to_string()).model(found.model_text(name))
        })?;
    }
    match verdict(&way) {
        Verdict::Allow => Ok(Allowed(way)),
        Verdict::Deny(reason) => Err(forbidden(&way, &reason)),
        // A person was asked before it was opened.
        Verdict::Ask(_) if way.runs_again() => Ok(Allowed(way)),
        Verdict::Ask(asks) => Box::pin(ask(engine, way, asks)).await,
    }
}

fn verdict(way: &Way) -> Verdict {
    way.tool.gate.decide(&way.tool.definition, &way.call.arguments, &way.call.caller)
}

/// A standing yes, an answer that was given before, or a new question.
async fn ask(engine: &Engine, way: Way, asks: Asks) -> Result<Allowed, CallError> {
    let approvals = &engine.approvals;
    let (tenant, thread) = (&way.call.tenant, way.call.thread.as_ref());
    if approvals.granted(&way.tool, tenant, thread, &asks.rule).await? {
        return Ok(Allowed(way));
    }
    let partition = approvals::partition(tenant, thread, &way.tool.definition.name);
    let binding = approvals::binding(&way.call, &way.tool);
    let found = approvals.about(&partition, &binding).await?;
    let now = engine.services.clock.now();
    let (mut joined, open) = (None, found.len());
    for earlier in found {
        if earlier.approval.is_usable(now) {
            return allowed(way, earlier);
        }
        if earlier.approval.is_unheard_no(now) {
            return Err(refused(approvals, &way, &earlier).await);
        }
        if earlier.approval.state_at(now) != ApprovalState::Pending {
            continue;
        }
        // A caller that repeats itself means the question that is still open, not another one. Without a key it does
        // so where nobody waits for the answer: whoever asked could not wait, or is gone with its process.
        let same_key = earlier.approval.key == way.call.key;
        if !way.call.can_wait || (same_key && way.call.key.is_some()) {
            joined = Some((earlier, None));
        } else if let Some(place) = approvals.adopt(earlier.approval.id).filter(|_| same_key) {
            joined = Some((earlier, Some(place)));
        }
    }
    // Nobody reads the same question so often; a model that asks it so often has lost its way.
    if joined.is_none() && open >= MOST_ALIKE {
        let text = format!("{open} identical calls of `{}` wait for a person already", way.tool.definition.name);
        return Err(CallError::new(ErrorKind::Overloaded).operator(text));
    }
    loop {
        let (asked, _place) = match joined.take() {
            Some(earlier) => earlier,
            None => {
                let question = question(engine, &way, &asks, &binding);
                // Before anybody can see the question: it is not for an identical call to take.
                let place = approvals.adopt(question.id).filter(|_| way.call.can_wait);
                (approvals.ask(partition.clone(), question).await?, place)
            }
        };
        if !way.call.can_wait {
            return Err(required(&way, asked.approval.id));
        }
        let answered = wait(approvals, &way, asked).await?;
        // Another call waited for the same answer and took its question back. This one has a question of its own then.
        if answered.approval.state != ApprovalState::Withdrawn {
            return heed(approvals, way, answered).await;
        }
    }
}

fn question(engine: &Engine, way: &Way, asks: &Asks, binding: &str) -> Approval {
    let (call, now) = (&way.call, engine.services.clock.now());
    Approval {
        id: ApprovalId::mint(now),
        call_id: call.id,
        tool: way.tool.definition.name.clone(),
        caller: call.caller.clone(),
        thread: call.thread.clone(),
        run: call.run,
        key: call.key.clone(),
        arguments: call.arguments.clone(),
        rule: asks.rule.clone(),
        reason: asks.reason.clone(),
        asked_at: now,
        expires_at: now + asks.within,
        state: ApprovalState::Pending,
        answer: None,
        used_by: None,
        binding: binding.to_owned(),
    }
}

/// Waits for the answer, or for the caller to give up. No slot is held meanwhile.
async fn wait(approvals: &Arc<Approvals>, way: &Way, asked: Permit) -> Result<Permit, CallError> {
    if let Some(member) = &way.call.member {
        member.asks();
    }
    let question = asked.clone();
    let answered = match &way.call.cancel {
        None => Some(approvals.answered(asked).await),
        Some(cancel) => cancel.run_until_cancelled(approvals.answered(asked)).await,
    };
    let Some(answered) = answered else {
        // If this does not reach the store, the question times out by itself.
        let _ = approvals.close(question, ApprovalState::Withdrawn).await;
        return Err(CallError::new(ErrorKind::Cancelled));
    };
    Ok(answered?)
}

/// Does what the person said.
async fn heed(approvals: &Approvals, way: Way, answered: Permit) -> Result<Allowed, CallError> {
    match answered.approval.state {
        ApprovalState::Approved => {
            if held(&way).await.is_none() {
                // The yes stays, for the same call made again.
                return Err(CallError::new(ErrorKind::Cancelled));
            }
            allowed(way, answered)
        }
        ApprovalState::Denied => Err(refused(approvals, &way, &answered).await),
        ApprovalState::TimedOut | ApprovalState::Pending => {
            Err(too_late(&answered.approval, "was not answered in time"))
        }
        ApprovalState::Withdrawn => Err(CallError::new(ErrorKind::Cancelled)),
        ApprovalState::Used => Err(used_up(&way, &answered.approval)),
    }
}

/// Waits until it is the call's turn among the calls of its step; `None` when the caller gives up before that.
async fn held(way: &Way) -> Option<()> {
    match (&way.call.member, &way.call.cancel) {
        (None, _) => Some(()),
        (Some(member), None) => {
            member.goes_on().await;
            Some(())
        }
        (Some(member), Some(cancel)) => cancel.run_until_cancelled(member.goes_on()).await,
    }
}

/// A person said yes, perhaps with other arguments. Those pass the same doors as the ones they replace.
fn allowed(mut way: Way, permit: Permit) -> Result<Allowed, CallError> {
    if let Some(arguments) = permit.approval.answer.as_ref().and_then(|answer| answer.arguments.clone()) {
        way.along().notes.push(format!("A person changed the arguments of this call to {arguments}."));
        way.call.arguments = arguments;
        let Valid(edited) = validate::check_again(Found(way)).map_err(|refused| refused.0)?;
        way = edited;
        if let Verdict::Deny(reason) = verdict(&way) {
            return Err(forbidden(&way, &reason));
        }
    }
    way.along().permit = Some(permit);
    Ok(Allowed(way))
}

async fn refused(approvals: &Approvals, way: &Way, permit: &Permit) -> CallError {
    // Heard once: the next identical call asks anew. If this is not written, it is told no once more.
    let _ = approvals.heard(permit, way.call.id).await;
    let error = CallError::new(ErrorKind::ApprovalDenied).detail(Detail::Approval(permit.approval.id));
    let answer = permit.approval.answer.as_ref();
    match answer.and_then(|answer| answer.message.as_ref()) {
        None => error,
        Some(message) => error
            .operator(format!("a person refused this call: {message}"))
            .model(format!("A person refused this call: {message}")),
    }
}

fn required(way: &Way, id: ApprovalId) -> CallError {
    CallError::new(ErrorKind::ApprovalRequired)
        .operator(format!(
            "`{}` needs approval {id}; make the same call again once it is given",
            way.tool.definition.name
        ))
        .model(format!(
            "A person must approve this call first (approval {id}). Make the same call again once it is approved."
        ))
        .detail(Detail::Approval(id))
}

/// The time to answer is over, or the time to use the answer.
pub(super) fn too_late(approval: &Approval, what: &str) -> CallError {
    let error = CallError::new(ErrorKind::ApprovalTimeout).operator(format!("approval {} {what}", approval.id));
    error.detail(Detail::Approval(approval.id))
}

/// An identical call was faster and has used the answer up. With the same key it is this very call, and will answer it.
pub(super) fn used_up(way: &Way, approval: &Approval) -> CallError {
    if way.call.key.is_some() && way.call.key == approval.key {
        return CallError::new(ErrorKind::IdempotencyInProgress);
    }
    required(way, approval.id).operator("the approval was used by an identical call; make the call again to ask anew")
}

fn forbidden(way: &Way, reason: &str) -> CallError {
    let name = &way.tool.definition.name;
    CallError::new(ErrorKind::Forbidden).operator(format!("a rule forbids this call of `{name}`: {reason}"))
}

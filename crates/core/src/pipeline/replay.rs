//! Stage 2: idempotency. Replays the outcome of an earlier call with the same key; refuses a repeated caller-minted id.
//!
//! In: a found call. Out: the recorded outcome, a refusal, or a miss. `open.rs` claims the key.

use super::Found;
use crate::{execution::CallEnvelope, journal::Journal, services::Services};
use toolhub_types::{
    digest,
    effect::Effect,
    error::{CallError, Detail, ErrorKind},
    ids::{ApprovalId, CallId},
    outcome::{Outcome, Status},
};

/// The result of the lookup by idempotency key or call id.
pub(super) enum ReplayLookup {
    /// The outcome of the earlier call.
    Hit(Box<Outcome>),
    Miss(Found),
}

pub(super) async fn lookup(journal: &Journal, services: &Services, found: Found) -> Result<ReplayLookup, CallError> {
    let call = &found.0.call;
    if (call.idempotency_key.is_none() && !call.caller_minted_id) || found.0.is_resumed() {
        return Ok(ReplayLookup::Miss(found));
    }
    // Boxed, like every branch that plain calls do not take: otherwise their future would have its size.
    Box::pin(search(journal, services, found)).await
}

async fn search(journal: &Journal, services: &Services, found: Found) -> Result<ReplayLookup, CallError> {
    let Found(mut envelope) = found;
    if envelope.call.caller_minted_id {
        let (call, now) = (&envelope.call, services.clock.now());
        if let Some(record) = journal.find_record(&call.tenant, call.thread.as_ref(), call.id, now).await? {
            return Err(duplicate_call_error(call.id, record.outcome.is_some()));
        }
    }
    if envelope.call.idempotency_key.is_none() {
        return Ok(ReplayLookup::Miss(Found(envelope)));
    }
    let digest = digest::hash_json(&envelope.call.arguments.to_value());
    envelope.extras_mut().digest = Some(digest.clone());
    let CallEnvelope { call, tool, .. } = &envelope;
    let Some(key) = &call.idempotency_key else { return Ok(ReplayLookup::Miss(Found(envelope))) };
    let now = services.clock.now();
    let Some((claim, claim_version)) = journal.find_claim(&call.tenant, &tool.definition.name, key, now).await? else {
        return Ok(ReplayLookup::Miss(Found(envelope)));
    };
    if !claim.is_same_request(&digest, call.named_thread()) {
        return Err(CallError::new(ErrorKind::IdempotencyKeyReused));
    }
    let record = journal.find_record(&call.tenant, claim.thread.as_ref(), claim.call, now).await?;
    let waits_for = record.as_ref().filter(|record| record.status == Status::AwaitingApproval);
    let waits_for = waits_for.and_then(|record| record.approval);
    let outcome = match record.map(|record| record.outcome) {
        Some(None) => return Err(in_progress_error(claim.call, waits_for)),
        Some(ended) => ended,
        // A call is opened before it claims its key, so a missing record has expired from the journal.
        None => None,
    };
    Ok(match outcome.filter(|outcome| !interrupted_without_effect(outcome) && !refused_before_start(outcome)) {
        Some(outcome) => ReplayLookup::Hit(Box::new(outcome)),
        None => {
            envelope.extras_mut().stale_claim = Some(claim_version);
            ReplayLookup::Miss(Found(envelope))
        }
    })
}

/// The refusal of a call whose key is held by a call that has not ended, and may wait for an approval.
fn in_progress_error(running: CallId, waits_for: Option<ApprovalId>) -> CallError {
    let error = CallError::new(ErrorKind::IdempotencyInProgress);
    let error = match waits_for {
        None => error,
        Some(approval) => {
            error.operator(format!("the call with this idempotency key waits for approval {approval}")).model(format!(
                "The same call waits for the approval of a person (approval {approval}). It has not run yet."
            ))
        }
    };
    error.detail(Detail::Running { call: running, approval: waits_for })
}

/// The refusal of a call whose id was used before.
pub(super) fn duplicate_call_error(call: CallId, ended: bool) -> CallError {
    if ended {
        return CallError::new(ErrorKind::IdempotencyKeyReused)
            .operator(format!("call id {call} was used before and that call has ended; see its record"))
            .model("This call was made before and has ended. It was not made again.");
    }
    CallError::new(ErrorKind::IdempotencyInProgress)
        .operator(format!("call id {call} was used before and that call has not ended; wait for it"))
}

/// Whether a call died with its process and had no effect. No caller got its outcome, so a repetition runs.
fn interrupted_without_effect(outcome: &Outcome) -> bool {
    outcome.error_kind() == Some(ErrorKind::Interrupted) && outcome.effect == Effect::None
}

/// Whether a preopened call was refused before its tool started, for a temporary reason. Such a refusal of other calls
/// leaves no record, and a caller that retries after it expects the call to run. An approver's denial is final and is
/// replayed.
fn refused_before_start(outcome: &Outcome) -> bool {
    let temporary = matches!(
        outcome.error_kind(),
        Some(
            ErrorKind::RateLimited
                | ErrorKind::Overloaded
                | ErrorKind::ToolFailedStatus
                | ErrorKind::ToolMaintenance
                | ErrorKind::ToolUnavailable
                | ErrorKind::StoreUnavailable
                | ErrorKind::ShuttingDown
        )
    );
    temporary && outcome.attempts == 0 && outcome.effect == Effect::None
}

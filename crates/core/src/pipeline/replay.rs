//! Door 2: a call with an idempotency key that was made before gets the answer it got then. One whose caller minted its id, and
//! has made it before, is refused.

use super::Found;
use crate::{execution::CallEnvelope, journal::Journal, services::Services};
use toolhub_types::{
    digest,
    effect::Effect,
    error::{CallError, ErrorKind},
    ids::CallId,
    outcome::Outcome,
};

/// Whether a call was made before.
pub(super) enum ReplayLookup {
    /// It was, and this is how it ended.
    Hit(Box<Outcome>),
    /// It was not.
    Miss(Found),
}

pub(super) async fn lookup(journal: &Journal, services: &Services, found: Found) -> Result<ReplayLookup, CallError> {
    let call = &found.0.call;
    if (call.idempotency_key.is_none() && !call.caller_minted_id) || found.0.is_rerun() {
        return Ok(ReplayLookup::Miss(found));
    }
    // In a box, like every part of the way that plain calls do not take: they would carry its size.
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
    let digest = digest::hash_json(&envelope.call.arguments);
    envelope.extras_mut().digest = Some(digest.clone());
    let CallEnvelope { call, tool, .. } = &envelope;
    let Some(key) = &call.idempotency_key else { return Ok(ReplayLookup::Miss(Found(envelope))) };
    let now = services.clock.now();
    let Some((claim, seen)) = journal.find_claim(&call.tenant, &tool.definition.name, key, now).await? else {
        return Ok(ReplayLookup::Miss(Found(envelope)));
    };
    if claim.digest != digest {
        return Err(CallError::new(ErrorKind::IdempotencyKeyReused));
    }
    let record = journal.find_record(&call.tenant, claim.thread.as_ref(), claim.call, now).await?;
    let outcome = match record.map(|record| record.outcome) {
        Some(None) => return Err(CallError::new(ErrorKind::IdempotencyInProgress)),
        Some(ended) => ended,
        // A call is opened before it claims its key, so one that is not there was forgotten by the journal.
        None => None,
    };
    Ok(match outcome.filter(|outcome| !interrupted_without_effect(outcome) && !refused_before_start(outcome)) {
        Some(outcome) => ReplayLookup::Hit(Box::new(outcome)),
        None => {
            envelope.extras_mut().stale_claim = Some(seen);
            ReplayLookup::Miss(Found(envelope))
        }
    })
}

/// Why a call is not made whose caller has made one with the same id.
pub(super) fn duplicate_call_error(call: CallId, ended: bool) -> CallError {
    if ended {
        return CallError::new(ErrorKind::IdempotencyKeyReused)
            .operator(format!("{call} was made before and has ended; its record says how"))
            .model("This call was made before and has ended. It was not made again.");
    }
    CallError::new(ErrorKind::IdempotencyInProgress)
        .operator(format!("{call} was made before and has not ended; wait for its end"))
}

/// Whether a call died with its process and has changed nothing. Nobody was given its answer, and making it once more is
/// what its caller wants.
fn interrupted_without_effect(outcome: &Outcome) -> bool {
    outcome.error_kind() == Some(ErrorKind::Interrupted) && outcome.effect == Effect::None
}

/// Whether a call was written down ahead of its turn and then not let in. Calls that are not written down leave no trace of
/// that, and whoever was told to come again means to be let in. What a person said about it is an answer, and stays.
fn refused_before_start(outcome: &Outcome) -> bool {
    let not_now = matches!(
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
    not_now && outcome.attempts == 0 && outcome.effect == Effect::None
}

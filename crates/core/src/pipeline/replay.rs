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
pub(super) enum Seen {
    /// It was, and this is how it ended.
    Before(Box<Outcome>),
    /// It was not.
    Never(Found),
}

pub(super) async fn look(journal: &Journal, services: &Services, found: Found) -> Result<Seen, CallError> {
    let call = &found.0.call;
    if (call.key.is_none() && !call.own_id) || found.0.runs_again() {
        return Ok(Seen::Never(found));
    }
    // In a box, like every part of the way that plain calls do not take: they would carry its size.
    Box::pin(look_up(journal, services, found)).await
}

async fn look_up(journal: &Journal, services: &Services, found: Found) -> Result<Seen, CallError> {
    let Found(mut envelope) = found;
    if envelope.call.own_id {
        let (call, now) = (&envelope.call, services.clock.now());
        if let Some(record) = journal.record(&call.tenant, call.thread.as_ref(), call.id, now).await? {
            return Err(made_before(call.id, record.outcome.is_some()));
        }
    }
    if envelope.call.key.is_none() {
        return Ok(Seen::Never(Found(envelope)));
    }
    let digest = digest::of_json(&envelope.call.arguments);
    envelope.extras_mut().digest = Some(digest.clone());
    let CallEnvelope { call, tool, .. } = &envelope;
    let Some(key) = &call.key else { return Ok(Seen::Never(Found(envelope))) };
    let now = services.clock.now();
    let Some((claim, seen)) = journal.claimed(&call.tenant, &tool.definition.name, key, now).await? else {
        return Ok(Seen::Never(Found(envelope)));
    };
    if claim.digest != digest {
        return Err(CallError::new(ErrorKind::IdempotencyKeyReused));
    }
    let record = journal.record(&call.tenant, claim.thread.as_ref(), claim.call, now).await?;
    let outcome = match record.map(|record| record.outcome) {
        Some(None) => return Err(CallError::new(ErrorKind::IdempotencyInProgress)),
        Some(ended) => ended,
        // A call is opened before it claims its key, so one that is not there was forgotten by the journal.
        None => None,
    };
    Ok(match outcome.filter(|outcome| !died_harmless(outcome) && !turned_away(outcome)) {
        Some(outcome) => Seen::Before(Box::new(outcome)),
        None => {
            envelope.extras_mut().stale_claim = Some(seen);
            Seen::Never(Found(envelope))
        }
    })
}

/// Why a call is not made whose caller has made one with the same id.
pub(super) fn made_before(call: CallId, ended: bool) -> CallError {
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
fn died_harmless(outcome: &Outcome) -> bool {
    outcome.error_kind() == Some(ErrorKind::Interrupted) && outcome.effect == Effect::None
}

/// Whether a call was written down ahead of its turn and then not let in. Calls that are not written down leave no trace of
/// that, and whoever was told to come again means to be let in. What a person said about it is an answer, and stays.
fn turned_away(outcome: &Outcome) -> bool {
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

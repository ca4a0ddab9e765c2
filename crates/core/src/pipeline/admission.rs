//! Door 9: rate, concurrency and the queue. Whoever comes out holds a slot until it is done.
//!
//! In: an allowed call. Out: the same with a slot, or a refusal that says when to come again. First the rate, then the
//! slot, so that nobody holds a slot while waiting for anything.

use std::{future::Future, sync::Arc, time::Duration};

use futures_core::future::BoxFuture;

use super::{Allowed, Placed};
use crate::{
    execution::{CallEnvelope, Slot},
    scheduler::{Asker, Bound, Desk, Excess, Full, Granted, Party, Place, RETRY, Token, Waiting},
    services::Services,
};
use toolhub_storage::clock::{self, Instant};
use toolhub_types::{
    error::{CallError, ErrorKind},
    outcome::Status,
};

/// A turn under the rate limits that is taken and not used yet. Whatever ends the call before its tool starts, a dropped
/// caller included, gives the turn back: a call that was not made costs no token.
pub(super) struct Unspent(Option<Turn>);

struct Turn {
    desk: Arc<Desk>,
    token: Token,
    /// When it was taken, if nothing was waited for since.
    taken: Option<Instant>,
}

impl Unspent {
    /// The tool starts. Answers when the turn was taken, if admission has not waited for anything since.
    pub(super) fn spend(mut self) -> Option<Instant> {
        self.0.take()?.taken
    }

    /// Time has passed.
    fn waited(&mut self) {
        if let Some(turn) = &mut self.0 {
            turn.taken = None;
        }
    }
}

impl Drop for Unspent {
    fn drop(&mut self) {
        if let Some(Turn { desk, token, .. }) = self.0.take() {
            desk.limiter.give_back(token);
        }
    }
}

/// A call that has come to its turn, or will. Not an async function: most calls need not wait, and would carry the size of
/// the waiting all the same.
#[allow(clippy::large_enum_variant, reason = "the common end is the large one, and lives for one line")]
pub(super) enum Placing<'a> {
    Now(Placed),
    Later(BoxFuture<'a, Result<Placed, CallError>>),
}

pub(super) fn place(services: &Services, allowed: Allowed) -> Result<Placing<'_>, CallError> {
    let Allowed(envelope) = allowed;
    let (rate, token) = take_token(services, &envelope)?;
    let waiting = if rate.is_zero() {
        match queue_up(&envelope) {
            Ok(Now::Run(slot)) => return Ok(Placing::Now(Placed { envelope, slot, token, standing: None })),
            Ok(Now::Wait(waiting)) => Ok(waiting),
            Err(full) => return Err(overloaded(&envelope, full)),
        }
    } else {
        Err(rate)
    };
    Ok(Placing::Later(Box::pin(wait(services, envelope, token, waiting))))
}

/// Waits for the turn, in the queue or first for the rate.
async fn wait(
    services: &Services,
    envelope: CallEnvelope,
    mut token: Unspent,
    waiting: Result<Waiting, Duration>,
) -> Result<Placed, CallError> {
    token.waited();
    envelope.waits(Status::Scheduled, None);
    let slot = match waiting {
        Ok(waiting) => turn(services, &envelope, waiting).await?,
        Err(rate) => later(services, &envelope, rate).await?,
    };
    Ok(Placed { envelope, slot, token, standing: None })
}

/// A slot for a call that gave its own back to wait for something: one more attempt, or the answer of a probe. The rate
/// was paid for once, with the call.
pub(super) async fn place_again(
    services: &Services,
    envelope: &CallEnvelope,
    deadline: Instant,
) -> Result<Slot, CallError> {
    match queue_up(envelope) {
        Ok(Now::Run(slot)) => Ok(slot),
        Ok(Now::Wait(waiting)) => {
            let waited = tokio::time::timeout_at(deadline, turn(services, envelope, waiting)).await;
            waited.unwrap_or_else(|_| Err(CallError::new(ErrorKind::Overloaded)))
        }
        Err(full) => Err(overloaded(envelope, full)),
    }
}

fn take_token(services: &Services, envelope: &CallEnvelope) -> Result<(Duration, Unspent), CallError> {
    let CallEnvelope { call, tool, .. } = envelope;
    if tool.limits.rate_limits.is_empty() {
        return Ok((Duration::ZERO, Unspent(None)));
    }
    let asker = Asker { tenant: &call.tenant, thread: call.thread.as_ref(), caller: &call.caller };
    let now = services.clock.instant();
    let Granted { wait, token } = tool.desk.limiter.take(&tool.limits.rate_limits, asker, now).map_err(|excess| {
        tool.desk.meter.rate_limited();
        rate_limited(envelope, &excess)
    })?;
    if !wait.is_zero() {
        tool.desk.meter.rate_limited();
    }
    Ok((wait, Unspent(Some(Turn { desk: tool.desk.clone(), token, taken: Some(now) }))))
}

/// What a call gets that comes to the queue.
enum Now {
    Run(Slot),
    Wait(Waiting),
}

fn queue_up(envelope: &CallEnvelope) -> Result<Now, Full> {
    let CallEnvelope { call, tool, .. } = envelope;
    let limit = tool.limits.max_concurrency;
    // Most tools are not limited, and their calls need not even say who they are.
    if tool.desk.lane.is_open(limit) {
        return Ok(Now::Run(Slot::Free));
    }
    if let Some(slot) = tool.desk.lane.at_once(limit) {
        return Ok(Now::Run(Slot::of(tool, slot)));
    }
    let party = Party { tenant: call.tenant.clone(), thread: call.thread.clone() };
    Ok(match tool.desk.lane.place(limit, &party)? {
        Place::Slot(slot) => Now::Run(Slot::of(tool, slot)),
        Place::Waiting(waiting) => Now::Wait(waiting),
    })
}

/// Waits for the turn that the rate limit has given, and then for a slot.
async fn later(services: &Services, envelope: &CallEnvelope, wait: Duration) -> Result<Slot, CallError> {
    let ripe = clock::after(services.clock.instant(), wait);
    if unless_cancelled(envelope, tokio::time::sleep_until(ripe)).await.is_none() {
        return Err(CallError::new(ErrorKind::Cancelled));
    }
    match queue_up(envelope) {
        Ok(Now::Run(slot)) => Ok(slot),
        Ok(Now::Wait(waiting)) => turn(services, envelope, waiting).await,
        Err(full) => Err(overloaded(envelope, full)),
    }
}

/// Waits in the queue.
async fn turn(services: &Services, envelope: &CallEnvelope, waiting: Waiting) -> Result<Slot, CallError> {
    let patience = clock::after(services.clock.instant(), envelope.tool.limits.queue_timeout);
    match unless_cancelled(envelope, tokio::time::timeout_at(patience, waiting)).await {
        Some(Ok(slot)) => Ok(Slot::of(&envelope.tool, slot)),
        Some(Err(_)) => {
            let time = envelope.tool.limits.queue_timeout;
            let text = format!("no slot became free within {time:?}");
            let mut error = CallError::new(ErrorKind::Overloaded).operator(text);
            error.retry_after = Some(RETRY);
            Err(error)
        }
        None => Err(CallError::new(ErrorKind::Cancelled)),
    }
}

async fn unless_cancelled<T>(envelope: &CallEnvelope, wait: impl Future<Output = T>) -> Option<T> {
    match &envelope.call.cancel {
        Some(cancel) => cancel.run_until_cancelled(wait).await,
        None => Some(wait.await),
    }
}

fn rate_limited(envelope: &CallEnvelope, excess: &Excess) -> CallError {
    let name = &envelope.tool.definition.name;
    let (limit, wait) = (&envelope.tool.limits.rate_limits[excess.limit], excess.retry_after);
    let mut error = CallError::new(ErrorKind::RateLimited)
        .operator(format!("`{name}` takes {} calls per {:?}; the next one fits in {wait:?}", limit.requests, limit.per))
        .model(format!("Too many calls of `{name}`. Wait {} s before calling it again.", wait.as_secs_f64().ceil()));
    error.retry_after = Some(wait);
    error
}

fn overloaded(envelope: &CallEnvelope, full: Full) -> CallError {
    let whose = match full.bound {
        Bound::Tool => format!("the queue of `{}`", envelope.tool.definition.name),
        Bound::All => "the queue of all tools".into(),
    };
    let mut error = CallError::new(ErrorKind::Overloaded).operator(format!("no slot is free and {whose} is full"));
    error.retry_after = Some(full.retry);
    error
}

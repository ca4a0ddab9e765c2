//! Door 9: rate, concurrency and the queue. Whoever comes out holds a slot until it is done.
//!
//! In: an allowed call. Out: the same with a slot, or a refusal that says when to come again. First the rate, then the
//! slot, so that nobody holds a slot while waiting for anything.

use std::{
    future::Future,
    sync::{Arc, Weak},
    time::Duration,
};

use futures_core::future::BoxFuture;

use super::{Allowed, Placed, Way};
use crate::{
    registry::Tool,
    scheduler::{self, Asker, Bound, Desk, Excess, Full, Granted, Party, Place, RETRY, Token, Waiting},
    services::Services,
};
use toolhub_storage::clock::{self, Instant};
use toolhub_types::{
    error::{CallError, ErrorKind},
    outcome::Status,
};

/// The right to run, for as long as it or a share of it is held.
#[derive(Default)]
pub(crate) enum Slot {
    /// Nothing is limited, or it was given back.
    #[default]
    Free,
    /// The call's own.
    Own(#[allow(dead_code, reason = "held, and given back when dropped")] scheduler::Slot),
    /// Of a tool that may run on when nobody waits for it any more.
    Shared(Arc<scheduler::Slot>),
}

impl Slot {
    /// Gives it back: the tool has stopped. A blocking function that runs on holds a share of its own.
    pub(super) fn give_back(&mut self) {
        *self = Self::Free;
    }

    /// What a blocking function can make a share of, without holding one.
    pub(crate) fn watch(&self) -> WeakSlot {
        WeakSlot(if let Self::Shared(slot) = self { Some(Arc::downgrade(slot)) } else { None })
    }

    fn of(tool: &Tool, slot: scheduler::Slot) -> Self {
        if tool.executor.stops_when_dropped() { Self::Own(slot) } else { Self::Shared(Arc::new(slot)) }
    }
}

/// A slot that is not held.
pub(crate) struct WeakSlot(Option<Weak<scheduler::Slot>>);

impl WeakSlot {
    /// A share of the slot, if somebody still holds one.
    pub(crate) fn share(&self) -> Slot {
        self.0.as_ref().and_then(Weak::upgrade).map_or(Slot::Free, Slot::Shared)
    }
}

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
    let Allowed(way) = allowed;
    let (rate, token) = take_token(services, &way)?;
    let waiting = if rate.is_zero() {
        match queue_up(&way) {
            Ok(Now::Run(slot)) => return Ok(Placing::Now(Placed { way, slot, token, standing: None })),
            Ok(Now::Wait(waiting)) => Ok(waiting),
            Err(full) => return Err(overloaded(&way, full)),
        }
    } else {
        Err(rate)
    };
    Ok(Placing::Later(Box::pin(wait(services, way, token, waiting))))
}

/// Waits for the turn, in the queue or first for the rate.
async fn wait(
    services: &Services,
    way: Way,
    mut token: Unspent,
    waiting: Result<Waiting, Duration>,
) -> Result<Placed, CallError> {
    token.waited();
    way.call.waits(Status::Scheduled, None);
    let slot = match waiting {
        Ok(waiting) => turn(services, &way, waiting).await?,
        Err(rate) => later(services, &way, rate).await?,
    };
    Ok(Placed { way, slot, token, standing: None })
}

/// A slot for a call that gave its own back to wait for something: one more attempt, or the answer of a probe. The rate
/// was paid for once, with the call.
pub(super) async fn place_again(services: &Services, way: &Way, deadline: Instant) -> Result<Slot, CallError> {
    match queue_up(way) {
        Ok(Now::Run(slot)) => Ok(slot),
        Ok(Now::Wait(waiting)) => {
            let waited = tokio::time::timeout_at(deadline, turn(services, way, waiting)).await;
            waited.unwrap_or_else(|_| Err(CallError::new(ErrorKind::Overloaded)))
        }
        Err(full) => Err(overloaded(way, full)),
    }
}

fn take_token(services: &Services, way: &Way) -> Result<(Duration, Unspent), CallError> {
    let Way { call, tool, .. } = way;
    if tool.limits.rate_limits.is_empty() {
        return Ok((Duration::ZERO, Unspent(None)));
    }
    let asker = Asker { tenant: &call.tenant, thread: call.thread.as_ref(), caller: &call.caller };
    let now = services.clock.instant();
    let Granted { wait, token } = tool.desk.limiter.take(&tool.limits.rate_limits, asker, now).map_err(|excess| {
        tool.desk.meter.rate_limited();
        rate_limited(way, &excess)
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

fn queue_up(way: &Way) -> Result<Now, Full> {
    let Way { call, tool, .. } = way;
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
async fn later(services: &Services, way: &Way, wait: Duration) -> Result<Slot, CallError> {
    let ripe = clock::after(services.clock.instant(), wait);
    if unless_cancelled(way, tokio::time::sleep_until(ripe)).await.is_none() {
        return Err(CallError::new(ErrorKind::Cancelled));
    }
    match queue_up(way) {
        Ok(Now::Run(slot)) => Ok(slot),
        Ok(Now::Wait(waiting)) => turn(services, way, waiting).await,
        Err(full) => Err(overloaded(way, full)),
    }
}

/// Waits in the queue.
async fn turn(services: &Services, way: &Way, waiting: Waiting) -> Result<Slot, CallError> {
    let patience = clock::after(services.clock.instant(), way.tool.limits.queue_timeout);
    match unless_cancelled(way, tokio::time::timeout_at(patience, waiting)).await {
        Some(Ok(slot)) => Ok(Slot::of(&way.tool, slot)),
        Some(Err(_)) => {
            let time = way.tool.limits.queue_timeout;
            let text = format!("no slot became free within {time:?}");
            let mut error = CallError::new(ErrorKind::Overloaded).operator(text);
            error.retry_after = Some(RETRY);
            Err(error)
        }
        None => Err(CallError::new(ErrorKind::Cancelled)),
    }
}

async fn unless_cancelled<T>(way: &Way, wait: impl Future<Output = T>) -> Option<T> {
    match &way.call.cancel {
        Some(cancel) => cancel.run_until_cancelled(wait).await,
        None => Some(wait.await),
    }
}

fn rate_limited(way: &Way, excess: &Excess) -> CallError {
    let name = &way.tool.definition.name;
    let (limit, wait) = (&way.tool.limits.rate_limits[excess.limit], excess.retry_after);
    let mut error = CallError::new(ErrorKind::RateLimited)
        .operator(format!("`{name}` takes {} calls per {:?}; the next one fits in {wait:?}", limit.requests, limit.per))
        .model(format!("Too many calls of `{name}`. Wait {} s before calling it again.", wait.as_secs_f64().ceil()));
    error.retry_after = Some(wait);
    error
}

fn overloaded(way: &Way, full: Full) -> CallError {
    let whose = match full.bound {
        Bound::Tool => format!("the queue of `{}`", way.tool.definition.name),
        Bound::All => "the queue of all tools".into(),
    };
    let mut error = CallError::new(ErrorKind::Overloaded).operator(format!("no slot is free and {whose} is full"));
    error.retry_after = Some(full.retry);
    error
}

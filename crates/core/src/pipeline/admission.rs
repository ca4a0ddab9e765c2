//! Door 9: rate, concurrency and the queue. Whoever comes out holds a slot until it is done.
//!
//! In: an allowed call. Out: the same with a slot, or a refusal that says when to come again. First the rate, then the
//! slot, so that nobody holds a slot while waiting for anything.

use std::{future::Future, sync::Arc, time::Duration};

use futures_core::future::BoxFuture;

use super::{Allowed, Placed};
use crate::{
    execution::{CallEnvelope, CallSlot},
    scheduler::{
        FairnessKey, QueueFull, QueueLimit, RETRY_AFTER, RateExceeded, RatePermit, Reservation, SlotOrWaiter,
        SlotWaiter, Subject, ToolRuntime,
    },
    services::Services,
};
use toolhub_storage::clock::{self, Instant};
use toolhub_types::{
    error::{CallError, ErrorKind},
    outcome::Status,
};

/// A turn under the rate limits that is taken and not used yet. Whatever ends the call before its tool starts, a dropped
/// caller included, gives the turn back: a call that was not made costs no token.
pub(super) struct RefundOnDrop(Option<HeldPermit>);

struct HeldPermit {
    runtime: Arc<ToolRuntime>,
    permit: RatePermit,
    /// When it was taken, if nothing was waited for since.
    taken_at: Option<Instant>,
}

impl RefundOnDrop {
    /// The tool starts. Answers when the turn was taken, if admission has not waited for anything since.
    pub(super) fn spend(mut self) -> Option<Instant> {
        self.0.take()?.taken_at
    }

    /// Time has passed.
    fn mark_waited(&mut self) {
        if let Some(turn) = &mut self.0 {
            turn.taken_at = None;
        }
    }
}

impl Drop for RefundOnDrop {
    fn drop(&mut self) {
        if let Some(HeldPermit { runtime: desk, permit: token, .. }) = self.0.take() {
            desk.limiter.refund(token);
        }
    }
}

/// A call that has come to its turn, or will. Not an async function: most calls need not wait, and would carry the size of
/// the waiting all the same.
#[allow(clippy::large_enum_variant, reason = "the common end is the large one, and lives for one line")]
pub(super) enum Placement<'a> {
    Ready(Placed),
    Pending(BoxFuture<'a, Result<Placed, CallError>>),
}

pub(super) fn admit(services: &Services, allowed: Allowed) -> Result<Placement<'_>, CallError> {
    let Allowed(envelope) = allowed;
    let (rate, token) = reserve_rate(services, &envelope)?;
    let waiting = if rate.is_zero() {
        match acquire_slot(&envelope) {
            Ok(CallSlotOrWaiter::Run(slot)) => {
                return Ok(Placement::Ready(Placed { envelope, slot, rate_permit: token, probe_guard: None }));
            }
            Ok(CallSlotOrWaiter::Wait(waiting)) => Ok(waiting),
            Err(full) => return Err(overloaded(&envelope, full)),
        }
    } else {
        Err(rate)
    };
    Ok(Placement::Pending(Box::pin(wait_for_turn(services, envelope, token, waiting))))
}

/// Waits for the turn, in the queue or first for the rate.
async fn wait_for_turn(
    services: &Services,
    envelope: CallEnvelope,
    mut token: RefundOnDrop,
    waiting: Result<SlotWaiter, Duration>,
) -> Result<Placed, CallError> {
    token.mark_waited();
    envelope.set_waiting(Status::Scheduled, None);
    let slot = match waiting {
        Ok(waiting) => wait_for_slot(services, &envelope, waiting).await?,
        Err(rate) => wait_for_rate(services, &envelope, rate).await?,
    };
    Ok(Placed { envelope, slot, rate_permit: token, probe_guard: None })
}

/// A slot for a call that gave its own back to wait for something: one more attempt, or the answer of a probe. The rate
/// was paid for once, with the call.
pub(super) async fn reacquire_slot(
    services: &Services,
    envelope: &CallEnvelope,
    deadline: Instant,
) -> Result<CallSlot, CallError> {
    match acquire_slot(envelope) {
        Ok(CallSlotOrWaiter::Run(slot)) => Ok(slot),
        Ok(CallSlotOrWaiter::Wait(waiting)) => {
            let waited = tokio::time::timeout_at(deadline, wait_for_slot(services, envelope, waiting)).await;
            waited.unwrap_or_else(|_| Err(CallError::new(ErrorKind::Overloaded)))
        }
        Err(full) => Err(overloaded(envelope, full)),
    }
}

fn reserve_rate(services: &Services, envelope: &CallEnvelope) -> Result<(Duration, RefundOnDrop), CallError> {
    let CallEnvelope { call, tool, .. } = envelope;
    if tool.limits.rate_limits.is_empty() {
        return Ok((Duration::ZERO, RefundOnDrop(None)));
    }
    let asker = Subject { tenant: &call.tenant, thread: call.thread.as_ref(), caller: &call.caller };
    let now = services.clock.instant();
    let Reservation { wait, permit: token } =
        tool.runtime.limiter.reserve(&tool.limits.rate_limits, asker, now).map_err(|excess| {
            tool.runtime.meter.record_rate_limited();
            rate_limited(envelope, &excess)
        })?;
    if !wait.is_zero() {
        tool.runtime.meter.record_rate_limited();
    }
    Ok((wait, RefundOnDrop(Some(HeldPermit { runtime: tool.runtime.clone(), permit: token, taken_at: Some(now) }))))
}

/// What a call gets that comes to the queue.
enum CallSlotOrWaiter {
    Run(CallSlot),
    Wait(SlotWaiter),
}

fn acquire_slot(envelope: &CallEnvelope) -> Result<CallSlotOrWaiter, QueueFull> {
    let CallEnvelope { call, tool, .. } = envelope;
    let limit = tool.limits.max_concurrency;
    // Most tools are not limited, and their calls need not even say who they are.
    if tool.runtime.queue.is_uncontended(limit) {
        return Ok(CallSlotOrWaiter::Run(CallSlot::Free));
    }
    if let Some(slot) = tool.runtime.queue.try_acquire(limit) {
        return Ok(CallSlotOrWaiter::Run(CallSlot::new(tool, slot)));
    }
    let party = FairnessKey { tenant: call.tenant.clone(), thread: call.thread.clone() };
    Ok(match tool.runtime.queue.acquire(limit, &party)? {
        SlotOrWaiter::Slot(slot) => CallSlotOrWaiter::Run(CallSlot::new(tool, slot)),
        SlotOrWaiter::Waiter(waiting) => CallSlotOrWaiter::Wait(waiting),
    })
}

/// Waits for the turn that the rate limit has given, and then for a slot.
async fn wait_for_rate(services: &Services, envelope: &CallEnvelope, wait: Duration) -> Result<CallSlot, CallError> {
    let ripe = clock::deadline_after(services.clock.instant(), wait);
    if unless_cancelled(envelope, tokio::time::sleep_until(ripe)).await.is_none() {
        return Err(CallError::new(ErrorKind::Cancelled));
    }
    match acquire_slot(envelope) {
        Ok(CallSlotOrWaiter::Run(slot)) => Ok(slot),
        Ok(CallSlotOrWaiter::Wait(waiting)) => wait_for_slot(services, envelope, waiting).await,
        Err(full) => Err(overloaded(envelope, full)),
    }
}

/// Waits in the queue.
async fn wait_for_slot(
    services: &Services,
    envelope: &CallEnvelope,
    waiting: SlotWaiter,
) -> Result<CallSlot, CallError> {
    let patience = clock::deadline_after(services.clock.instant(), envelope.tool.limits.queue_timeout);
    match unless_cancelled(envelope, tokio::time::timeout_at(patience, waiting)).await {
        Some(Ok(slot)) => Ok(CallSlot::new(&envelope.tool, slot)),
        Some(Err(_)) => {
            let time = envelope.tool.limits.queue_timeout;
            let text = format!("no slot became free within {time:?}");
            let mut error = CallError::new(ErrorKind::Overloaded).operator(text);
            error.retry_after = Some(RETRY_AFTER);
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

fn rate_limited(envelope: &CallEnvelope, excess: &RateExceeded) -> CallError {
    let name = &envelope.tool.definition.name;
    let (limit, wait) = (&envelope.tool.limits.rate_limits[excess.limit_index], excess.retry_after);
    let mut error = CallError::new(ErrorKind::RateLimited)
        .operator(format!("`{name}` takes {} calls per {:?}; the next one fits in {wait:?}", limit.requests, limit.per))
        .model(format!("Too many calls of `{name}`. Wait {} s before calling it again.", wait.as_secs_f64().ceil()));
    error.retry_after = Some(wait);
    error
}

fn overloaded(envelope: &CallEnvelope, full: QueueFull) -> CallError {
    let whose = match full.limit {
        QueueLimit::Tool => format!("the queue of `{}`", envelope.tool.definition.name),
        QueueLimit::Global => "the queue of all tools".into(),
    };
    let mut error = CallError::new(ErrorKind::Overloaded).operator(format!("no slot is free and {whose} is full"));
    error.retry_after = Some(full.retry_after);
    error
}

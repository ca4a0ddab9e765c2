//! Stage 9: rate limits, concurrency limits and the wait queue.
//!
//! In: an allowed call. Out: the call with a slot, which it holds until its tool is done; or a refusal with a retry
//! delay. The rate comes before the slot, so that no call holds a slot while it waits.

use std::{future::Future, sync::Arc, time::Duration};

use futures_core::future::BoxFuture;

use super::{Allowed, Placed};
use crate::{
    execution::{CallEnvelope, CallSlot},
    scheduler::{
        FairnessKey, QueueFull, QueueLimit, RETRY_AFTER, RateExceeded, RatePermit, Reservation, SharedPermit,
        SharedRates, SlotOrWaiter, SlotWaiter, Subject, ToolRuntime,
    },
    services::Services,
};
use toolhub_storage::clock::{self, Instant};
use toolhub_types::{
    error::{CallError, ErrorKind},
    outcome::Status,
};

/// A rate permit that is not spent yet. If the call ends before its tool starts, even because the caller dropped it,
/// the drop refunds the permit: a call that did not run costs nothing.
pub(super) struct RefundOnDrop(Option<HeldPermit>);

enum HeldPermit {
    /// Of the tool's limiter on this node.
    Local {
        runtime: Arc<ToolRuntime>,
        permit: RatePermit,
        /// When it was taken, if nothing was awaited since.
        taken_at: Option<Instant>,
    },
    /// Of the limits that all nodes share.
    Shared(Arc<SharedRates>, SharedPermit),
}

impl RefundOnDrop {
    /// Spends the permit, because the tool starts. Returns when it was taken, if admission has not waited since.
    pub(super) fn spend(mut self) -> Option<Instant> {
        match self.0.take()? {
            HeldPermit::Local { taken_at, .. } => taken_at,
            HeldPermit::Shared(..) => None,
        }
    }

    /// The call has waited, so the time the permit was taken is no longer current.
    fn mark_waited(&mut self) {
        if let Some(HeldPermit::Local { taken_at, .. }) = &mut self.0 {
            *taken_at = None;
        }
    }
}

impl Drop for RefundOnDrop {
    fn drop(&mut self) {
        match self.0.take() {
            Some(HeldPermit::Local { runtime, permit, .. }) => runtime.limiter.refund(permit),
            Some(HeldPermit::Shared(rates, permit)) => rates.refund(permit),
            None => {}
        }
    }
}

/// A call that holds its slot, or waits for it. Not an async function: most calls need not wait, but their future would
/// still have the size of the wait.
#[allow(clippy::large_enum_variant, reason = "the common end is the large one, and lives for one line")]
pub(super) enum Placement<'a> {
    Ready(Placed),
    Pending(BoxFuture<'a, Result<Placed, CallError>>),
}

pub(super) fn admit(services: &Services, allowed: Allowed) -> Result<Placement<'_>, CallError> {
    let Allowed(envelope) = allowed;
    if let Some(rates) = &services.shared_rates
        && !envelope.tool.limits.rate_limits.is_empty()
    {
        return Ok(Placement::Pending(Box::pin(admit_shared(services, rates, envelope))));
    }
    let (rate_wait, rate_permit) = reserve_rate(services, &envelope)?;
    let waiter = if rate_wait.is_zero() {
        match acquire_slot(services, &envelope) {
            Ok(CallSlotOrWaiter::Run(slot)) => {
                return Ok(Placement::Ready(Placed { envelope, slot, rate_permit, probe_guard: None }));
            }
            Ok(CallSlotOrWaiter::Wait(waiter)) => Ok(waiter),
            Err(full) => return Err(overloaded(&envelope, full)),
        }
    } else {
        Err(rate_wait)
    };
    Ok(Placement::Pending(Box::pin(wait_for_turn(services, envelope, rate_permit, waiter))))
}

/// Admits a call whose rate limits all nodes share.
async fn admit_shared(
    services: &Services,
    rates: &Arc<SharedRates>,
    envelope: CallEnvelope,
) -> Result<Placed, CallError> {
    let (rate_wait, rate_permit) = reserve_shared_rate(rates, &envelope).await?;
    if !rate_wait.is_zero() {
        return wait_for_turn(services, envelope, rate_permit, Err(rate_wait)).await;
    }
    match acquire_slot(services, &envelope) {
        Ok(CallSlotOrWaiter::Run(slot)) => Ok(Placed { envelope, slot, rate_permit, probe_guard: None }),
        Ok(CallSlotOrWaiter::Wait(waiter)) => wait_for_turn(services, envelope, rate_permit, Ok(waiter)).await,
        Err(full) => Err(overloaded(&envelope, full)),
    }
}

async fn reserve_shared_rate(
    rates: &Arc<SharedRates>,
    envelope: &CallEnvelope,
) -> Result<(Duration, RefundOnDrop), CallError> {
    let CallEnvelope { call, tool, .. } = envelope;
    let limits = &tool.limits.rate_limits;
    let subject = Subject { tenant: &call.tenant, thread: call.thread.as_ref(), caller: &call.caller };
    let reserved = unless_cancelled(envelope, rates.reserve(&tool.definition.name, limits, subject)).await;
    match reserved.ok_or_else(|| CallError::new(ErrorKind::Cancelled))? {
        Ok((wait, permit)) => {
            if !wait.is_zero() {
                tool.runtime.meter.record_rate_limited();
            }
            Ok((wait, RefundOnDrop(Some(HeldPermit::Shared(rates.clone(), permit)))))
        }
        Err(excess) => {
            tool.runtime.meter.record_rate_limited();
            Err(rate_limited(envelope, &excess))
        }
    }
}

/// Waits for a slot: in the queue, or first for the rate limit.
async fn wait_for_turn(
    services: &Services,
    envelope: CallEnvelope,
    mut rate_permit: RefundOnDrop,
    waiter: Result<SlotWaiter, Duration>,
) -> Result<Placed, CallError> {
    rate_permit.mark_waited();
    envelope.set_waiting(Status::Scheduled, None);
    let slot = match waiter {
        Ok(waiter) => wait_for_slot(services, &envelope, waiter).await?,
        Err(rate_wait) => wait_for_rate(services, &envelope, rate_wait).await?,
    };
    Ok(Placed { envelope, slot, rate_permit, probe_guard: None })
}

/// Reacquires a slot for a call that released its own for a retry or for the result of another call's probe. The rate
/// limit is charged once per call, so not again here.
pub(super) async fn reacquire_slot(
    services: &Services,
    envelope: &CallEnvelope,
    deadline: Instant,
) -> Result<CallSlot, CallError> {
    match acquire_slot(services, envelope) {
        Ok(CallSlotOrWaiter::Run(slot)) => Ok(slot),
        Ok(CallSlotOrWaiter::Wait(waiter)) => {
            let waited = tokio::time::timeout_at(deadline, wait_for_slot(services, envelope, waiter)).await;
            waited.unwrap_or_else(|_| Err(CallError::new(ErrorKind::Overloaded)))
        }
        Err(full) => Err(overloaded(envelope, full)),
    }
}

fn reserve_rate(services: &Services, envelope: &CallEnvelope) -> Result<(Duration, RefundOnDrop), CallError> {
    let CallEnvelope { call, tool, .. } = envelope;
    let limits = &tool.limits.rate_limits;
    if limits.is_empty() {
        return Ok((Duration::ZERO, RefundOnDrop(None)));
    }
    let subject = Subject { tenant: &call.tenant, thread: call.thread.as_ref(), caller: &call.caller };
    let now = services.clock.instant();
    let Reservation { wait, permit } = tool.runtime.limiter.reserve(limits, subject, now).map_err(|excess| {
        tool.runtime.meter.record_rate_limited();
        rate_limited(envelope, &excess)
    })?;
    if !wait.is_zero() {
        tool.runtime.meter.record_rate_limited();
    }
    Ok((wait, RefundOnDrop(Some(HeldPermit::Local { runtime: tool.runtime.clone(), permit, taken_at: Some(now) }))))
}

/// A slot, or a position in the wait queue.
enum CallSlotOrWaiter {
    Run(CallSlot),
    Wait(SlotWaiter),
}

fn acquire_slot(services: &Services, envelope: &CallEnvelope) -> Result<CallSlotOrWaiter, QueueFull> {
    let CallEnvelope { call, tool, .. } = envelope;
    let limit = tool.limits.concurrency_of_node();
    let fairness_key = || FairnessKey { tenant: call.tenant.clone(), thread: call.thread.clone() };
    let acquired = match (tool.limits.max_concurrency_shared, &services.shared_permits) {
        (Some(shared), Some(permits)) => {
            let queue = &tool.runtime.permit_queue;
            let acquired = queue.wait_for_permit(limit.unwrap_or(shared), &fairness_key())?;
            // After the call is in the queue: a queue without calls is no longer cared for.
            permits.request(&tool.definition.name, queue, shared);
            acquired
        }
        _ => {
            let queue = &tool.runtime.queue;
            // Most tools have no limit, and their calls do not build a fairness key.
            if queue.is_uncontended(limit) {
                return Ok(CallSlotOrWaiter::Run(CallSlot::Free));
            }
            match queue.try_acquire(limit) {
                Some(slot) => SlotOrWaiter::Slot(slot),
                None => queue.acquire(limit, &fairness_key())?,
            }
        }
    };
    Ok(match acquired {
        SlotOrWaiter::Slot(slot) => CallSlotOrWaiter::Run(CallSlot::new(tool, slot)),
        SlotOrWaiter::Waiter(waiter) => CallSlotOrWaiter::Wait(waiter),
    })
}

/// Waits until the reserved rate permit is valid, and then for a slot.
async fn wait_for_rate(services: &Services, envelope: &CallEnvelope, wait: Duration) -> Result<CallSlot, CallError> {
    let ready_at = clock::deadline_after(services.clock.instant(), wait);
    if unless_cancelled(envelope, tokio::time::sleep_until(ready_at)).await.is_none() {
        return Err(CallError::new(ErrorKind::Cancelled));
    }
    match acquire_slot(services, envelope) {
        Ok(CallSlotOrWaiter::Run(slot)) => Ok(slot),
        Ok(CallSlotOrWaiter::Wait(waiter)) => wait_for_slot(services, envelope, waiter).await,
        Err(full) => Err(overloaded(envelope, full)),
    }
}

/// Waits in the queue.
async fn wait_for_slot(
    services: &Services,
    envelope: &CallEnvelope,
    waiter: SlotWaiter,
) -> Result<CallSlot, CallError> {
    let deadline = clock::deadline_after(services.clock.instant(), envelope.tool.limits.queue_timeout);
    match unless_cancelled(envelope, tokio::time::timeout_at(deadline, waiter.slot_or_refusal())).await {
        Some(Ok(Some(slot))) => Ok(CallSlot::new(&envelope.tool, slot)),
        Some(Ok(None)) => {
            let name = &envelope.tool.definition.name;
            let text = format!("`{name}` has `max_concurrency_shared`, and the store did not answer about its permits");
            Err(CallError::new(ErrorKind::StoreUnavailable).operator(text))
        }
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

/// The refusal of a call that exceeds a rate limit.
pub(crate) fn rate_limited(envelope: &CallEnvelope, excess: &RateExceeded) -> CallError {
    let name = &envelope.tool.definition.name;
    let (limit, wait) = (&envelope.tool.limits.rate_limits[excess.limit_index], excess.retry_after);
    let mut error = CallError::new(ErrorKind::RateLimited)
        .operator(format!(
            "`{name}` is limited to {} calls per {:?}; retry in {:.1} s",
            limit.requests,
            limit.per,
            wait.as_secs_f64()
        ))
        .model(format!("Too many calls of `{name}`. Wait {} s before calling it again.", wait.as_secs_f64().ceil()));
    error.retry_after = Some(wait);
    error
}

fn overloaded(envelope: &CallEnvelope, full: QueueFull) -> CallError {
    let queue = match full.limit {
        QueueLimit::Tool => format!("the queue of `{}`", envelope.tool.definition.name),
        QueueLimit::Global => "the queue of all tools".into(),
    };
    let mut error = CallError::new(ErrorKind::Overloaded).operator(format!("no slot is free and {queue} is full"));
    error.retry_after = Some(full.retry_after);
    error
}

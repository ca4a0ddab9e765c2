//! Door 12: runs the tool, for as long as there is time and somebody wants the result.
//!
//! In: an opened call. Out: a reply or a failure, and what is known about the effect. A panic is caught here and is the
//! tool's failure, not ours. Whether and when a failed attempt is followed by another is decided by `policy/retry.rs`.

use std::{
    any::Any,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    task::Poll,
    time::Duration,
};

use super::{CallSlot, Done, Opened, admission, deadline, external, output, state_locks, ticket::Ticket};
use crate::{
    execution::{CallContext, CallEnvelope, Job, Reply, Times},
    journal::OpenCall,
    monitor::InFlight,
    services::Services,
    statuses::ProbeGuard,
    tasks,
};
use toolhub_storage::clock::{self, Instant};
use toolhub_types::{
    effect::Effect,
    error::{ErrorKind, ToolError},
    policy::{AttemptFailure, Retry, next_retry_delay},
};

/// A call whose tool is being tried. Lent to the waiting, not given: what is given away is copied on the way.
pub(super) struct Executing {
    context: CallContext,
    slot: CallSlot,
    probe_guard: Option<Box<ProbeGuard>>,
    record: Option<Box<OpenCall>>,
}

/// A call whose tool must run once more, because the states it changed were changed by somebody else.
pub(super) struct Rerun {
    pub(super) context: CallContext,
    pub(super) slot: CallSlot,
    pub(super) record: Option<Box<OpenCall>>,
}

/// The tool's time begins.
pub(super) fn begin(services: &Services, opened: Opened, ticket: &mut Ticket<'_>) -> Executing {
    let Opened { envelope, slot, rate_permit: token, probe_guard: standing, record } = opened;
    let taken = token.spend().filter(|_| record.is_none() && standing.is_none());
    // Where nothing could wait since the rate was asked, the clock was read a moment ago.
    let now = taken.unwrap_or_else(|| services.clock.instant());
    ticket.mark_started(now);
    let times = Times { started_at: now, deadline: deadline(&envelope, now) };
    let context = CallContext::new(envelope, times, slot.downgrade());
    Executing { context, slot, probe_guard: standing, record }
}

/// Runs the tool, and again where that is safe and may help.
pub(super) async fn run(
    services: &Services,
    trying: &mut Executing,
    ticket: &mut Ticket<'_>,
) -> Result<Reply, ToolError> {
    if trying.context.envelope().call.external.is_some() {
        let result = Box::pin(external::wait_for_report(&trying.context, ticket)).await;
        trying.slot.release();
        return result;
    }
    let result = attempt(&trying.context, ticket).await;
    // The slot is free when nobody waits for the tool any more; what follows is ours.
    trying.slot.release();
    // A probe is one try: a tool that may be broken is not asked three times whether it is.
    let probes = trying.probe_guard.as_ref().is_some_and(|standing| standing.is_probe());
    match result {
        Err(failed) if !probes && is_retryable(trying.context.envelope(), &failed) => {
            Box::pin(run_retries(services, trying, failed, ticket)).await
        }
        result => result,
    }
}

impl Executing {
    /// Once more, with the states as they are now. The call has its slot again.
    pub(super) fn rerun(services: &Services, again: Rerun, standing: Option<Box<ProbeGuard>>) -> Self {
        let Rerun { context, slot, record } = again;
        let times = Times { started_at: services.clock.instant(), deadline: context.deadline() };
        let context = CallContext::new(context.envelope().clone(), times, slot.downgrade());
        Self { context, slot, probe_guard: standing, record }
    }

    /// The tool has stopped.
    pub(super) fn done(self, result: Result<Reply, ToolError>) -> Done {
        let Self { context, probe_guard: standing, record, .. } = self;
        let effect = effect_of(context.envelope().tool.definition.annotations.read_only, &result);
        Done { context, probe_guard: standing, record, result, effect, hook_error: None }
    }
}

/// Whether a failure is of the sort that is tried again at all; most are not.
fn is_retryable(envelope: &CallEnvelope, failed: &ToolError) -> bool {
    let limits = &envelope.tool.limits;
    let retryable = failed.retryable.unwrap_or(failed.kind.row().retryable);
    // Without a time of its own for each attempt, a timeout means that there is no time left, unless whoever raised it says
    // that it was another one. And what cannot be stopped may still be at work: a second one beside it would be two.
    let over = failed.kind == ErrorKind::Timeout && limits.attempt_timeout.is_none() && failed.retryable.is_none();
    let still_at_it = failed.kind == ErrorKind::Timeout && !envelope.tool.executor.stops_when_dropped();
    max_attempts(envelope) > 1 && retryable && !over && !still_at_it && !envelope.call.is_cancelled()
}

/// How often the tool is tried at most, counting the first time.
fn max_attempts(envelope: &CallEnvelope) -> u32 {
    envelope.call.retries.map_or(envelope.tool.limits.retry.attempts, |again| again.saturating_add(1))
}

/// Tries again until it works, time or patience is over, or the budget is used up. No slot is held while it waits.
async fn run_retries(
    services: &Services,
    trying: &mut Executing,
    mut failed: ToolError,
    ticket: &mut Ticket<'_>,
) -> Result<Reply, ToolError> {
    loop {
        let (envelope, deadline) = (trying.context.envelope(), trying.context.deadline());
        let desk = &envelope.tool.runtime;
        let Some(wait) = retry_delay(services, envelope, &failed, deadline, ticket) else { return Err(failed) };
        if !is_retryable(envelope, &failed)
            || !desk.retry_budget.try_withdraw(services.clock.instant(), desk.meter.calls() + 1)
        {
            return Err(failed);
        }
        let ripe = clock::deadline_after(services.clock.instant(), wait);
        let cancelled = match &envelope.call.cancel {
            Some(cancel) => cancel.run_until_cancelled(tokio::time::sleep_until(ripe)).await.is_none(),
            None => {
                tokio::time::sleep_until(ripe).await;
                false
            }
        };
        if cancelled {
            return Err(cancelled_between_attempts(&failed));
        }
        let Ok(slot) = admission::reacquire_slot(services, envelope, deadline).await else {
            // Refused a slot, the call ends with the failure it had: that says more than "busy".
            return Err(if envelope.call.is_cancelled() { cancelled_between_attempts(&failed) } else { failed });
        };
        desk.meter.record_retry();
        let times = Times { started_at: services.clock.instant(), deadline };
        trying.context = CallContext::new(envelope.clone(), times, slot.downgrade());
        trying.slot = slot;
        let result = attempt(&trying.context, ticket).await;
        trying.slot.release();
        match result {
            Err(mut again) => {
                // Nothing done this time does not undo what an earlier attempt may have done.
                if again.effect == Some(Effect::None) {
                    again.effect = failed.effect;
                }
                failed = again;
            }
            done => return done,
        }
    }
}

fn cancelled_between_attempts(failed: &ToolError) -> ToolError {
    let end = ToolError::operator_only(ErrorKind::Cancelled, "the caller cancelled the call between two attempts");
    ToolError { effect: failed.effect, ..end }
}

fn retry_delay(
    services: &Services,
    envelope: &CallEnvelope,
    failed: &ToolError,
    deadline: Instant,
    ticket: &Ticket<'_>,
) -> Option<Duration> {
    let annotations = &envelope.tool.definition.annotations;
    let failure = AttemptFailure {
        retryable: failed.retryable.unwrap_or(failed.kind.row().retryable),
        before_effect: failed.effect == Some(Effect::None),
        retry_after: failed.retry_after,
    };
    let left = deadline.saturating_duration_since(services.clock.instant());
    let may_repeat = annotations.read_only || annotations.idempotent;
    let retry = Retry { attempts: max_attempts(envelope), ..envelope.tool.limits.retry.clone() };
    next_retry_delay(&retry, ticket.attempts(), &failure, may_repeat, left, fastrand::f64())
}

/// Runs the tool once. A panic of the tool, even one while it is being dropped, is the tool's failure.
async fn attempt(context: &CallContext, ticket: &mut Ticket<'_>) -> Result<Reply, ToolError> {
    ticket.count_attempt();
    let result = {
        let work = pin!(execute(context));
        catch_panic(work).await
    };
    let result = result.unwrap_or_else(|panic| Err(ToolError::operator_only(ErrorKind::Crashed, panic_text(panic))));
    if result.is_err() {
        context.checkouts().release_locks();
    }
    result
}

/// Waits for work that may panic. It is not moved: what travels here is large, and would be copied.
pub(super) async fn catch_panic<F: Future>(mut work: Pin<&mut F>) -> Result<F::Output, Box<dyn Any + Send>> {
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
        Ok(polled) => polled.map(Ok),
        Err(panic) => Poll::Ready(Err(panic)),
    })
    .await
}

async fn execute(context: &CallContext) -> Result<Reply, ToolError> {
    let envelope = context.envelope();
    if envelope.call.is_cancelled() {
        return Err(
            ToolError::operator_only(ErrorKind::Cancelled, "the caller cancelled the call").effect(Effect::None)
        );
    }
    let job = Job { tool: &envelope.tool.definition, arguments: &envelope.call.arguments, context };
    let unwanted = CancelToolOnDrop(Some(context));
    let work = envelope.tool.executor.execute(job);
    let writes = !envelope.tool.state.names.is_empty() && !envelope.tool.definition.annotations.read_only;
    let work = if writes { state_locks::with_write_locks(context, work) } else { work };
    let result = with_deadline(work, context)
        .await
        .map_err(|cut| if context.is_waiting_to_start() { not_started(cut) } else { cut })?;
    unwanted.disarm();
    result.map(|reply| with_attachments(reply, context))
}

/// A call that was cut off while it waited for its turn or its state: its tool has not begun.
fn not_started(cut: ToolError) -> ToolError {
    let error = match cut.kind {
        ErrorKind::Timeout => ToolError::with_kind(cut.kind, "the time was up before the tool could begin"),
        _ => cut,
    };
    error.effect(Effect::None).uncounted()
}

/// Waits for the work, the caller's cancel or the end of time, whichever is first. Work that is done at the same
/// moment wins.
async fn with_deadline<T>(work: impl Future<Output = T>, context: &CallContext) -> Result<T, ToolError> {
    let mut work = pin!(work);
    // Most tools are done at once. They need neither a timer nor a place in anybody's list.
    if let Poll::Ready(done) = poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await {
        return Ok(done);
    }
    Box::pin(wait_until_deadline(work, context)).await
}

/// The same for work that takes its time.
async fn wait_until_deadline<T>(
    mut work: Pin<&mut impl Future<Output = T>>,
    context: &CallContext,
) -> Result<T, ToolError> {
    let (envelope, began) = (context.envelope(), context.started_at());
    let own = envelope.tool.limits.attempt_timeout.map(|time| clock::deadline_after(began, time));
    let deadline = own.map_or(context.deadline(), |own| own.min(context.deadline()));
    let _with_the_tool = InFlight::begin(&envelope.tool.runtime.meter);
    let idle = envelope.tool.limits.idle_timeout;
    let due = |since: Instant| idle.map_or(deadline, |idle| clock::deadline_after(since, idle).min(deadline));
    let mut timer = pin!(tokio::time::sleep_until(due(began)));
    let cancel = envelope.call.cancel.clone();
    let mut cancelled = pin!(async {
        match cancel {
            Some(token) => token.cancelled_owned().await,
            None => std::future::pending().await,
        }
    });
    poll_fn(|cx| {
        if let Poll::Ready(done) = work.as_mut().poll(cx) {
            return Poll::Ready(Ok(done));
        }
        if cancelled.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(ToolError::operator_only(ErrorKind::Cancelled, "the caller cancelled the call")));
        }
        while timer.as_mut().poll(cx).is_ready() {
            let at = timer.deadline();
            let next = due(context.last_progress_at().unwrap_or(began));
            if next <= at {
                let absolute = at >= deadline;
                return Poll::Ready(Err(timeout_error(envelope, absolute, deadline.saturating_duration_since(began))));
            }
            // The tool has said something meanwhile.
            timer.as_mut().reset(next);
        }
        Poll::Pending
    })
    .await
}

fn timeout_error(envelope: &CallEnvelope, absolute: bool, time: Duration) -> ToolError {
    let limits = &envelope.tool.limits;
    let text = match limits.idle_timeout {
        Some(idle) if !absolute => format!("the tool said nothing for {idle:?}"),
        _ => format!("the tool did not answer within {time:?}"),
    };
    let late = ToolError::with_kind(ErrorKind::Timeout, text);
    // A caller that is in a greater hurry than the tool's owner says nothing about the tool.
    let hurried = envelope.call.timeout.is_some_and(|wanted| wanted < limits.timeout);
    let by_caller = absolute && hurried && limits.attempt_timeout.is_none_or(|own| time < own);
    if by_caller { late.uncounted() } else { late }
}

fn with_attachments(mut reply: Reply, context: &CallContext) -> Reply {
    output::append_content(&mut reply, context.take_attachments());
    reply
}

/// What an execution did to the world, as far as its end tells.
fn effect_of(read_only: bool, result: &Result<Reply, ToolError>) -> Effect {
    match result {
        _ if read_only => Effect::None,
        Ok(_) => Effect::Done,
        Err(error) => error.effect.unwrap_or(Effect::Unknown),
    }
}

/// What a panic said.
pub(super) fn panic_text(panic: Box<dyn Any + Send>) -> String {
    let text = tasks::panic_text(&*panic).map_or_else(|| "it panicked".into(), |text| format!("it panicked: {text}"));
    // What was thrown may panic once more when it is dropped; then it is not dropped.
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(again);
    }
    text
}

/// Tells the tool that nobody waits any more, however the waiting ended: the time is up, the call was cancelled, or
/// the caller dropped everything. Work it gave to others can listen for that.
struct CancelToolOnDrop<'a>(Option<&'a CallContext>);

impl CancelToolOnDrop<'_> {
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for CancelToolOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(context) = self.0 {
            context.cancel_tool();
        }
    }
}

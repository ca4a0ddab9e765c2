//! Stage 12: runs the tool with timeout, cancellation and retries.
//!
//! In: an opened call. Out: a reply or a failure, and what is known about the effect. A panic of the tool is caught
//! here and becomes a failure of the tool. `policy/retry.rs` decides whether and when a failed attempt is retried.

use std::{
    any::Any,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use super::{
    CallSlot, Done, Opened, admission, close::to_call_error, deadline, external, output, state_locks, ticket::Ticket,
};
use crate::{
    execution::{AttemptTimes, CallContext, CallEnvelope, Job, Reply, Tool},
    journal::OpenCall,
    monitor::{InFlight, Polling},
    services::Services,
    statuses::ProbeGuard,
    tasks,
};
use toolhub_storage::clock::{self, Instant};
use toolhub_types::{
    effect::Effect,
    error::{CallError, ErrorKind, ToolError},
    policy::{AttemptFailure, Retry, next_retry_delay},
};

/// A call whose tool is executing. The attempt futures borrow it, because moving it into them would copy it.
pub(super) struct Executing {
    context: CallContext,
    slot: CallSlot,
    probe_guard: Option<Box<ProbeGuard>>,
    record: Option<Arc<OpenCall>>,
}

/// A call whose tool must run again, because the states it changed were written concurrently.
pub(super) struct Rerun {
    pub(super) context: CallContext,
    pub(super) slot: CallSlot,
    pub(super) record: Option<Arc<OpenCall>>,
}

/// Starts the call's deadline.
pub(super) fn begin(services: &Services, opened: Opened, ticket: &mut Ticket<'_>) -> Executing {
    let Opened { envelope, slot, rate_permit, probe_guard, record } = opened;
    // If nothing was awaited since the rate permit was taken, its time is still current and the clock is not read
    // again.
    let taken_at = rate_permit.spend().filter(|_| record.is_none() && probe_guard.is_none());
    let now = taken_at.unwrap_or_else(|| services.clock.instant());
    ticket.mark_started(now);
    let times = AttemptTimes { started_at: now, deadline: deadline(&envelope, now) };
    let context = CallContext::new(envelope, times, slot.downgrade());
    Executing { context, slot, probe_guard, record }
}

/// Runs the tool, and retries it where that is safe and may help.
pub(super) async fn run(
    services: &Services,
    executing: &mut Executing,
    ticket: &mut Ticket<'_>,
) -> Result<Reply, ToolError> {
    if executing.context.envelope().call.external.is_some() {
        let result = Box::pin(external::wait_for_report(&executing.context, ticket)).await;
        executing.slot.release();
        return result;
    }
    let result = attempt(&executing.context, ticket).await;
    // The slot covers the tool's own execution; the rest of the pipeline does not need it.
    executing.slot.release();
    // A half-open probe is a single attempt: a tool that may be broken is not retried.
    let is_probe = executing.probe_guard.as_ref().is_some_and(|probe_guard| probe_guard.is_probe());
    match result {
        Err(failure) if !is_probe && is_retryable(executing.context.envelope(), &failure) => {
            Box::pin(run_retries(services, executing, failure, ticket)).await
        }
        result => result,
    }
}

impl Executing {
    /// Prepares a rerun on the current states. The call has reacquired its slot.
    pub(super) fn rerun(
        services: &Services,
        rerun: Rerun,
        probe_guard: Option<Box<ProbeGuard>>,
        ticket: &mut Ticket<'_>,
    ) -> Self {
        let Rerun { context, slot, record } = rerun;
        let now = services.clock.instant();
        let conflict = CallError::new(ErrorKind::StateConflict).operator("the state was written concurrently");
        ticket.mark_attempt_failed(context.started_at(), now, &conflict);
        ticket.mark_next_attempt(now);
        let times = AttemptTimes { started_at: now, deadline: context.deadline() };
        let context = CallContext::new(context.envelope().clone(), times, slot.downgrade());
        Self { context, slot, probe_guard, record }
    }

    pub(super) fn context(&self) -> &CallContext {
        &self.context
    }

    /// The next stage's value, with the tool's result.
    pub(super) fn done(self, result: Result<Reply, ToolError>) -> Done {
        let Self { context, probe_guard, record, .. } = self;
        // A process that died may have started the call before.
        let was_started_before = record.as_ref().is_some_and(|open| open.start_count() > 1);
        let effect = effect_of(&context.envelope().tool, was_started_before, &result);
        Done { context, probe_guard, record, result, effect, hook_error: None }
    }
}

/// Whether a failure can be retried at all; most cannot.
fn is_retryable(envelope: &CallEnvelope, failure: &ToolError) -> bool {
    let limits = &envelope.tool.limits;
    let retryable = failure.retryable.unwrap_or(failure.kind.row().retryable);
    // Without an attempt timeout, a timeout means that the call's deadline has passed, unless the error is explicitly
    // marked retryable, which means that the tool itself raised it.
    let deadline_passed =
        failure.kind == ErrorKind::Timeout && limits.attempt_timeout.is_none() && failure.retryable.is_none();
    // Work that cannot be stopped may still be running: a retry would run beside it.
    let may_still_run = failure.kind == ErrorKind::Timeout && !envelope.tool.executor.stops_when_dropped();
    max_attempts(envelope) > 1 && retryable && !deadline_passed && !may_still_run && !envelope.call.is_cancelled()
}

/// The maximum number of attempts, including the first.
fn max_attempts(envelope: &CallEnvelope) -> u32 {
    envelope.call.retries.map_or(envelope.tool.limits.retry.attempts, |retries| retries.saturating_add(1))
}

/// Retries until an attempt succeeds, the deadline or the maximum of attempts is reached, or the retry budget is
/// exhausted. The call holds no slot during the backoff.
async fn run_retries(
    services: &Services,
    executing: &mut Executing,
    mut failure: ToolError,
    ticket: &mut Ticket<'_>,
) -> Result<Reply, ToolError> {
    loop {
        let (envelope, deadline) = (executing.context.envelope(), executing.context.deadline());
        let error = to_call_error(envelope, failure.clone());
        ticket.mark_attempt_failed(executing.context.started_at(), services.clock.instant(), &error);
        let runtime = &envelope.tool.runtime;
        let Some(delay) = retry_delay(services, envelope, &failure, deadline, ticket) else { return Err(failure) };
        if !is_retryable(envelope, &failure) {
            return Err(failure);
        }
        if !runtime.retry_budget.try_withdraw(services.clock.instant(), runtime.meter.calls() + 1) {
            return Err(failure.with_cause("not retried, because the retry budget of the tool is used up"));
        }
        let retry_at = clock::deadline_after(services.clock.instant(), delay);
        let cancelled = match &envelope.call.cancel {
            Some(cancel) => cancel.run_until_cancelled(tokio::time::sleep_until(retry_at)).await.is_none(),
            None => {
                tokio::time::sleep_until(retry_at).await;
                false
            }
        };
        if cancelled {
            return Err(cancelled_between_attempts(&failure));
        }
        let Ok(slot) = admission::reacquire_slot(services, envelope, deadline).await else {
            // Without a slot the call ends with the failure of its last attempt, which says more than "overloaded".
            return Err(if envelope.call.is_cancelled() { cancelled_between_attempts(&failure) } else { failure });
        };
        runtime.meter.record_retry();
        let started_at = services.clock.instant();
        ticket.mark_next_attempt(started_at);
        let times = AttemptTimes { started_at, deadline };
        executing.context = CallContext::new(envelope.clone(), times, slot.downgrade());
        executing.slot = slot;
        let result = attempt(&executing.context, ticket).await;
        executing.slot.release();
        match result {
            Err(mut latest) => {
                // An attempt without effect does not undo the effect an earlier attempt may have had.
                if latest.effect == Some(Effect::None) {
                    latest.effect = failure.effect;
                }
                failure = latest;
            }
            success => return success,
        }
    }
}

fn cancelled_between_attempts(failure: &ToolError) -> ToolError {
    let end = ToolError::operator_only(ErrorKind::Cancelled, "the caller cancelled the call between two attempts");
    ToolError { effect: failure.effect, ..end }
}

fn retry_delay(
    services: &Services,
    envelope: &CallEnvelope,
    failure: &ToolError,
    deadline: Instant,
    ticket: &Ticket<'_>,
) -> Option<Duration> {
    let annotations = &envelope.tool.definition.annotations;
    let failure = AttemptFailure {
        retryable: failure.retryable.unwrap_or(failure.kind.row().retryable),
        before_effect: failure.effect == Some(Effect::None),
        retry_after: failure.retry_after,
    };
    let remaining = deadline.saturating_duration_since(services.clock.instant());
    let may_repeat = annotations.read_only || annotations.idempotent;
    let retry = Retry { attempts: max_attempts(envelope), ..envelope.tool.limits.retry.clone() };
    next_retry_delay(&retry, ticket.attempts(), &failure, may_repeat, remaining, fastrand::f64())
}

/// Runs the tool once. A panic of the tool, even in a drop, is a failure of the tool.
async fn attempt(context: &CallContext, ticket: &mut Ticket<'_>) -> Result<Reply, ToolError> {
    ticket.count_attempt();
    let mut connection = context.hold_connection();
    let result = {
        let mut work = pin!(execute(context));
        let meter = &context.envelope().tool.runtime.meter;
        let watched = pin!(poll_fn(|cx| {
            let _poll = Polling::begin(meter);
            work.as_mut().poll(cx)
        }));
        catch_panic(watched).await
    };
    let result = result.unwrap_or_else(|panic| Err(ToolError::operator_only(ErrorKind::Crashed, panic_text(panic))));
    if let Err(error) = &result {
        context.checkouts().release_locks();
        if let Some(connection) = &mut connection {
            connection.fail(&error.to_string());
        }
    }
    result
}

/// Awaits work that may panic. The work is pinned by reference, because these futures are large and moving them copies
/// them.
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
    let arguments = envelope.call.arguments.to_value();
    let job = Job { tool: &envelope.tool.definition, arguments: &arguments, context };
    let cancel_guard = CancelToolOnDrop(Some(context));
    let work = envelope.tool.executor.execute(job);
    let writes = !envelope.tool.state.names.is_empty() && !envelope.tool.definition.annotations.read_only;
    let work = if writes { state_locks::with_write_locks(context, work) } else { work };
    let result = with_deadline(work, context)
        .await
        .map_err(|error| if context.is_waiting_to_start() { not_started(error) } else { error })?;
    cancel_guard.disarm();
    result.map(|reply| with_attachments(reply, context))
}

/// The error of a call that timed out or was cancelled while it waited for a slot or a state lock: the tool has not
/// started.
fn not_started(error: ToolError) -> ToolError {
    let error = match error.kind {
        ErrorKind::Timeout => ToolError::with_kind(error.kind, "the call timed out before the tool could start"),
        _ => error,
    };
    error.effect(Effect::None).uncounted()
}

/// Waits for the work, the caller's cancellation or the deadline, whichever comes first. Work that completes in the
/// same poll wins.
async fn with_deadline<T>(work: impl Future<Output = T>, context: &CallContext) -> Result<T, ToolError> {
    let mut work = pin!(work);
    // Most tools complete on the first poll. They need neither a timer nor a cancellation waiter.
    if let Poll::Ready(done) = poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await {
        return Ok(done);
    }
    Box::pin(wait_until_deadline(work, context)).await
}

/// The same for work that did not complete on the first poll.
async fn wait_until_deadline<T>(
    mut work: Pin<&mut impl Future<Output = T>>,
    context: &CallContext,
) -> Result<T, ToolError> {
    let (envelope, started_at) = (context.envelope(), context.started_at());
    let deadline = || context.attempt_deadline(envelope.tool.limits.attempt_timeout);
    let _in_flight = InFlight::begin(&envelope.tool.runtime.meter);
    let idle = envelope.tool.limits.idle_timeout;
    let due = |since: Instant| idle.map_or(deadline(), |idle| clock::deadline_after(since, idle).min(deadline()));
    let mut timer = pin!(tokio::time::sleep_until(due(started_at)));
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
            let fired_at = timer.deadline();
            let next = due(context.idle_since().unwrap_or(started_at));
            if next <= fired_at {
                let deadline = deadline();
                let absolute = fired_at >= deadline;
                return Poll::Ready(Err(timeout_error(
                    context,
                    absolute,
                    deadline.saturating_duration_since(started_at),
                )));
            }
            // The tool has reported progress, or has asked its caller, meanwhile.
            timer.as_mut().reset(next);
        }
        Poll::Pending
    })
    .await
}

fn timeout_error(context: &CallContext, absolute: bool, time: Duration) -> ToolError {
    let envelope = context.envelope();
    let limits = &envelope.tool.limits;
    let text = match limits.idle_timeout {
        Some(idle) if !absolute => format!("the tool reported no progress for {idle:?}"),
        _ => format!("the tool did not answer within {time:?}"),
    };
    let error = ToolError::with_kind(ErrorKind::Timeout, text);
    // A caller's timeout that is shorter than the tool's own says nothing about the tool.
    let caller_is_shorter = envelope.call.timeout.is_some_and(|requested| requested < limits.timeout);
    let by_caller = absolute && caller_is_shorter && limits.attempt_timeout.is_none_or(|attempt| time < attempt);
    if by_caller || !context.timeouts_count() { error.uncounted() } else { error }
}

fn with_attachments(mut reply: Reply, context: &CallContext) -> Reply {
    output::append_content(&mut reply, context.take_attachments());
    reply
}

/// The effect of a call, as far as the result of its last execution tells.
fn effect_of(tool: &Tool, was_started_before: bool, result: &Result<Reply, ToolError>) -> Effect {
    match result {
        _ if tool.definition.annotations.read_only => Effect::None,
        Ok(_) => Effect::Done,
        Err(ToolError { effect: Some(Effect::None), .. }) if was_started_before => Effect::Unknown,
        Err(error) => error.effect.unwrap_or(Effect::Unknown),
    }
}

/// The text of a panic.
pub(super) fn panic_text(panic: Box<dyn Any + Send>) -> String {
    let text = tasks::panic_text(&*panic).map_or_else(|| "it panicked".into(), |text| format!("it panicked: {text}"));
    // The payload may panic in its own drop; the payload of that panic is leaked.
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(second);
    }
    text
}

/// Cancels the tool's token when the attempt ends without a result: by timeout, by cancellation, or because the caller
/// dropped the future. Work that the tool has spawned can watch that token.
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

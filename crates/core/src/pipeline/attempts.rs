//! Door 12: runs the tool, for as long as there is time and somebody wants the result.
//!
//! In: an opened call. Out: a reply or a failure, and what is known about the effect. A panic is caught here and is the
//! tool's failure, not ours.

use std::{
    any::Any,
    future::{Future, poll_fn},
    panic::AssertUnwindSafe,
    pin::{Pin, pin},
    task::Poll,
};

use futures_util::FutureExt;

use super::{Done, Opened, Way, deadline, ticket::Ticket};
use crate::{
    call::Effect,
    clock::{self, Instant},
    context::CallContext,
    error::{ErrorKind, ToolError},
    executor::{Job, Reply},
    services::Services,
};

pub(super) async fn run(services: &Services, opened: Opened, ticket: &mut Ticket<'_>) -> Done {
    let Opened { way, slot, standing, record } = opened;
    let now = services.clock.instant();
    ticket.begin(now);
    let deadline = deadline(&way, now);
    let context = CallContext::new(way, deadline);
    ticket.attempt();
    context.desk().clear();
    // A panic of the tool, even one while it is being dropped, is the tool's failure.
    let result = AssertUnwindSafe(attempt(&context, deadline)).catch_unwind().await;
    let result = result.unwrap_or_else(|panic| Err(ToolError::hidden(ErrorKind::Crashed, panic_text(panic))));
    // The slot is free when nobody waits for the tool any more; what follows is ours.
    slot.give_back();
    let effect = effect(context.way().tool.definition.annotations.read_only, &result);
    Done { context, standing, record, result, effect }
}

/// Runs the tool once.
async fn attempt(context: &CallContext, deadline: Instant) -> Result<Reply, ToolError> {
    let way = context.way();
    if way.call.is_cancelled() {
        return Err(ToolError::hidden(ErrorKind::Cancelled, "the caller cancelled the call").effect(Effect::None));
    }
    let job = Job { tool: &way.tool.definition, arguments: &way.call.arguments, context };
    let unwanted = Unwanted(Some(context));
    let result = within(way.tool.executor.execute(job), context, deadline).await?;
    unwanted.disarm();
    result.map(|reply| with_attached(reply, context))
}

/// Waits for the work, the caller's cancel or the end of time, whichever is first. Work that is done at the same
/// moment wins.
async fn within<T>(work: impl Future<Output = T>, context: &CallContext, deadline: Instant) -> Result<T, ToolError> {
    let mut work = pin!(work);
    // Most tools are done at once. They need neither a timer nor a place in anybody's list.
    if let Poll::Ready(done) = poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await {
        return Ok(done);
    }
    Box::pin(wait(work, context, deadline)).await
}

/// The same for work that takes its time.
async fn wait<T>(
    mut work: Pin<&mut impl Future<Output = T>>,
    context: &CallContext,
    deadline: Instant,
) -> Result<T, ToolError> {
    let way = context.way();
    let idle = way.tool.limits.idle_timeout;
    let due = |since: Instant| idle.map_or(deadline, |idle| clock::after(since, idle).min(deadline));
    let began = context.services().clock.instant();
    let mut timer = pin!(tokio::time::sleep_until(due(began)));
    let cancel = way.call.cancel.clone();
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
            return Poll::Ready(Err(ToolError::hidden(ErrorKind::Cancelled, "the caller cancelled the call")));
        }
        while timer.as_mut().poll(cx).is_ready() {
            let at = timer.deadline();
            let next = due(context.last_heard().unwrap_or(began));
            if next <= at {
                return Poll::Ready(Err(late(way, at >= deadline)));
            }
            // The tool has said something meanwhile.
            timer.as_mut().reset(next);
        }
        Poll::Pending
    })
    .await
}

fn late(way: &Way, absolute: bool) -> ToolError {
    let limits = &way.tool.limits;
    let text = match limits.idle_timeout {
        Some(idle) if !absolute => format!("the tool said nothing for {idle:?}"),
        _ => {
            let time = way.call.timeout.map_or(limits.timeout, |wanted| wanted.min(limits.timeout));
            format!("the tool did not answer within {time:?}")
        }
    };
    ToolError::of(ErrorKind::Timeout, text)
}

fn with_attached(mut reply: Reply, context: &CallContext) -> Reply {
    let attached = context.take_attached();
    if !attached.is_empty() {
        if reply.content.is_empty() && !reply.output.is_null() {
            reply.content.push(super::output::as_content(&reply.output));
        }
        reply.content.extend(attached);
    }
    reply
}

/// What an execution did to the world, as far as its end tells.
fn effect(read_only: bool, result: &Result<Reply, ToolError>) -> Effect {
    match result {
        _ if read_only => Effect::None,
        Ok(_) => Effect::Done,
        Err(error) => error.effect.unwrap_or(Effect::Unknown),
    }
}

/// What a panic said.
pub(super) fn panic_text(panic: Box<dyn Any + Send>) -> String {
    let said = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text = said.map_or_else(|| "it panicked".into(), |text| format!("it panicked: {text}"));
    // What was thrown may panic once more when it is dropped; then it is not dropped.
    if let Err(again) = std::panic::catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(again);
    }
    text
}

/// Tells the tool that nobody waits any more, however the waiting ended: the time is up, the call was cancelled, or
/// the caller dropped everything. Work it gave to others can listen for that.
struct Unwanted<'a>(Option<&'a CallContext>);

impl Unwanted<'_> {
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for Unwanted<'_> {
    fn drop(&mut self) {
        if let Some(context) = self.0 {
            context.stop();
        }
    }
}

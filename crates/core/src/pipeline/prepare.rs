//! Makes ready what a tool keeps in a thread, before the first call comes.
//!
//! In: a call without arguments. Out: nothing, or the failure a call would have had. It passes the doors that are about the
//! tool and its turn; those about arguments, answers and records have nothing to look at. Success says nothing about the
//! tool, for it has not run; a failure is told to its status like any other.

use std::{panic::AssertUnwindSafe, sync::Arc};

use futures_util::FutureExt;

use super::{
    Allowed, Done, Placed, Submission, admission, attempts::panic_text, close, deadline, resolve_call, status,
};
use crate::{
    engine::Engine,
    execution::{CallContext, Reply, Times, Tool},
};
use toolhub_types::{
    effect::Effect,
    error::{CallError, ErrorKind, ToolError},
    event_kind::EventKind,
};

pub(crate) async fn prepare(engine: &Arc<Engine>, call: Submission) -> Result<(), CallError> {
    let found = resolve_call(engine, call).map_err(|refused| refused.error)?;
    status::pre_check(&engine.statuses, &found)?;
    let tool = &found.0.tool;
    if let Some(rule) = tool.gate.deny_all_rule(&tool.definition) {
        let text = format!("a rule forbids every call of `{}`: {}", tool.definition.name, rule.label());
        return Err(CallError::new(ErrorKind::Forbidden).operator(text));
    }
    let Placed { envelope, slot, rate_permit: token, .. } = match admission::admit(&engine.services, Allowed(found.0))?
    {
        admission::Placement::Ready(placed) => placed,
        admission::Placement::Pending(turn) => turn.await?,
    };
    token.spend();
    let began = engine.services.clock.instant();
    let deadline = deadline(&envelope, began);
    let context = CallContext::new(envelope, Times { started_at: began, deadline }, slot.downgrade());
    let preparing = AssertUnwindSafe(prepare_tool(&context)).catch_unwind();
    let result = match tokio::time::timeout_at(deadline, preparing).await {
        Ok(Ok(result)) => result,
        Ok(Err(panic)) => Err(ToolError::operator_only(ErrorKind::Crashed, panic_text(panic))),
        Err(_) => Err(ToolError::with_kind(ErrorKind::Timeout, "the tool was not ready in time")),
    };
    drop(slot);
    let Err(failed) = result else { return Ok(()) };
    Err(report_failure(engine, context, failed).await)
}

/// The contexts of its states, then what its executor keeps.
async fn prepare_tool(context: &CallContext) -> Result<(), ToolError> {
    let Tool { state, executor, .. } = &*context.envelope().tool;
    if let Some(thread) = context.thread() {
        for name in &state.names {
            let made = context.services().state.create_context(context.tenant(), name, thread).await;
            made.map_err(|error| ToolError::operator_only(error.kind(), error.to_string()))?;
        }
    }
    executor.prepare(context).await
}

/// Tells the tool's status of the failure; answers what the caller sees of it.
async fn report_failure(engine: &Engine, context: CallContext, failed: ToolError) -> CallError {
    let error = close::to_call_error(context.envelope(), failed.clone());
    let services = &engine.services;
    if services.events.has_subscribers() {
        let (tool_name, message) = (context.tool().clone(), error.operator.clone());
        let news = EventKind::ToolFailed { tool_name, error: error.kind, counts: error.counts, message };
        services.events.emit_for_tenant(services.clock.now(), context.tenant(), context.thread(), news);
    }
    let result = Err::<Reply, _>(failed);
    let mut done = Done { context, probe_guard: None, record: None, result, effect: Effect::None, hook_error: None };
    if let Some(verdict) = status::verdict(&engine.statuses, &mut done) {
        let (standing, verdict) = *verdict;
        // The failure stands. If the store does not answer, the tool keeps the status it has.
        let _ = standing.report(verdict).await;
    }
    error
}

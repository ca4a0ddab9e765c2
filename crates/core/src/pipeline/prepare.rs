//! Warms up a tool in a thread before the first call: creates its state contexts and its instance.
//!
//! In: a call without arguments. Out: nothing, or the failure a call would have had. It passes the stages that concern
//! the tool and admission; those about arguments, cached results and records do not apply. A success does not count for
//! the tool's status, because the tool has not run; a failure is reported to it like any other.

use std::{panic::AssertUnwindSafe, sync::Arc};

use futures_util::FutureExt;

use super::{
    Allowed, Done, Placed, Submission, admission, attempts::panic_text, close, deadline, resolve_call, status,
};
use crate::{
    engine::Engine,
    execution::{AttemptTimes, CallContext, Reply, Tool},
};
use toolhub_types::{
    effect::Effect,
    error::{CallError, ErrorKind, ToolError},
    event_kind::{EventClass, EventKind},
};

pub(crate) async fn prepare(engine: &Arc<Engine>, call: Submission) -> Result<(), CallError> {
    let found = resolve_call(engine, call).map_err(|refused| refused.error)?;
    status::pre_check(&engine.statuses, &found)?;
    let tool = &found.0.tool;
    if let Some(rule) = tool.gate.deny_all_rule(&tool.definition, None) {
        let text = format!("a rule forbids every call of `{}`: {}", tool.definition.name, rule.label());
        return Err(CallError::new(ErrorKind::Forbidden).operator(text));
    }
    let Placed { envelope, slot, rate_permit, .. } = match admission::admit(&engine.services, Allowed(found.0))? {
        admission::Placement::Ready(placed) => placed,
        admission::Placement::Pending(slot_wait) => slot_wait.await?,
    };
    rate_permit.spend();
    let started_at = engine.services.clock.instant();
    let deadline = deadline(&envelope, started_at);
    let context = CallContext::new(envelope, AttemptTimes { started_at, deadline }, slot.downgrade());
    let preparing = AssertUnwindSafe(prepare_tool(&context)).catch_unwind();
    let result = match tokio::time::timeout_at(deadline, preparing).await {
        Ok(Ok(result)) => result,
        Ok(Err(panic)) => Err(ToolError::operator_only(ErrorKind::Crashed, panic_text(panic))),
        Err(_) => Err(ToolError::with_kind(ErrorKind::Timeout, "preparing the tool timed out")),
    };
    drop(slot);
    let Err(failure) = result else { return Ok(()) };
    Err(report_failure(engine, context, failure).await)
}

/// Creates the contexts of the tool's states, then lets its executor prepare.
async fn prepare_tool(context: &CallContext) -> Result<(), ToolError> {
    let Tool { state, executor, .. } = &*context.envelope().tool;
    if let Some(thread) = context.thread() {
        for name in &state.names {
            let created = context.services().state.create_context(context.tenant(), name, thread).await;
            created.map_err(|error| ToolError::operator_only(error.kind(), error.to_string()))?;
        }
    }
    executor.prepare(context).await
}

/// Reports the failure to the tool's status; returns the error for the caller.
async fn report_failure(engine: &Engine, context: CallContext, failure: ToolError) -> CallError {
    let error = close::to_call_error(context.envelope(), failure.clone());
    let services = &engine.services;
    if services.events.has_subscribers(EventClass::Calls) {
        let (tool_name, message) = (context.tool().clone(), error.operator.clone());
        let event = EventKind::ToolFailed { tool_name, error: error.kind, counts: error.counts, message };
        services.events.emit_for_tenant(services.clock.now(), context.tenant(), context.thread(), event);
    }
    let result = Err::<Reply, _>(failure);
    let mut done = Done { context, probe_guard: None, record: None, result, effect: Effect::None, hook_error: None };
    if let Some(verdict) = status::verdict(&engine.statuses, &mut done) {
        let (probe_guard, verdict) = *verdict;
        // The caller gets the failure in any case. If the store does not answer, the tool keeps its current status.
        let _ = probe_guard.report(verdict).await;
    }
    error
}

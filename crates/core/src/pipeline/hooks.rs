//! Stages 5 and 13: runs the hooks of a tool before and after a call.
//!
//! In: the hooks of the call's tool. Out: the call as they left it, or a refusal. A hook that fails, panics or times
//! out refuses the call; after the tool has run, it withholds the result.

use std::{future::Future, panic::AssertUnwindSafe, time::Duration};

use futures_core::future::BoxFuture;
use futures_util::FutureExt;
use serde_json::Value;

use super::{Done, Found, attempts::panic_text, output};
use crate::{
    execution::CallEnvelope,
    hooks::{AfterDecision, BeforeDecision, HookedCall},
};
use toolhub_types::{
    content::Content,
    error::{CallError, ErrorKind, ToolError},
};

/// How long one hook may take.
const HOOK_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs the before-hooks, which may block the call or rewrite its arguments. Validation comes afterwards.
pub(super) async fn before(found: Found) -> Result<Found, CallError> {
    if found.0.tool.hooks.is_empty() || found.0.is_resumed() { Ok(found) } else { Box::pin(run_before(found)).await }
}

async fn run_before(found: Found) -> Result<Found, CallError> {
    let Found(mut envelope) = found;
    for hook in envelope.tool.hooks.clone() {
        let decision = {
            let arguments = envelope.call.arguments.to_value();
            let call = hooked_call(&envelope, &arguments);
            let decision = guard_hook(async || match &envelope.call.cancel {
                None => hook.before(&call).await.map(Some),
                Some(cancel) => cancel.run_until_cancelled(hook.before(&call)).await.transpose(),
            });
            decision.await
        };
        match decision {
            Ok(Some(BeforeDecision::Pass)) => {}
            Ok(Some(BeforeDecision::Block(reason))) => return Err(blocked(&envelope, &reason)),
            Ok(Some(BeforeDecision::Rewrite(arguments))) => envelope.call.arguments = arguments.into(),
            Ok(Some(BeforeDecision::AddNote(text))) => envelope.extras_mut().notes.push(text),
            Ok(None) => return Err(CallError::new(ErrorKind::Cancelled)),
            // The hook was dropped because of the cancellation, and panicked in its drop.
            Err(_) if envelope.call.is_cancelled() => return Err(CallError::new(ErrorKind::Cancelled)),
            Err(error) => {
                let name = &envelope.tool.definition.name;
                return Err(forbidden().operator(format!("a hook before `{name}` failed: {error}")));
            }
        }
    }
    Ok(Found(envelope))
}

/// Runs the after-hooks, which may withhold or rewrite the result, then appends all notes. Returns a future only when
/// there are hooks or notes.
pub(super) fn after(done: &mut Done) -> Option<BoxFuture<'_, ()>> {
    let envelope = done.context.envelope();
    if envelope.tool.hooks.is_empty() && envelope.notes().is_empty() { None } else { Some(Box::pin(run_after(done))) }
}

async fn run_after(done: &mut Done) {
    let envelope = done.context.envelope();
    let mut notes = envelope.notes().to_vec();
    let arguments = envelope.call.arguments.to_value();
    for hook in &envelope.tool.hooks {
        let call = hooked_call(envelope, &arguments);
        let result = done.result.as_ref().map(|reply| &reply.output);
        match guard_hook(|| hook.after(&call, result)).await {
            Ok(AfterDecision::Pass) => {}
            Ok(AfterDecision::Block(reason)) => {
                done.hook_error = Some(Box::new(blocked(envelope, &reason)));
                break;
            }
            Ok(AfterDecision::Rewrite(output)) => {
                if let Ok(reply) = &mut done.result {
                    // The content pieces were made from the old output and would still show it.
                    (reply.output, reply.content) = (output, Vec::new());
                }
            }
            Ok(AfterDecision::AddNote(text)) => notes.push(text),
            Err(error) => {
                let name = &envelope.tool.definition.name;
                let error = forbidden()
                    .operator(format!("a hook after `{name}` failed: {error}"))
                    .model("The tool ran, but its result is withheld.");
                done.hook_error = Some(Box::new(error));
                break;
            }
        }
    }
    if let Ok(reply) = &mut done.result {
        output::append_content(reply, notes.into_iter().map(Content::text));
    }
}

/// Runs a hook with a timeout; a timeout or a panic is an error.
async fn guard_hook<F, T>(hook: impl FnOnce() -> F) -> Result<T, ToolError>
where
    F: Future<Output = Result<T, ToolError>>,
{
    // `catch_unwind` is outermost, because a hook that timed out may panic when it is dropped.
    let guarded = AssertUnwindSafe(async { tokio::time::timeout(HOOK_TIMEOUT, async { hook().await }).await });
    match guarded.catch_unwind().await {
        Ok(Ok(decision)) => decision,
        Ok(Err(_)) => Err(ToolError::new(format!("it did not answer within {HOOK_TIMEOUT:?}"))),
        Err(panic) => Err(ToolError::new(panic_text(panic))),
    }
}

fn hooked_call<'a>(envelope: &'a CallEnvelope, arguments: &'a Value) -> HookedCall<'a> {
    let CallEnvelope { call, tool, .. } = envelope;
    HookedCall {
        id: call.id,
        tool: &tool.definition,
        arguments,
        tenant: &call.tenant,
        caller: &call.caller,
        thread: call.thread.as_ref(),
        run: call.run,
    }
}

fn blocked(envelope: &CallEnvelope, reason: &str) -> CallError {
    forbidden().operator(format!("a hook blocks `{}`: {reason}", envelope.tool.definition.name)).model(reason)
}

fn forbidden() -> CallError {
    CallError::new(ErrorKind::Forbidden)
}

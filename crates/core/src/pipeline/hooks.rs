//! Doors 5 and 13: the owner's own code before and after a call.
//!
//! In: the hooks of the call's tool. Out: the call as they left it, or a refusal. A hook that errs, panics or takes too
//! long refuses the call; after the tool has run it withholds the result.

use std::{future::Future, panic::AssertUnwindSafe, time::Duration};

use futures_core::future::BoxFuture;
use futures_util::FutureExt;

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

/// May block the call or rewrite its arguments; they are validated afterwards.
pub(super) async fn before(found: Found) -> Result<Found, CallError> {
    if found.0.tool.hooks.is_empty() || found.0.is_rerun() { Ok(found) } else { Box::pin(run_before(found)).await }
}

async fn run_before(found: Found) -> Result<Found, CallError> {
    let Found(mut envelope) = found;
    for hook in envelope.tool.hooks.clone() {
        let call = hooked_call(&envelope);
        let said = guard_hook(async || match &envelope.call.cancel {
            None => hook.before(&call).await.map(Some),
            Some(cancel) => cancel.run_until_cancelled(hook.before(&call)).await.transpose(),
        });
        match said.await {
            Ok(Some(BeforeDecision::Pass)) => {}
            Ok(Some(BeforeDecision::Block(why))) => return Err(blocked(&envelope, &why)),
            Ok(Some(BeforeDecision::Rewrite(arguments))) => envelope.call.arguments = arguments,
            Ok(Some(BeforeDecision::AddNote(text))) => envelope.extras_mut().notes.push(text),
            Ok(None) => return Err(CallError::new(ErrorKind::Cancelled)),
            // It was given up with its caller, and fell over that.
            Err(_) if envelope.call.is_cancelled() => return Err(CallError::new(ErrorKind::Cancelled)),
            Err(error) => {
                let name = &envelope.tool.definition.name;
                return Err(forbidden().operator(format!("a hook before `{name}` failed: {error}")));
            }
        }
    }
    Ok(Found(envelope))
}

/// May withhold or rewrite what the tool returned. Then everything is said that is to be said beside the result. Waits only
/// where there is something to ask or to say.
pub(super) fn after(done: &mut Done) -> Option<BoxFuture<'_, ()>> {
    let envelope = done.context.envelope();
    if envelope.tool.hooks.is_empty() && envelope.notes().is_empty() { None } else { Some(Box::pin(run_after(done))) }
}

async fn run_after(done: &mut Done) {
    let envelope = done.context.envelope();
    let mut said = envelope.notes().to_vec();
    for hook in &envelope.tool.hooks {
        let call = hooked_call(envelope);
        let result = done.result.as_ref().map(|reply| &reply.output);
        match guard_hook(|| hook.after(&call, result)).await {
            Ok(AfterDecision::Pass) => {}
            Ok(AfterDecision::Block(why)) => {
                done.hook_error = Some(Box::new(blocked(envelope, &why)));
                break;
            }
            Ok(AfterDecision::Rewrite(output)) => {
                if let Ok(reply) = &mut done.result {
                    // The pieces were made of the old output and would still show it.
                    (reply.output, reply.content) = (output, Vec::new());
                }
            }
            Ok(AfterDecision::AddNote(text)) => said.push(text),
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
        output::append_content(reply, said.into_iter().map(Content::text));
    }
}

/// Waits for a hook, but not for ever; whatever goes wrong with it is an error.
async fn guard_hook<F, T>(ask: impl FnOnce() -> F) -> Result<T, ToolError>
where
    F: Future<Output = Result<T, ToolError>>,
{
    // Around everything: a hook that took too long may panic once more when it is dropped.
    let asked = AssertUnwindSafe(async { tokio::time::timeout(HOOK_TIMEOUT, async { ask().await }).await });
    match asked.catch_unwind().await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => Err(ToolError::new(format!("it did not answer within {HOOK_TIMEOUT:?}"))),
        Err(panic) => Err(ToolError::new(panic_text(panic))),
    }
}

fn hooked_call(envelope: &CallEnvelope) -> HookedCall<'_> {
    let CallEnvelope { call, tool, .. } = envelope;
    HookedCall {
        id: call.id,
        tool: &tool.definition,
        arguments: &call.arguments,
        tenant: &call.tenant,
        caller: &call.caller,
        thread: call.thread.as_ref(),
        run: call.run,
    }
}

fn blocked(envelope: &CallEnvelope, why: &str) -> CallError {
    forbidden().operator(format!("a hook blocks `{}`: {why}", envelope.tool.definition.name)).model(why)
}

fn forbidden() -> CallError {
    CallError::new(ErrorKind::Forbidden)
}

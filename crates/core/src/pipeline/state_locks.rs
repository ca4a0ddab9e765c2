//! Runs a tool with the write locks of its states held.
//!
//! In: a context and the work. Out: its result, or a refusal where a call around this one holds one of the locks. The locks stay
//! with the call's checked-out states until those are committed or released.

use futures_core::future::BoxFuture;

use crate::{
    execution::{CallContext, Reply},
    reentrancy,
    state::WritePlace,
};
use toolhub_types::{
    effect::Effect,
    error::{ErrorKind, ToolError},
    ids::StateName,
};

/// Runs a tool alone with its states. They stay its own until the call's desk is cleared.
pub(super) fn with_write_locks<'a>(
    context: &'a CallContext,
    work: BoxFuture<'a, Result<Reply, ToolError>>,
) -> BoxFuture<'a, Result<Reply, ToolError>> {
    Box::pin(async move {
        let Some(thread) = context.thread() else { return work.await };
        let services = context.services();
        // Always in the order of their names, so that two calls never hold what the other waits for.
        let places: Vec<WritePlace> = (context.envelope().tool.state.names.iter())
            .map(|name| services.write_locks.entry((context.tenant().clone(), services.state.context(name, thread))))
            .collect();
        let things = places.iter().map(WritePlace::lock_id).collect();
        let alone = async {
            for place in places {
                context.checkouts().hold_lock(context.wait_before_start(place.acquire()).await?);
            }
            work.await
        };
        reentrancy::with_locks(things, alone)
            .await
            .unwrap_or_else(|reentrancy::Reentrant| Err(reentrancy_error(context)))
    })
}

fn reentrancy_error(context: &CallContext) -> ToolError {
    let states: Vec<&str> = context.envelope().tool.state.names.iter().map(StateName::as_str).collect();
    let text = format!(
        "a call around this one is writing the state `{}` of this thread; the two would wait for each other",
        states.join("`, `")
    );
    let conflict = ToolError::operator_only(ErrorKind::StateConflict, text.clone()).uncounted().effect(Effect::None);
    ToolError { model: Some(text), ..conflict }
}

//! Runs a tool with the write locks of its states held.
//!
//! In: a context and the work. Out: its result, or a refusal if an enclosing call holds one of the locks (re-entrancy).
//! The locks stay with the call's checked-out states until those are committed or released.

use futures_core::future::BoxFuture;

use crate::{
    execution::{CallContext, Reply},
    reentrancy,
};
use toolhub_state::WriteLockEntry;
use toolhub_types::{
    effect::Effect,
    error::{ErrorKind, ToolError},
    ids::StateName,
};

/// Runs a tool with exclusive write access to its states, held until the call's checkouts are released.
pub(super) fn with_write_locks<'a>(
    context: &'a CallContext,
    work: BoxFuture<'a, Result<Reply, ToolError>>,
) -> BoxFuture<'a, Result<Reply, ToolError>> {
    Box::pin(async move {
        let Some(thread) = context.thread() else { return work.await };
        let services = context.services();
        // Locked in the order of the state names, so that two calls cannot deadlock.
        let entries: Vec<WriteLockEntry> = (context.envelope().tool.state.names.iter())
            .map(|name| services.write_locks.entry((context.tenant().clone(), services.state.context(name, thread))))
            .collect();
        let lock_ids = entries.iter().map(WriteLockEntry::lock_id).collect();
        let locked_work = async {
            for entry in entries {
                context.checkouts().hold_lock(context.wait_before_start(entry.acquire()).await?);
            }
            work.await
        };
        reentrancy::with_locks(lock_ids, locked_work)
            .await
            .unwrap_or_else(|reentrancy::Reentrant| Err(reentrancy_error(context)))
    })
}

fn reentrancy_error(context: &CallContext) -> ToolError {
    let states: Vec<&str> = context.envelope().tool.state.names.iter().map(StateName::as_str).collect();
    let text = format!(
        "an enclosing call is writing the state `{}` of this thread; waiting for it would deadlock",
        states.join("`, `")
    );
    let conflict = ToolError::operator_only(ErrorKind::StateConflict, text.clone()).uncounted().effect(Effect::None);
    ToolError { model: Some(text), ..conflict }
}

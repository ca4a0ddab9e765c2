//! Hooks: middleware around calls.
//!
//! In: a call before validation, or the result of its tool. Out: a decision to pass, block, rewrite or add a note. Hooks fail closed:
//! one that returns an error, panics or times out blocks the call. `pipeline/hooks.rs` runs them.

use std::future::ready;

use futures_core::future::BoxFuture;
use serde_json::Value;

use toolhub_types::{
    error::ToolError,
    ids::{CallId, Caller, RunId, Tenant, ThreadId},
    tool::Definition,
};

/// Code that runs before and after the tool of a call.
///
/// Hooks run in the order they were added, each on the result of the one before. Both methods pass everything by default.
pub trait Hook: Send + Sync + 'static {
    /// Runs before the arguments are validated. Rewritten arguments are validated like any others.
    fn before<'a>(&'a self, call: &'a HookedCall<'a>) -> BoxFuture<'a, Result<BeforeDecision, ToolError>> {
        let _ = call;
        Box::pin(ready(Ok(BeforeDecision::Pass)))
    }

    /// Runs after the tool, before its result is stored or returned.
    fn after<'a>(
        &'a self,
        call: &'a HookedCall<'a>,
        result: Result<&'a Value, &'a ToolError>,
    ) -> BoxFuture<'a, Result<AfterDecision, ToolError>> {
        let _ = (call, result);
        Box::pin(ready(Ok(AfterDecision::Pass)))
    }
}

/// A call as a hook sees it.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct HookedCall<'a> {
    /// The call's id.
    pub id: CallId,
    /// The tool.
    pub tool: &'a Definition,
    /// The arguments of the call.
    pub arguments: &'a Value,
    /// The tenant.
    pub tenant: &'a Tenant,
    /// The caller.
    pub caller: &'a Caller,
    /// The thread.
    pub thread: Option<&'a ThreadId>,
    /// The agent run.
    pub run: Option<RunId>,
}

/// The decision of a hook before a call.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum BeforeDecision {
    /// Continue.
    Pass,
    /// Do not run the tool; the text is the error for the model.
    Block(String),
    /// Continue with these arguments.
    Rewrite(Value),
    /// Continue, and add this note for the model to the result.
    AddNote(String),
}

/// The decision of a hook after a call.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum AfterDecision {
    /// Continue.
    Pass,
    /// Discard the result; the text is the error for the model. Side effects of the tool remain.
    Block(String),
    /// Replace the result. The error of a failed tool cannot be rewritten.
    Rewrite(Value),
    /// Continue, and add this note for the model to the result.
    AddNote(String),
}

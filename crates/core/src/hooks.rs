//! The owner's own code around calls.
//!
//! In: a call about to be checked, or what its tool returned. Out: let it pass, stop it, change it, or tell the model
//! something. A hook that fails, panics or takes too long stops the call: whoever guards a door must not open it by
//! falling over. The pipeline runs them; this room says what they are.

use std::future::ready;

use futures_core::future::BoxFuture;
use serde_json::Value;

use toolhub_types::{
    error::ToolError,
    ids::{CallId, Caller, RunId, Tenant, ThreadId},
    tool::Definition,
};

/// Code that looks at calls before and after their tool runs.
///
/// Hooks run in the order they were given, each on what the one before left. Both methods let everything pass unless
/// they are written.
pub trait Hook: Send + Sync + 'static {
    /// Before the arguments are validated. Changed arguments are validated like any others.
    fn before<'a>(&'a self, call: &'a HookedCall<'a>) -> BoxFuture<'a, Result<BeforeDecision, ToolError>> {
        let _ = call;
        Box::pin(ready(Ok(BeforeDecision::Pass)))
    }

    /// After the tool has run, and before anybody sees what it returned.
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
    /// The call.
    pub id: CallId,
    /// The tool.
    pub tool: &'a Definition,
    /// What the tool is given.
    pub arguments: &'a Value,
    /// Whose call it is.
    pub tenant: &'a Tenant,
    /// Who asks.
    pub caller: &'a Caller,
    /// The conversation.
    pub thread: Option<&'a ThreadId>,
    /// The agent run.
    pub run: Option<RunId>,
}

/// What a hook says before a call.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum BeforeDecision {
    /// Go on.
    Pass,
    /// The call is not made; the model is told this.
    Block(String),
    /// Go on with these arguments.
    Rewrite(Value),
    /// Go on, and tell the model this beside the result.
    AddNote(String),
}

/// What a hook says after a call.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum AfterDecision {
    /// Go on.
    Pass,
    /// Nobody sees the result; the model is told this. What the tool did stays done.
    Block(String),
    /// This is the result. Of a tool that failed, nothing can be rewritten.
    Rewrite(Value),
    /// Go on, and tell the model this beside the result.
    AddNote(String),
}

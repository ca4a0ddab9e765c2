//! `Executor`: the trait that every kind of tool implements, in this workspace or outside it.
//!
//! In: a job. Out: a reply or an error. An executor only executes; the pipeline decides whether, when and how often.

pub use futures_core::future::BoxFuture;
use serde_json::Value;

use crate::execution::CallContext;
use toolhub_types::{content::Content, error::ToolError, tool::Definition};

/// Runs tools of one kind, or one tool.
///
/// An implementation promises that dropping the future stops the work, and that side effects happen only while the future is
/// polled. The caller catches a panic and turns it into `crashed`.
pub trait Executor: Send + Sync + 'static {
    /// Runs a tool once.
    fn execute<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Result<Reply, ToolError>>;

    /// Creates ahead of the first call what a call in the context's thread needs, such as an instance. The context's call has no
    /// arguments. Does nothing by default.
    fn prepare<'a>(&'a self, context: &'a CallContext) -> BoxFuture<'a, Result<(), ToolError>> {
        let _ = context;
        Box::pin(std::future::ready(Ok(())))
    }

    /// Whether its tools need a thread. A call without one gets a new thread.
    fn needs_thread(&self) -> bool {
        false
    }

    /// Whether dropping the future stops the work, as promised. If not, a timeout is never retried, because the first attempt may
    /// still be running.
    fn stops_when_dropped(&self) -> bool {
        true
    }

    /// Checks without a call whether a tool works; `None` if that is not possible. Called periodically while the tool is withheld
    /// for all threads; `true` makes it available again. Must be cheap and without side effects; the timeout is ten seconds.
    fn health_check<'a>(&'a self, tool: &'a Definition) -> Option<BoxFuture<'a, bool>> {
        let _ = tool;
        None
    }

    /// Closes what a tool holds open outside its instances, such as idle connections that no other tool uses; returns whether
    /// there was anything. Called once when the tool is removed or replaced, or the hub shuts down. Calls that are still running
    /// must not be disturbed.
    fn close<'a>(&'a self, tool: &'a Definition) -> BoxFuture<'a, bool> {
        let _ = tool;
        Box::pin(std::future::ready(false))
    }

    /// Validates a definition before it is registered.
    ///
    /// # Errors
    /// When the definition cannot work, such as a missing address in its `config`.
    fn validate_definition(&self, definition: &Definition) -> Result<(), String> {
        let _ = definition;
        Ok(())
    }
}

/// One execution of a tool.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    /// The tool.
    pub tool: &'a Definition,
    /// Its arguments, already validated against the tool's schema.
    pub arguments: &'a Value,
    /// The context of the call.
    pub context: &'a CallContext,
}

/// What a tool returned.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reply {
    /// The structured output.
    pub output: Value,
    /// The content for the model; empty if that is the output itself.
    pub content: Vec<Content>,
}

impl From<Value> for Reply {
    fn from(output: Value) -> Self {
        Self { output, content: Vec::new() }
    }
}

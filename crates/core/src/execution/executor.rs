//! Who runs tools: the one trait every kind of tool implements, in this workspace or outside it.
//!
//! In: a job. Out: a reply or a failure. An executor only executes and reports; whether, when and how often it is
//! asked is decided before it.

pub use futures_core::future::BoxFuture;
use serde_json::Value;

use crate::execution::CallContext;
use toolhub_types::{content::Content, error::ToolError, tool::Definition};

/// Runs tools of one kind, or one tool.
///
/// An implementation promises that dropping the future stops the work, and that it touches the world only while the
/// future is polled. A panic is caught by the caller and becomes `crashed`.
pub trait Executor: Send + Sync + 'static {
    /// Runs a tool once.
    fn execute<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Result<Reply, ToolError>>;

    /// Makes ready what a call in the context's thread would find there, before the first one comes. The context's call has
    /// no arguments. Most executors have nothing to prepare.
    fn prepare<'a>(&'a self, context: &'a CallContext) -> BoxFuture<'a, Result<(), ToolError>> {
        let _ = context;
        Box::pin(std::future::ready(Ok(())))
    }

    /// Whether its tools need a thread to run in. A call that names none gets one of its own.
    fn needs_thread(&self) -> bool {
        false
    }

    /// Whether dropping the future stops the work, as promised. Where it does not, a timeout is never followed by another
    /// attempt: the first may still be at work.
    fn stops_when_dropped(&self) -> bool {
        true
    }

    /// Finds out, without a call, whether a tool works; `None` where there is no way to. Asked now and then while the tool is
    /// withheld for all threads, and `true` brings it back. Cheap, without an effect, and done within seconds: whoever asks does not
    /// wait longer than ten.
    fn health_check<'a>(&'a self, tool: &'a Definition) -> Option<BoxFuture<'a, bool>> {
        let _ = tool;
        None
    }

    /// Looks at a definition before it is registered; says what is wrong with it.
    ///
    /// # Errors
    /// When the definition cannot work, such as a missing address in its `config`.
    fn validate_definition(&self, definition: &Definition) -> Result<(), String> {
        let _ = definition;
        Ok(())
    }
}

/// One execution: what is run, with what, for whom.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    /// The tool.
    pub tool: &'a Definition,
    /// Its arguments; they fit the tool's schema.
    pub arguments: &'a Value,
    /// The call around it.
    pub context: &'a CallContext,
}

/// What a tool gave back.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reply {
    /// The structured output.
    pub output: Value,
    /// What a model is shown; empty where that is just the output.
    pub content: Vec<Content>,
}

impl From<Value> for Reply {
    fn from(output: Value) -> Self {
        Self { output, content: Vec::new() }
    }
}

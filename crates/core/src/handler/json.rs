//! Tools that are functions of plain JSON: for schemas known only at run time, and for legacy tools.
//!
//! In: a function of JSON values. Out: an executor. The state is passed as one more argument and returned beside the output; a
//! member of the output is taken for state only by the adapter for legacy tools, whose protocol that is.

use std::{future::Future, sync::Arc};

use futures_core::future::BoxFuture;
use serde_json::Value;

use crate::{
    execution::{CallContext, Executor, Job, Reply},
    handler::JsonState,
    registry::ToolBuilder,
};
use toolhub_types::{effect::Effect, error::ToolError, tool::Kind};

/// What a JSON tool returns.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct JsonReply {
    /// The output.
    pub output: Value,
    /// The new state, a JSON object; `None` leaves it unchanged.
    pub state: Option<Value>,
}

impl JsonReply {
    /// An output and a new state.
    #[must_use]
    pub fn with_state(output: Value, state: Value) -> Self {
        Self { output, state: Some(state) }
    }
}

impl From<Value> for JsonReply {
    fn from(output: Value) -> Self {
        Self { output, state: None }
    }
}

/// Starts a tool that is an async function of JSON, with the schema of its arguments.
///
/// ```
/// use serde_json::{Value, json};
/// use toolhub_core::{CallContext, dynamic};
///
/// let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
/// let shout = dynamic("shout", schema, async |arguments: Value, _: CallContext| {
///     Ok(json!(arguments["text"].as_str().unwrap_or_default().to_uppercase()))
/// });
/// ```
pub fn dynamic<F, Fut>(name: &str, schema: Value, handler: F) -> ToolBuilder
where
    F: Fn(Value, CallContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Value, ToolError>> + Send + 'static,
{
    let run = move |arguments, cx| -> ReplyFuture { Box::pin(into_reply(handler(arguments, cx))) };
    ToolBuilder::new(name, Kind::Stateless).parameters(schema).executor(Arc::new(JsonExecutor { run, stateful: false }))
}

/// Starts a tool that is an async function of JSON with a state of the given name.
///
/// The state is passed as the argument `state`: an object, empty if nothing is stored yet. The tool returns
/// [`JsonReply::with_state`] to change it. `state_parameter_name` renames the argument, and `state_injection(false)` omits it.
pub fn dynamic_stateful<F, Fut, T>(name: &str, state: &str, schema: Value, handler: F) -> ToolBuilder
where
    F: Fn(Value, CallContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<T, ToolError>> + Send + 'static,
    T: Into<JsonReply> + 'static,
{
    let run = move |arguments, cx| -> ReplyFuture { Box::pin(into_reply(handler(arguments, cx))) };
    let executor = JsonExecutor { run, stateful: true };
    ToolBuilder::new(name, Kind::Stateful).parameters(schema).executor(Arc::new(executor)).json_state(state)
}

/// Starts a tool that was written for an older system: a blocking function of the parameters and the state, in JSON, that
/// returns a result, or a `Result` of one. The members of a member `state` of its result are merged into the state, so that those
/// it does not name stay, and removed from the result. The state has the tool's name.
pub fn legacy_stateful<R: LegacyResult>(
    name: &str,
    function: impl Fn(Value, Value) -> R + Send + Sync + 'static,
) -> ToolBuilder {
    let function: Arc<LegacyFunction> = Arc::new(move |parameters, state| function(parameters, state).into_result());
    ToolBuilder::new(name, Kind::Stateful).states(&[name]).executor(Arc::new(LegacyExecutor { function }))
}

/// What a function of an older system returns: a JSON value, or a `Result` of one.
#[diagnostic::on_unimplemented(
    message = "a legacy tool cannot return `{Self}`",
    note = "it returns a `serde_json::Value`, or `Result<Value, E>` where `E` converts into a `ToolError`"
)]
pub trait LegacyResult: 'static {
    /// The result as the hub sees it.
    ///
    /// # Errors
    /// Whatever the function returned.
    fn into_result(self) -> Result<Value, ToolError>;
}

impl LegacyResult for Value {
    fn into_result(self) -> Result<Value, ToolError> {
        Ok(self)
    }
}

impl<E: Into<ToolError> + 'static> LegacyResult for Result<Value, E> {
    fn into_result(self) -> Result<Value, ToolError> {
        self.map_err(Into::into)
    }
}

type ReplyFuture = BoxFuture<'static, Result<JsonReply, ToolError>>;

async fn into_reply<T: Into<JsonReply>>(
    run: impl Future<Output = Result<T, ToolError>>,
) -> Result<JsonReply, ToolError> {
    run.await.map(Into::into)
}

struct JsonExecutor<F> {
    run: F,
    stateful: bool,
}

impl<F: Fn(Value, CallContext) -> ReplyFuture + Send + Sync + 'static> Executor for JsonExecutor<F> {
    fn execute<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Result<Reply, ToolError>> {
        Box::pin(async move {
            let mut arguments = job.arguments.clone();
            if !self.stateful {
                return Ok((self.run)(arguments, job.context.clone()).await?.output.into());
            }
            let state = JsonState::from_context(job.context).await?;
            if let (Some(parameter), Value::Object(members)) = (state.parameter(), &mut arguments) {
                members.insert(parameter.to_owned(), state.value.clone());
            }
            let reply = (self.run)(arguments, job.context.clone()).await?;
            if let Some(next) = reply.state {
                state.set(next).map_err(|error| error.effect(Effect::Done))?;
            }
            Ok(reply.output.into())
        })
    }

    fn needs_thread(&self) -> bool {
        self.stateful
    }
}

type LegacyFunction = dyn Fn(Value, Value) -> Result<Value, ToolError> + Send + Sync;

struct LegacyExecutor {
    function: Arc<LegacyFunction>,
}

impl Executor for LegacyExecutor {
    fn execute<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Result<Reply, ToolError>> {
        Box::pin(async move {
            let state = JsonState::from_context(job.context).await?;
            let (function, arguments, before) = (self.function.clone(), job.arguments.clone(), state.value.clone());
            let (slot, stuck) = (job.context.share_slot(), job.context.stuck_counter());
            let work = move || {
                let _held = slot;
                function(arguments, before)
            };
            let mut output = job.context.services().blocking.run(job.context.deadline(), stuck, work).await??;
            let changes = output.as_object_mut().and_then(|members| members.remove("state"));
            if let Some(changes) = changes {
                state.merge(changes).map_err(|error| error.effect(Effect::Done))?;
            }
            Ok(output.into())
        })
    }

    fn needs_thread(&self) -> bool {
        true
    }

    fn stops_when_dropped(&self) -> bool {
        false
    }
}

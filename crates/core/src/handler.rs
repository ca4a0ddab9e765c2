//! Turns the code of tool authors into executors.
//!
//! In: an async function, a blocking function, a `StatefulTool`, an instance factory, or a function of plain JSON. Out: a
//! `ToolBuilder` with an `Executor`, the schema of its arguments, and whether it needs a thread. Other modules see only the
//! executor.

mod blocking;
mod checkout;
mod extract;
mod function;
mod instance;
mod json;
mod json_state;
mod shared_instance;
mod stateful;
mod typed_state;

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

pub use blocking::{BlockingHandler, blocking};
pub use extract::{FromCall, NoArguments, Shared};
pub use function::{Handler, Parameters, tool};
pub use instance::{Instance, instance};
pub use json::{JsonReply, LegacyResult, dynamic, dynamic_stateful, legacy_stateful};
pub use json_state::JsonState;
pub use shared_instance::{SharedInstance, SharedInstanceGuard, shared_instance};
pub use stateful::{StatefulTool, stateful};
pub use typed_state::State;

use crate::{
    execution::{Executor, Reply},
    registry::ToolBuilder,
};
use toolhub_schema::schema;
use toolhub_types::{
    effect::Effect,
    error::{ErrorKind, ToolError},
    tool::Kind,
};

/// A type that can be the arguments of a tool: deserializable, with a schema.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the arguments of a tool",
    label = "not readable as arguments",
    note = "derive `serde::Deserialize` and `schemars::JsonSchema` for it; a tool without arguments takes `NoArguments`"
)]
pub trait Arguments: DeserializeOwned + JsonSchema + Send + 'static {}
// The error then names this trait and both derives, not only the first of its requirements that is missing.
#[diagnostic::do_not_recommend]
impl<T: DeserializeOwned + JsonSchema + Send + 'static> Arguments for T {}

/// Starts a tool with this executor.
fn tool_builder<A: Arguments>(name: &str, states: &[&'static str], executor: impl Executor) -> ToolBuilder {
    let kind = if executor.needs_thread() { Kind::Stateful } else { Kind::Stateless };
    ToolBuilder::new(name, kind).inferred_schema(schema::infer::<A>()).states(states).executor(Arc::new(executor))
}

/// Deserializes the arguments. They match the schema, but a type may refuse more than its schema does.
fn parse_arguments<A: Arguments>(arguments: &Value) -> Result<A, ToolError> {
    A::deserialize(arguments).map_err(|_| {
        let problems = schema::explain_decode::<A>(arguments);
        ToolError::invalid_arguments(problems).effect(Effect::None)
    })
}

/// Serializes the output of a tool function.
fn to_reply<T: Serialize>(output: T) -> Result<Reply, ToolError> {
    match serde_json::to_value(output) {
        Ok(output) => Ok(Reply::from(output)),
        // The tool has run; only its output cannot be serialized.
        Err(error) => {
            let text = format!("the tool's output cannot be written as JSON: {error}");
            Err(ToolError::operator_only(ErrorKind::ToolError, text).effect(Effect::Done))
        }
    }
}

//! What a tool function may ask for beside its arguments.

use std::{future::Future, ops::Deref, sync::Arc};

use schemars::JsonSchema;
use serde::Deserialize;

use crate::execution::CallContext;
use toolhub_types::{
    effect::Effect,
    error::{ErrorKind, ToolError},
};

/// Something a tool function can be given because it asks for it by type.
///
/// An implementation promises to change nothing: when it fails, the tool has not run.
#[diagnostic::on_unimplemented(
    message = "a tool cannot be given a `{Self}`",
    label = "not something a tool can ask for",
    note = "a tool takes its arguments first, then any of `State<S>`, `CallContext` and `Shared<T>`"
)]
pub trait FromCall: Sized + Send + 'static {
    /// The state it takes out, if it takes one.
    const STATE: Option<&'static str> = None;

    /// Gets it for this call.
    fn from_call(cx: &CallContext) -> impl Future<Output = Result<Self, ToolError>> + Send;
}

impl FromCall for CallContext {
    async fn from_call(cx: &CallContext) -> Result<Self, ToolError> {
        Ok(cx.clone())
    }
}

/// A thing the hub's owner shares with all tools: a connection pool, a client, settings.
/// Given to the hub with `builder().resource(…)`, asked for by type.
#[derive(Debug)]
pub struct Shared<T>(pub Arc<T>);

impl<T> Deref for Shared<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Send + Sync + 'static> FromCall for Shared<T> {
    async fn from_call(cx: &CallContext) -> Result<Self, ToolError> {
        cx.services().resources.get().map(Self).ok_or_else(|| {
            let text =
                format!("no `{0}` was given to the hub; add `.resource(…)` with one", std::any::type_name::<T>());
            ToolError::operator_only(ErrorKind::Internal, text).effect(Effect::None)
        })
    }
}

/// The arguments of a tool that takes none.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
pub struct NoArguments {}

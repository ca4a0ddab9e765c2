//! Extractors: the parameters a tool function may take beside its arguments.

use std::{future::Future, ops::Deref, sync::Arc};

use schemars::JsonSchema;
use serde::Deserialize;

use crate::execution::CallContext;
use toolhub_types::{
    effect::Effect,
    error::{ErrorKind, ToolError},
};

/// An extractor: a parameter that a tool function gets by its type.
///
/// An implementation promises to change nothing: when it fails, the tool has not run.
#[diagnostic::on_unimplemented(
    message = "a tool cannot be given a `{Self}`",
    label = "not a parameter a tool can take",
    note = "a tool takes its arguments first, then any of `State<S>`, `CallContext` and `Shared<T>`"
)]
pub trait FromCall: Sized + Send + 'static {
    /// The name of the state it checks out, if any.
    const STATE: Option<&'static str> = None;

    /// Extracts the value for a call.
    fn from_call(cx: &CallContext) -> impl Future<Output = Result<Self, ToolError>> + Send;
}

impl FromCall for CallContext {
    async fn from_call(cx: &CallContext) -> Result<Self, ToolError> {
        Ok(cx.clone())
    }
}

/// A value that all tools share, such as a connection pool, a client or settings.
/// Added to the hub with `builder().resource(…)`, and selected by its type.
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
            let text = format!(
                "the hub has no resource of type `{0}`; add one with `.resource(…)`",
                std::any::type_name::<T>()
            );
            ToolError::operator_only(ErrorKind::Internal, text).effect(Effect::None)
        })
    }
}

/// The arguments of a tool that takes none.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
pub struct NoArguments {}

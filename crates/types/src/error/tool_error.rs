//! The error that a tool or an executor raises.
//!
//! In: a text by the tool's author, or any error propagated by `?`. Out: a kind and two texts, one for operators and one safe to show a
//! model. The pipeline adds the facts about the call.

use std::{fmt, time::Duration};

use super::{ErrorKind, kind::CountsAsFailure};
use crate::{effect::Effect, problem::Problem};

/// The failure of one execution.
///
/// The text of `ToolError::new("…")` is shown to the model unchanged. An error that arrives through `?` is shown to operators
/// only, because its text may contain addresses and secrets.
///
/// ```
/// use toolhub_types::error::ToolError;
///
/// async fn read(path: String) -> Result<String, ToolError> {
///     if path.contains("..") {
///         return Err(ToolError::refused("paths may not leave the folder"));
///     }
///     Ok(std::fs::read_to_string(path)?)
/// }
/// ```
#[derive(Debug, Clone)]
pub struct ToolError {
    /// The row of the error table.
    pub kind: ErrorKind,
    /// The text for operators.
    pub operator: String,
    /// The text for the model; `None` means the default text of the kind.
    pub model: Option<String>,
    /// The side effect of the failed execution, if the tool knows it.
    pub effect: Option<Effect>,
    /// Whether it counts as a failure of the tool; `None` means as its kind does.
    pub counts: Option<bool>,
    /// Whether another attempt may succeed; `None` means as its kind says.
    pub retryable: Option<bool>,
    /// How long to wait before another attempt.
    pub retry_after: Option<Duration>,
    /// Whether it happened while connecting.
    pub connecting: bool,
    /// Whether it concerns only the thread of the call.
    pub of_thread: bool,
    /// The problems of the arguments.
    pub problems: Vec<Problem>,
}

impl ToolError {
    /// The tool failed. Both operators and the model see the text.
    pub fn new(text: impl Into<String>) -> Self {
        Self::with_kind(ErrorKind::ToolError, text)
    }

    /// The tool works but refuses this request (not found, not allowed, senseless). It does not count as a failure of
    /// the tool, and nothing was changed.
    pub fn refused(text: impl Into<String>) -> Self {
        Self::with_kind(ErrorKind::ToolRefused, text).effect(Effect::None)
    }

    /// A failure of another kind, for executors: `upstream_unreachable`, `upstream_error`, `timeout`, `crashed`,
    /// `overloaded`. A kind that only the hub may raise, such as `forbidden`, becomes `tool_error`.
    pub fn with_kind(kind: ErrorKind, text: impl Into<String>) -> Self {
        let text = text.into();
        let kind = if kind.is_raised_by_tools() { kind } else { ErrorKind::ToolError };
        Self { model: Some(text.clone()), ..Self::operator_only(kind, text) }
    }

    /// Shows the text to operators only; the model gets the default text of the kind.
    #[must_use]
    pub fn hide_from_model(mut self) -> Self {
        self.model = None;
        self
    }

    /// A failure of any kind whose text is for operators only.
    pub fn operator_only(kind: ErrorKind, operator: impl Into<String>) -> Self {
        let operator = operator.into();
        Self {
            kind,
            operator,
            model: None,
            effect: None,
            counts: None,
            retryable: None,
            retry_after: None,
            connecting: false,
            of_thread: false,
            problems: Vec::new(),
        }
    }

    /// The arguments are valid by the schema but do not deserialize into the tool's type.
    pub fn invalid_arguments(problems: Vec<Problem>) -> Self {
        Self {
            problems,
            ..Self::operator_only(ErrorKind::ArgumentsInvalid, ErrorKind::ArgumentsInvalid.row().operator)
        }
    }

    /// Sets the side effect of the failed execution.
    #[must_use]
    pub fn effect(mut self, effect: Effect) -> Self {
        self.effect = Some(effect);
        self
    }

    /// Marks the error as retryable, whatever its kind says; for a timeout this states that time is left for another attempt. `after` is
    /// the delay that the upstream service asked for.
    #[must_use]
    pub fn retryable(mut self, after: Option<Duration>) -> Self {
        self.retryable = Some(true);
        self.retry_after = after;
        self
    }

    /// Does not count it as a failure of the tool, whatever its kind says.
    #[must_use]
    pub fn uncounted(mut self) -> Self {
        self.counts = Some(false);
        self
    }

    /// Marks the error as raised while connecting, before anything of the call was sent. A timeout then counts in the shared record, not only
    /// in the one of the call's thread.
    #[must_use]
    pub fn connecting(mut self) -> Self {
        self.connecting = true;
        self
    }

    /// Marks the error as one of something that only the thread of the call has, such as its own process: it counts in the thread's
    /// record, also if others of its kind count in the shared one.
    #[must_use]
    pub fn of_thread(mut self) -> Self {
        self.of_thread = true;
        self
    }

    /// Appends a cause to the text for operators; the model does not see it.
    #[must_use]
    pub fn with_cause(mut self, cause: impl fmt::Display) -> Self {
        self.operator = format!("{}: {cause}", self.operator.trim_end_matches('.'));
        self
    }

    /// The error kind.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether it counts as a failure of a tool without `count_tool_errors`.
    #[must_use]
    pub fn counts(&self) -> bool {
        self.counts.unwrap_or(self.kind.row().counts == CountsAsFailure::Yes)
    }
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.operator)
    }
}

/// Lets `?` turn any error into a `ToolError`: errors of the standard library's trait, boxed ones, `anyhow::Error`, and texts. This
/// blanket impl requires that `ToolError` itself is not a `std::error::Error`.
impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> From<E> for ToolError {
    fn from(error: E) -> Self {
        let error = error.into();
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(deeper) = cause {
            text = format!("{text}: {deeper}");
            cause = deeper.source();
        }
        Self::operator_only(ErrorKind::ToolError, text)
    }
}

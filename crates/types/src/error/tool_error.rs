//! What a tool or an executor raises when it could not do its work.
//!
//! In: the author's words, or any error that `?` meets. Out: a kind and two texts, one for operators, one a model
//! may read. It says nothing about the call; the pipeline adds that.

use std::{fmt, time::Duration};

use super::{ErrorKind, kind::CountsAsFailure};
use crate::{effect::Effect, problem::Problem};

/// The failure of one execution.
///
/// `ToolError::new("…")` is shown to the model as it stands. An error that arrives through `?` is shown to operators
/// only: its text may hold addresses and secrets nobody meant for a model.
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
    /// Which row of the error table it is.
    pub kind: ErrorKind,
    /// The text for operators.
    pub operator: String,
    /// The text for the model, where it may be shown one of its own.
    pub model: Option<String>,
    /// What the tool did to the world, where it knows better than its kind.
    pub effect: Option<Effect>,
    /// Whether it counts against the tool, where that differs from its kind.
    pub counts: Option<bool>,
    /// Whether another attempt may help, where that differs from its kind.
    pub retryable: Option<bool>,
    /// How long to wait before another attempt.
    pub retry_after: Option<Duration>,
    /// Whether it happened while a connection was made.
    pub connecting: bool,
    /// What is wrong with which argument.
    pub problems: Vec<Problem>,
}

impl ToolError {
    /// The tool tried and failed. The text is for operators and model alike.
    pub fn new(text: impl Into<String>) -> Self {
        Self::with_kind(ErrorKind::ToolError, text)
    }

    /// The tool works, but says no to this request (not found, not allowed, nonsense). It does not speak against the
    /// tool, and nothing was changed.
    pub fn refused(text: impl Into<String>) -> Self {
        Self::with_kind(ErrorKind::ToolRefused, text).effect(Effect::None)
    }

    /// A failure of another kind, for executors: `upstream_unreachable`, `upstream_error`, `timeout`, `crashed`,
    /// `overloaded`. A kind that only the hub can know, such as `forbidden`, becomes `tool_error`.
    pub fn with_kind(kind: ErrorKind, text: impl Into<String>) -> Self {
        let text = text.into();
        let kind = if kind.is_raised_by_tools() { kind } else { ErrorKind::ToolError };
        Self { model: Some(text.clone()), ..Self::operator_only(kind, text) }
    }

    /// The text is for operators only; the model reads the kind's own.
    #[must_use]
    pub fn hide_from_model(mut self) -> Self {
        self.model = None;
        self
    }

    /// A failure of any kind whose details are for operators only.
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
            problems: Vec::new(),
        }
    }

    /// The arguments fit the schema, but not the tool's own type.
    pub fn invalid_arguments(problems: Vec<Problem>) -> Self {
        Self {
            problems,
            ..Self::operator_only(ErrorKind::ArgumentsInvalid, ErrorKind::ArgumentsInvalid.row().operator)
        }
    }

    /// What the failed execution did to the world, when the author knows.
    #[must_use]
    pub fn effect(mut self, effect: Effect) -> Self {
        self.effect = Some(effect);
        self
    }

    /// Trying again may help, even where the kind says otherwise, and after a timeout there is time left for it; `after` is how long the other side asked to wait.
    #[must_use]
    pub fn retryable(mut self, after: Option<Duration>) -> Self {
        self.retryable = Some(true);
        self.retry_after = after;
        self
    }

    /// It does not speak against the tool, even where the kind says otherwise.
    #[must_use]
    pub fn uncounted(mut self) -> Self {
        self.counts = Some(false);
        self
    }

    /// It happened while connecting to a service, before anything of the call itself could matter. A timeout then concerns
    /// everybody who uses the tool, not only the call's thread.
    #[must_use]
    pub fn connecting(mut self) -> Self {
        self.connecting = true;
        self
    }

    /// A second text, with details for operators only.
    #[must_use]
    pub fn with_cause(mut self, cause: impl fmt::Display) -> Self {
        self.operator = format!("{}: {cause}", self.operator);
        self
    }

    /// What went wrong.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether it speaks against a tool that does not ask for refusals to be counted.
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

/// Lets `?` turn any error into a `ToolError`. For this to be possible, `ToolError` itself is no `std::error::Error`.
impl<E: std::error::Error + Send + Sync + 'static> From<E> for ToolError {
    fn from(error: E) -> Self {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(deeper) = cause {
            text = format!("{text}: {deeper}");
            cause = deeper.source();
        }
        Self::operator_only(ErrorKind::ToolError, text)
    }
}

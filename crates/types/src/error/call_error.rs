//! The error a caller receives: a stable kind, a text for operators, a text safe to show a model.
//!
//! In: a refusal by the hub, or the `ToolError` of an execution. Out: plain data, ready to be stored and sent.

use std::{fmt, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ErrorKind, ToolError};
use crate::{
    ids::{ApprovalId, CallId},
    problem::Problem,
};

/// Longest text for operators that is kept of a failed tool.
const MAX_OPERATOR_CHARS: usize = 25_000;

/// Why a call did not succeed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", from = "RawCallError")]
#[non_exhaustive]
pub struct CallError {
    /// The error kind.
    pub kind: ErrorKind,
    /// Whether the tool works but refused the request.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub refused: bool,
    /// The text for operators. May name hosts and causes, never secrets.
    pub operator: String,
    /// The text that is safe to show a model.
    pub model: String,
    /// Whether the same call may succeed if it is made again.
    pub retryable: bool,
    /// Whether it counts as a failure of the tool.
    pub counts: bool,
    /// How long to wait before the next attempt.
    #[serde(rename = "retryAfterMs", with = "crate::millis::option", skip_serializing_if = "Option::is_none", default)]
    #[schemars(with = "Option<u64>")]
    pub retry_after: Option<Duration>,
    /// Structured data of some kinds.
    #[serde(skip_serializing_if = "Detail::is_empty", default)]
    pub detail: Detail,
}

/// The deserialized form. Two kinds share the name `tool_error`; `refused` tells them apart.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "CallError")]
struct RawCallError {
    kind: ErrorKind,
    #[serde(default)]
    refused: bool,
    operator: String,
    model: String,
    retryable: bool,
    counts: bool,
    #[serde(rename = "retryAfterMs", with = "crate::millis::option", default)]
    #[schemars(with = "Option<u64>")]
    retry_after: Option<Duration>,
    #[serde(default)]
    detail: Detail,
}

impl From<RawCallError> for CallError {
    fn from(raw: RawCallError) -> Self {
        let RawCallError { kind, refused, operator, model, retryable, counts, retry_after, detail } = raw;
        let kind = if refused { ErrorKind::ToolRefused } else { kind };
        Self { kind, refused, operator, model, retryable, counts, retry_after, detail }
    }
}

/// Structured data that some error kinds carry beside their texts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
#[schemars(rename = "ErrorDetail")]
pub enum Detail {
    /// No detail.
    #[default]
    Nothing,
    /// Names similar to an unknown one.
    Suggestions(Vec<String>),
    /// The problems of the arguments.
    Problems(Vec<Problem>),
    /// The tools that must succeed first.
    Missing(Vec<String>),
    /// The approval that is pending, was denied or has expired.
    Approval(ApprovalId),
    /// The call with the same idempotency key that is still running.
    Running {
        /// The call.
        call: CallId,
        /// The approval it waits for.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        approval: Option<ApprovalId>,
    },
}

impl Detail {
    fn is_empty(&self) -> bool {
        matches!(self, Self::Nothing)
    }
}

impl CallError {
    /// An error with the default texts of its kind.
    #[must_use]
    pub fn new(kind: ErrorKind) -> Self {
        let row = kind.row();
        Self {
            kind,
            refused: kind == ErrorKind::ToolRefused,
            operator: row.operator.into(),
            model: row.model.into(),
            retryable: row.retryable,
            counts: row.counts == super::CountsAsFailure::Yes,
            retry_after: None,
            detail: Detail::Nothing,
        }
    }

    /// Truncates the text for the model to `model_chars`, and that for operators to 25,000 characters, with an ellipsis:
    /// a tool may report an error of any length, and the record of its call keeps both texts.
    pub fn truncate_texts(mut self, model_chars: usize) -> Self {
        for (text, characters) in [(&mut self.model, model_chars), (&mut self.operator, MAX_OPERATOR_CHARS)] {
            if let Some((end, _)) = text.char_indices().nth(characters) {
                text.truncate(end);
                text.push('…');
            }
        }
        self
    }

    /// Replaces the text for operators.
    #[must_use]
    pub fn operator(mut self, text: impl Into<String>) -> Self {
        self.operator = text.into();
        self
    }

    /// Replaces the text for the model.
    #[must_use]
    pub fn model(mut self, text: impl Into<String>) -> Self {
        self.model = text.into();
        self
    }

    /// Sets the structured detail.
    #[must_use]
    pub fn detail(mut self, detail: Detail) -> Self {
        self.detail = detail;
        self
    }

    /// Names similar to the requested one; empty if there are none.
    #[must_use]
    pub fn suggestions(&self) -> &[String] {
        if let Detail::Suggestions(names) = &self.detail { names } else { &[] }
    }

    /// The tools that must succeed first; empty unless dependencies are missing.
    #[must_use]
    pub fn missing_dependencies(&self) -> &[String] {
        if let Detail::Missing(names) = &self.detail { names } else { &[] }
    }

    /// The approval that is pending, was denied or has expired.
    #[must_use]
    pub fn approval(&self) -> Option<ApprovalId> {
        match &self.detail {
            Detail::Approval(id) => Some(*id),
            Detail::Running { approval, .. } => *approval,
            _ => None,
        }
    }

    /// The call with the same idempotency key that is still running.
    #[must_use]
    pub fn running_call(&self) -> Option<CallId> {
        if let Detail::Running { call, .. } = &self.detail { Some(*call) } else { None }
    }

    /// The problems of the arguments; empty if the arguments are valid.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        if let Detail::Problems(problems) = &self.detail { problems } else { &[] }
    }
}

impl From<ToolError> for CallError {
    fn from(error: ToolError) -> Self {
        let defaults = Self::new(error.kind);
        Self {
            counts: error.counts(),
            retryable: error.retryable.unwrap_or(defaults.retryable),
            retry_after: error.retry_after,
            operator: error.operator,
            model: error.model.unwrap_or(defaults.model),
            ..defaults
        }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.operator)
    }
}

impl std::error::Error for CallError {}

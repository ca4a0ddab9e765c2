//! What a caller sees when a call did not succeed: a stable kind, a line for operators, a line safe for a model.
//!
//! In: a refusal of the hub or the `ToolError` of an execution. Out: plain data, ready to be stored and sent.

use std::{fmt, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ErrorKind, ToolError};
use crate::{ids::ApprovalId, problem::Problem};

/// Why a call did not succeed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", from = "RawCallError")]
#[non_exhaustive]
pub struct CallError {
    /// What went wrong.
    pub kind: ErrorKind,
    /// Whether the tool works, but said no.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub refused: bool,
    /// The line for operators. May name hosts and causes, never secrets.
    pub operator: String,
    /// The line a model may read.
    pub model: String,
    /// Whether the same call may succeed if it is made again.
    pub retryable: bool,
    /// Whether it speaks against the tool.
    pub counts: bool,
    /// How long to wait before trying again.
    #[serde(rename = "retryAfterMs", with = "crate::millis::option", skip_serializing_if = "Option::is_none", default)]
    #[schemars(with = "Option<u64>")]
    pub retry_after: Option<Duration>,
    /// What the kind has to say beyond its text.
    #[serde(skip_serializing_if = "Detail::is_empty", default)]
    pub detail: Detail,
}

/// An error as it is read back. Two kinds share the name `tool_error`; `refused` tells them apart.
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
    fn from(written: RawCallError) -> Self {
        let RawCallError { kind, refused, operator, model, retryable, counts, retry_after, detail } = written;
        let kind = if refused { ErrorKind::ToolRefused } else { kind };
        Self { kind, refused, operator, model, retryable, counts, retry_after, detail }
    }
}

/// What some kinds carry beyond their texts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
#[schemars(rename = "ErrorDetail")]
pub enum Detail {
    /// Nothing more.
    #[default]
    Nothing,
    /// Names close to one that is not known.
    Suggestions(Vec<String>),
    /// What is wrong with which argument.
    Problems(Vec<Problem>),
    /// The tools that must succeed first.
    Missing(Vec<String>),
    /// The question that must be answered, or was answered with no.
    Approval(ApprovalId),
}

impl Detail {
    fn is_empty(&self) -> bool {
        matches!(self, Self::Nothing)
    }
}

impl CallError {
    /// An error with the table's own texts.
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

    /// Cuts the line for the model to what a model can bear.
    pub fn truncate_model_text(mut self, characters: usize) -> Self {
        if let Some((at, _)) = self.model.char_indices().nth(characters) {
            self.model.truncate(at);
            self.model.push('…');
        }
        self
    }

    /// More exact words for operators.
    #[must_use]
    pub fn operator(mut self, text: impl Into<String>) -> Self {
        self.operator = text.into();
        self
    }

    /// More exact words for the model.
    #[must_use]
    pub fn model(mut self, text: impl Into<String>) -> Self {
        self.model = text.into();
        self
    }

    /// What the kind has to say beyond its text.
    #[must_use]
    pub fn detail(mut self, detail: Detail) -> Self {
        self.detail = detail;
        self
    }

    /// Names close to the wanted one; empty where the error suggests none.
    #[must_use]
    pub fn suggestions(&self) -> &[String] {
        if let Detail::Suggestions(names) = &self.detail { names } else { &[] }
    }

    /// The tools that must succeed first; empty where nothing is waited for.
    #[must_use]
    pub fn missing_dependencies(&self) -> &[String] {
        if let Detail::Missing(names) = &self.detail { names } else { &[] }
    }

    /// The question that must be answered, or was answered with no.
    #[must_use]
    pub fn approval(&self) -> Option<ApprovalId> {
        if let Detail::Approval(id) = &self.detail { Some(*id) } else { None }
    }

    /// What is wrong with which argument; empty where the arguments are not the problem.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        if let Detail::Problems(problems) = &self.detail { problems } else { &[] }
    }
}

impl From<ToolError> for CallError {
    fn from(error: ToolError) -> Self {
        let plain = Self::new(error.kind);
        Self {
            counts: error.counts(),
            retryable: error.retryable.unwrap_or(plain.retryable),
            retry_after: error.retry_after,
            operator: error.operator,
            model: error.model.unwrap_or(plain.model),
            ..plain
        }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.operator)
    }
}

impl std::error::Error for CallError {}

//! The error of an execution outside the hub, as a client reports it.
//!
//! In: a text, or an object with a message, a kind and whether it counts. Out: a `ToolError`, or which member is wrong.

use std::{fmt, time::Duration};

use schemars::JsonSchema;
use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, Visitor, value::MapAccessDeserializer},
};
use toolhub_core::{ErrorKind, FailureScope, ToolError};

use crate::{
    problem::{ApiResult, Code, FieldError, Problem},
    scope::{Principal, Scope},
};

/// The longest time that an upstream may ask to wait: a day.
const MAX_RETRY_AFTER_MS: u32 = 86_400_000;

/// The error of an execution: its message, or an object.
#[derive(Debug)]
pub(super) struct ReportedError(ErrorObject);

/// The error of an execution as an object.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "ReportedError")]
struct ErrorObject {
    /// Its kind.
    #[serde(default)]
    kind: ReportedErrorKind,
    /// What happened, for operators.
    #[schemars(length(min = 1))]
    message: String,
    /// Whether it counts against the tool; by default as its kind says. `false` for a tool that works and refused the
    /// call.
    counts: Option<bool>,
    /// How long the upstream asked to wait.
    #[schemars(range(max = 86_400_000))]
    retry_after_ms: Option<u32>,
}

/// The schema of an error: a text or an object.
#[derive(JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
#[allow(dead_code, reason = "describes `ReportedError`, which is read by hand for better messages")]
enum TextOrObject {
    Text(#[schemars(length(min = 1))] String),
    Object(ErrorObject),
}

impl JsonSchema for ReportedError {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        TextOrObject::schema_name()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        TextOrObject::json_schema(generator)
    }
}

/// The kinds of errors that an execution may end with.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum ReportedErrorKind {
    #[default]
    ToolError,
    Crashed,
    Timeout,
    UpstreamUnreachable,
    UpstreamError,
    Overloaded,
}

impl From<ReportedErrorKind> for ErrorKind {
    fn from(kind: ReportedErrorKind) -> Self {
        match kind {
            ReportedErrorKind::ToolError => Self::ToolError,
            ReportedErrorKind::Crashed => Self::Crashed,
            ReportedErrorKind::Timeout => Self::Timeout,
            ReportedErrorKind::UpstreamUnreachable => Self::UpstreamUnreachable,
            ReportedErrorKind::UpstreamError => Self::UpstreamError,
            ReportedErrorKind::Overloaded => Self::Overloaded,
        }
    }
}

/// Reads a text or an object, and nothing else: serde would also read an array of the members.
impl<'de> Deserialize<'de> for ReportedError {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct ErrorVisitor;
        impl<'de> Visitor<'de> for ErrorVisitor {
            type Value = ReportedError;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, or an object with a `message`")
            }
            fn visit_str<E: Error>(self, message: &str) -> Result<ReportedError, E> {
                let (kind, message) = (ReportedErrorKind::default(), message.to_owned());
                Ok(ReportedError(ErrorObject { kind, message, counts: None, retry_after_ms: None }))
            }
            fn visit_map<M: MapAccess<'de>>(self, members: M) -> Result<ReportedError, M::Error> {
                ErrorObject::deserialize(MapAccessDeserializer::new(members)).map(ReportedError)
            }
        }
        from.deserialize_any(ErrorVisitor)
    }
}

impl ReportedError {
    /// The error that the report describes.
    pub(super) fn into_error(self) -> ApiResult<ToolError> {
        let ErrorObject { kind, message, counts, retry_after_ms } = self.0;
        if message.trim().is_empty() {
            return Err(invalid("/error", "the message of an error must not be empty"));
        }
        if retry_after_ms.is_some_and(|wait| wait > MAX_RETRY_AFTER_MS) {
            return Err(invalid("/error/retryAfterMs", "`retryAfterMs` must be at most a day, 86400000"));
        }
        let mut error = ToolError::with_kind(kind.into(), message);
        if let Some(wait) = retry_after_ms {
            error = error.retryable(Some(Duration::from_millis(wait.into())));
        }
        match counts {
            Some(false) => Ok(error.uncounted()),
            Some(true) if !error.counts() => {
                Err(invalid("/error/counts", "an error of this kind never counts against a tool"))
            }
            _ => Ok(error),
        }
    }
}

/// Requires `admin` for an error that counts for every thread: otherwise a key that may only call tools could disable a
/// tool for all others.
pub(super) fn authorize(principal: &Principal, error: &ToolError) -> ApiResult<()> {
    let affects_all_threads = error.counts() && error.kind().row().scope != FailureScope::Thread;
    if affects_all_threads && !principal.has_scope(Scope::Admin) { Err(needs_admin()) } else { Ok(()) }
}

pub(super) fn needs_admin() -> Problem {
    let why = "a report that counts for every thread needs the scope `admin`";
    Problem::new(Code::FORBIDDEN, why).hint("name a thread, and the kind `tool_error` or `crashed`")
}

/// The problem of a member of a report.
pub(super) fn invalid(pointer: &str, detail: &str) -> Problem {
    let field_error = FieldError::new(pointer, detail);
    Problem::new(Code::INVALID_REQUEST, detail).with("errors", [field_error])
}

//! Problem responses (RFC 9457): the one form of every error.
//!
//! In: an error of the core, or a code of the table below. Out: `application/problem+json`. Codes of calls come from
//! the core's error table, codes of HTTP itself from the table here; there are no others.

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use toolhub_core::{CallError, ErrorKind};

use crate::json::Json;

/// The scheme by which clients authenticate themselves; HTTP requires it in `WWW-Authenticate` with each 401.
pub(crate) const AUTHENTICATE: HeaderValue = HeaderValue::from_static("Bearer");

/// A code that belongs to HTTP, not to calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Code {
    pub(crate) name: &'static str,
    pub(crate) status: u16,
    pub(crate) title: &'static str,
}

macro_rules! codes {
    ($($constant:ident $name:literal $status:literal $title:literal;)*) => {
        impl Code {
            $(#[doc = $title] pub(crate) const $constant: Self = Self { name: $name, status: $status, title: $title };)*
            /// Every code of HTTP itself.
            pub(crate) const ALL: &'static [Self] = &[$(Self::$constant,)*];
        }
    };
}

codes! {
    INVALID_JSON "invalid_json" 400 "The body is not JSON";
    INVALID_KEY "idempotency_key_invalid" 400 "The idempotency key is not valid";
    INVALID_REQUEST "invalid_request" 422 "The request is not valid";
    UNAUTHENTICATED "unauthenticated" 401 "A valid key is required";
    FORBIDDEN "forbidden" 403 "The key lacks the permission";
    COMMAND_FORBIDDEN "command_forbidden" 403 "Programs are not accepted through the API";
    FOREIGN_ORIGIN "foreign_origin" 403 "Requests from other sites are not served";
    NOT_FOUND "not_found" 404 "Not found";
    TOOL_NOT_FOUND "tool_not_found" 404 "The tool does not exist";
    THREAD_NOT_FOUND "thread_not_found" 404 "The thread does not exist";
    CALL_NOT_FOUND "call_not_found" 404 "The call does not exist";
    RUN_NOT_FOUND "run_not_found" 404 "The run does not exist";
    AGENT_NOT_FOUND "agent_not_found" 404 "The agent does not exist";
    APPROVAL_NOT_FOUND "approval_not_found" 404 "The approval does not exist";
    GRANT_NOT_FOUND "grant_not_found" 404 "The grant does not exist";
    ARTIFACT_NOT_FOUND "artifact_not_found" 404 "The artifact does not exist";
    ALERT_TARGET_NOT_FOUND "alert_target_not_found" 404 "The alert target does not exist";
    MCP_SERVER_NOT_FOUND "mcp_server_not_found" 404 "The MCP server does not exist";
    SESSION_NOT_FOUND "session_not_found" 404 "The session does not exist";
    KEY_NOT_FOUND "key_not_found" 404 "The key does not exist";
    STATE_NOT_FOUND "state_not_found" 404 "The state does not exist";
    METHOD_NOT_ALLOWED "method_not_allowed" 405 "The method is not allowed here";
    NOT_ACCEPTABLE "not_acceptable" 406 "The requested media type is not available";
    TOO_SLOW "too_slow" 408 "The request took too long to arrive";
    CONFLICT "conflict" 409 "The resource is not in the expected state";
    CALL_ENDED "call_ended" 409 "The call has ended";
    RUN_OPEN "run_open" 409 "A run is open in the thread";
    RUN_ENDED "run_ended" 409 "The run has ended";
    TOOL_EXISTS "tool_exists" 409 "A tool of that name exists already";
    THREAD_BUSY "thread_busy" 409 "Calls are running in the thread";
    ALREADY_RESOLVED "already_resolved" 409 "The approval was decided already";
    PRECONDITION_FAILED "precondition_failed" 412 "The resource has changed";
    STATE_CONFLICT "state_conflict" 412 "The state has another version than expected";
    TOO_LARGE "too_large" 413 "The request is too large";
    UNSUPPORTED_MEDIA_TYPE "unsupported_media_type" 415 "The body must be JSON";
    CONFIG_INVALID "config_invalid" 422 "The config is not valid";
    MISDIRECTED "misdirected" 421 "The host is not allowed";
    INTERNAL "internal" 500 "Internal error";
    NOT_DONE "not_done" 500 "The operation failed";
    STORE_UNAVAILABLE "store_unavailable" 503 "The store is unavailable";
    SHUTTING_DOWN "shutting_down" 503 "The server is shutting down";
}

/// A problem response.
#[derive(Debug, Clone)]
pub(crate) struct Problem {
    status: u16,
    code: &'static str,
    title: &'static str,
    detail: String,
    // Boxed to keep `Result<_, Problem>` small: most functions here return one.
    hint: Option<Box<str>>,
    retry_after: Option<u32>,
    extra: Map<String, Value>,
}

pub(crate) type ApiResult<T> = Result<T, Problem>;

impl Problem {
    /// A problem of HTTP itself, with a detail for this request.
    pub(crate) fn new(code: Code, detail: impl Into<String>) -> Self {
        Self {
            status: code.status,
            code: code.name,
            title: code.title,
            detail: detail.into(),
            hint: None,
            retry_after: None,
            extra: Map::new(),
        }
    }

    /// What to do about it.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into().into());
        self
    }

    /// Whether the request has no valid key.
    pub(crate) fn is_unauthenticated(&self) -> bool {
        self.code == Code::UNAUTHENTICATED.name
    }

    /// Overrides the status of the code.
    pub(crate) fn status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    /// Adds a member.
    pub(crate) fn with(mut self, name: &str, value: impl Serialize) -> Self {
        if let Ok(value) = serde_json::to_value(value) {
            self.extra.insert(name.into(), value);
        }
        self
    }

    /// Adds a member if there is a value.
    pub(crate) fn with_some(self, name: &str, value: Option<impl Serialize>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// The response body.
    pub(crate) fn to_json(&self) -> Value {
        let mut body = Map::new();
        body.insert("type".into(), format!("/problems/{}", self.code).into());
        body.insert("title".into(), capitalize(self.title).into());
        body.insert("status".into(), self.status.into());
        body.insert("code".into(), self.code.into());
        body.insert("detail".into(), self.detail.clone().into());
        body.extend(self.hint.as_deref().map(|hint| ("hint".into(), hint.into())));
        body.extend(self.extra.clone());
        Value::Object(body)
    }
}

/// A refusal by the core, with the status and title of its row in the error table.
impl From<CallError> for Problem {
    fn from(error: CallError) -> Self {
        let row = error.kind.row();
        let mut problem = Self {
            // A call that ran is an outcome and not a problem; if one arrives here anyway, the fault is the server's.
            status: if row.http == 200 { 500 } else { row.http },
            code: row.name,
            title: row.operator,
            detail: error.operator.clone(),
            hint: None,
            retry_after: error.retry_after.map(|wait| wait.as_secs_f64().ceil() as u32),
            extra: Map::new(),
        };
        if !error.suggestions().is_empty() {
            problem = problem.with("suggestions", error.suggestions());
        }
        if !error.missing_dependencies().is_empty() {
            problem = problem.with("missing", error.missing_dependencies());
        }
        if let Some(approval) = error.approval() {
            problem = problem.with("approvalId", approval);
        }
        if !error.problems().is_empty() {
            problem = problem.with("errors", error.problems());
        }
        problem
    }
}

impl From<toolhub_core::backend::StoreError> for Problem {
    fn from(error: toolhub_core::backend::StoreError) -> Self {
        Self::from(CallError::new(ErrorKind::StoreUnavailable).operator(error.to_string()))
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(self.to_json())).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, AUTHENTICATE);
        }
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        // Outer layers of the route may extend the problem, see `add_success_flag`.
        response.extensions_mut().insert(self);
        response
    }
}

/// The body of every problem.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Problem")]
pub(crate) struct ProblemBody {
    /// The path of the page that explains the code.
    pub(crate) r#type: String,
    /// The meaning of the code.
    pub(crate) title: String,
    /// The status of the response.
    pub(crate) status: u16,
    /// The stable error code.
    pub(crate) code: String,
    /// What is wrong with this request.
    pub(crate) detail: String,
    /// The text that is safe to show to a model, if a call was refused. `detail` is for operators.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) model: Option<String>,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hint: Option<String>,
    /// The errors in the parts of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) errors: Option<Vec<FieldError>>,
    /// Known names that are close to an unknown one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) suggestions: Option<Vec<String>>,
    /// The tools that must succeed first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) missing: Option<Vec<String>>,
    /// The call that was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) call_id: Option<String>,
    /// The run that is open in the thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) run_id: Option<String>,
    /// The approval that is required, or was denied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) approval_id: Option<String>,
    /// The trace the request belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) trace_id: Option<String>,
    /// Always false; present only on routes whose responses have it too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) success: Option<bool>,
}

/// The error in one part of the request.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct FieldError {
    /// The location, as a JSON pointer.
    pub(crate) pointer: String,
    /// What is wrong.
    pub(crate) detail: String,
    /// The field as a reader would write it, such as `lines[2].qty`; only of problems in the arguments of a call.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
    /// What was probably meant; only of problems in the arguments of a call.
    #[serde(skip_serializing_if = "Option::is_none")]
    suggestion: Option<String>,
}

impl FieldError {
    pub(crate) fn new(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), detail: detail.into(), field: None, suggestion: None }
    }
}

fn capitalize(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

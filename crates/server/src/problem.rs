//! What a request is answered with when it cannot be served: RFC 9457, one shape everywhere.
//!
//! In: an error of the core, or a code of the table below. Out: `application/problem+json`. Codes of calls come from the
//! core's table of errors, codes of HTTP itself from the table here; nobody else invents one.

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use toolhub_core::{CallError, ErrorKind};

use crate::json::Json;

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
    INVALID_KEY "idempotency_key_invalid" 400 "The idempotency key is not one";
    INVALID_REQUEST "invalid_request" 422 "The request is not valid";
    UNAUTHENTICATED "unauthenticated" 401 "A key is needed";
    FORBIDDEN "forbidden" 403 "This key may not do that";
    FOREIGN_ORIGIN "foreign_origin" 403 "Requests from other sites are not served";
    NOT_FOUND "not_found" 404 "There is nothing here";
    TOOL_NOT_FOUND "tool_not_found" 404 "There is no such tool";
    THREAD_NOT_FOUND "thread_not_found" 404 "There is no such thread";
    CALL_NOT_FOUND "call_not_found" 404 "There is no such call";
    RUN_NOT_FOUND "run_not_found" 404 "There is no such run";
    AGENT_NOT_FOUND "agent_not_found" 404 "There is no such agent";
    APPROVAL_NOT_FOUND "approval_not_found" 404 "There is no such approval";
    GRANT_NOT_FOUND "grant_not_found" 404 "There is no such grant";
    ARTIFACT_NOT_FOUND "artifact_not_found" 404 "There is no such artifact";
    KEY_NOT_FOUND "key_not_found" 404 "There is no such key";
    STATE_NOT_FOUND "state_not_found" 404 "There is no such state";
    METHOD_NOT_ALLOWED "method_not_allowed" 405 "This address does not take that method";
    NOT_ACCEPTABLE "not_acceptable" 406 "The answer cannot be given in that form";
    TOO_SLOW "too_slow" 408 "The request took too long to arrive";
    CONFLICT "conflict" 409 "It is not as the request expects";
    CALL_ENDED "call_ended" 409 "The call has ended";
    RUN_OPEN "run_open" 409 "A run is open in the thread";
    RUN_ENDED "run_ended" 409 "The run has ended";
    TOOL_EXISTS "tool_exists" 409 "There is a tool of that name";
    THREAD_BUSY "thread_busy" 409 "Calls run in the thread";
    ALREADY_RESOLVED "already_resolved" 409 "The question was answered before";
    PRECONDITION_FAILED "precondition_failed" 412 "It was changed in the meantime";
    STATE_CONFLICT "state_conflict" 412 "The state is not as the request expects";
    TOO_LARGE "too_large" 413 "The request is too large";
    UNSUPPORTED_MEDIA_TYPE "unsupported_media_type" 415 "The body must be JSON";
    CONFIG_INVALID "config_invalid" 422 "The config is not valid";
    MISDIRECTED "misdirected" 421 "This server does not answer for that host";
    INTERNAL "internal" 500 "Toolhub itself failed";
    NOT_DONE "not_done" 500 "It could not be done";
    STORE_UNAVAILABLE "store_unavailable" 503 "The store does not answer";
    SHUTTING_DOWN "shutting_down" 503 "The server is going away";
}

/// A problem on its way to the client.
#[derive(Debug, Clone)]
pub(crate) struct Problem {
    status: u16,
    code: &'static str,
    title: &'static str,
    detail: String,
    // Small on purpose: a problem is the other side of most results here.
    hint: Option<Box<str>>,
    retry_after: Option<u32>,
    extra: Map<String, Value>,
}

pub(crate) type ApiResult<T> = Result<T, Problem>;

impl Problem {
    /// A problem of HTTP itself, in words for this request.
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

    /// Another status than the code's own.
    pub(crate) fn status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    /// One more member.
    pub(crate) fn with(mut self, name: &str, value: impl Serialize) -> Self {
        if let Ok(value) = serde_json::to_value(value) {
            self.extra.insert(name.into(), value);
        }
        self
    }

    /// One more member, where there is something to say.
    pub(crate) fn with_some(self, name: &str, value: Option<impl Serialize>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// Its body.
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

/// A refusal of the core, by its row of the table.
impl From<CallError> for Problem {
    fn from(error: CallError) -> Self {
        let row = error.kind.row();
        let mut problem = Self {
            // A call that ran is an outcome, not a problem; where one still becomes a problem, it is our doing.
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
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        // Whoever stands around the route may have a word to add.
        response.extensions_mut().insert(self);
        response
    }
}

/// The body of every problem, for the description of the API.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Problem")]
pub(crate) struct ProblemBody {
    /// Where the code is explained.
    pub(crate) r#type: String,
    /// The code in words.
    pub(crate) title: String,
    /// The status of the answer.
    pub(crate) status: u16,
    /// The stable name of what went wrong.
    pub(crate) code: String,
    /// What went wrong with this request.
    pub(crate) detail: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hint: Option<String>,
    /// What is wrong with which part of what was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) errors: Option<Vec<Flaw>>,
    /// Names close to one that is not known.
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
    /// The question that must be answered, or was answered with no.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) approval_id: Option<String>,
    /// The trace the request belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) trace_id: Option<String>,
    /// Always false; only where the route says so of its answers too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) success: Option<bool>,
}

/// What is wrong with one part of what was sent.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Flaw {
    /// Where it is, as a JSON pointer.
    pub(crate) pointer: String,
    /// What is wrong with it.
    pub(crate) detail: String,
}

fn capitalize(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

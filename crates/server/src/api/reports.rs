//! `POST /tools/{name}/reports`: health reports about executions outside the hub; they count for the tool's status, and no
//! call is involved.

use std::{fmt, time::Duration};

use axum::{extract::State, http::Method};
use schemars::JsonSchema;
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor, value::MapAccessDeserializer},
};
use toolhub_core::{ErrorKind, FailureScope, StatusScope, ToolError, ToolStatusInfo};

use super::{threads, tools::ToolPath};
use crate::{
    app::App,
    extract::{Body, Params},
    json::Json,
    problem::{ApiResult, Code, FieldError, Problem},
    route::Route,
    scope::{Access, Principal, Scope},
};

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::POST, "/api/v1/tools/{name}/reports", Access::Needs(Scope::ToolsCall), "tools", report)
            .audited("tool.report")
            .summary("Report the result of an execution that happened elsewhere; one that counts for every thread needs `admin`")
            .json_response::<ToolStatusInfo>(200, "The tool's status now")
            .problems(&[Code::THREAD_NOT_FOUND, Code::FORBIDDEN])
            .refusals(&[ErrorKind::ToolNotFound, ErrorKind::StoreUnavailable]),
    ]
}

/// The result of an execution.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Report {
    /// The thread it belongs to, if any.
    thread_id: Option<String>,
    /// Whether it succeeded. May be omitted if there is an error.
    success: Option<bool>,
    /// The error.
    error: Option<ErrorObject>,
}

/// The error, accepted only as an object: serde would also read an array of its members.
#[derive(Debug, JsonSchema)]
#[schemars(inline)]
struct ErrorObject(ReportedError);

impl<'de> Deserialize<'de> for ErrorObject {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct ObjectVisitor;
        impl<'de> Visitor<'de> for ObjectVisitor {
            type Value = ErrorObject;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with a `message`")
            }
            fn visit_map<M: MapAccess<'de>>(self, members: M) -> Result<ErrorObject, M::Error> {
                ReportedError::deserialize(MapAccessDeserializer::new(members)).map(ErrorObject)
            }
        }
        from.deserialize_map(ObjectVisitor)
    }
}

/// The error of an execution.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ReportedError {
    /// Its kind.
    #[serde(default)]
    kind: ReportedErrorKind,
    /// What happened, for operators.
    message: String,
    /// Whether it counts against the tool; by default as its kind says. `false` for a tool that works and refused the
    /// call.
    counts: Option<bool>,
    /// How long the upstream asked to wait.
    #[schemars(range(max = 86_400_000))]
    retry_after_ms: Option<u32>,
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

async fn report(
    State(app): State<App>,
    principal: Principal,
    Params(ToolPath { name }): Params<ToolPath>,
    Body(report): Body<Report>,
) -> ApiResult<Json<ToolStatusInfo>> {
    let tool = super::stats::find_tool(&app, &name)?;
    let result = parse_result(report.success, report.error.map(|ErrorObject(reported)| reported))?;
    authorize(&principal, report.thread_id.is_some(), &result)?;
    let thread = match &report.thread_id {
        Some(id) => Some(threads::find(&app, &principal.tenant, id).await?.id),
        None => None,
    };
    let view = thread.as_ref().map_or(StatusScope::Shared, |thread| StatusScope::Thread(&principal.tenant, thread));
    Ok(Json(app.hub().report_result(&tool.definition.name, view, result).await?))
}

fn parse_result(success: Option<bool>, error: Option<ReportedError>) -> ApiResult<Result<(), ToolError>> {
    let invalid = |pointer: &str, detail: &str| {
        let field_error = FieldError { pointer: pointer.into(), detail: detail.into() };
        Err(Problem::new(Code::INVALID_REQUEST, detail).with("errors", [field_error]))
    };
    match (success, error) {
        (Some(true), None) => Ok(Ok(())),
        (Some(true), Some(_)) => invalid("/error", "an execution that succeeded has no error"),
        (None, None) => invalid("", "send `\"success\": true`, or an `error`"),
        (Some(false), None) => Ok(Err(ToolError::new("the execution failed elsewhere, without details"))),
        (_, Some(reported)) if reported.retry_after_ms.is_some_and(|wait| wait > 86_400_000) => {
            invalid("/error/retryAfterMs", "`retryAfterMs` must be at most a day, 86400000")
        }
        (_, Some(reported)) => {
            let mut error = ToolError::with_kind(reported.kind.into(), reported.message);
            if let Some(wait) = reported.retry_after_ms {
                error = error.retryable(Some(Duration::from_millis(wait.into())));
            }
            let counted = error.counts();
            match reported.counts {
                Some(false) => Ok(Err(error.uncounted())),
                Some(true) if !counted => invalid("/error/counts", "an error of this kind never counts against a tool"),
                _ => Ok(Err(error)),
            }
        }
    }
}

/// Requires `admin` for a report that counts for every thread: otherwise a key that may only call tools could disable a
/// tool for all others.
fn authorize(principal: &Principal, in_thread: bool, result: &Result<(), ToolError>) -> ApiResult<()> {
    let affects_all_threads = match result {
        Ok(()) => !in_thread,
        Err(error) => !in_thread || (error.counts() && error.kind().row().scope != FailureScope::Thread),
    };
    if affects_all_threads && !principal.has_scope(Scope::Admin) {
        let why = "a report that counts for every thread needs the scope `admin`";
        return Err(Problem::new(Code::FORBIDDEN, why).hint("name a thread, and the kind `tool_error` or `crashed`"));
    }
    Ok(())
}

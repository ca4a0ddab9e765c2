//! How executions went that somebody else made. They count like those made here.

use std::{fmt, time::Duration};

use axum::{extract::State, http::Method};
use schemars::JsonSchema;
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor, value::MapAccessDeserializer},
};
use toolhub_core::{ErrorKind, FailureScope, StatusScope, ToolError, ToolStatusInfo};

use super::{stats::ToolPath, threads};
use crate::{
    app::App,
    extract::{Body, Params},
    json::Json,
    problem::{ApiResult, Code, Flaw, Problem},
    route::Route,
    scope::{Access, Principal, Scope},
};

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::POST, "/api/v1/tools/{name}/reports", Access::Needs(Scope::ToolsCall), "tools", report)
            .audited("tool.report")
            .summary("Tell how an execution went that was made elsewhere; what counts for every thread needs `admin`")
            .json_response::<ToolStatusInfo>(200, "The tool's status now")
            .problems(&[Code::THREAD_NOT_FOUND, Code::FORBIDDEN])
            .refusals(&[ErrorKind::ToolNotFound, ErrorKind::StoreUnavailable]),
    ]
}

/// How an execution went.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Report {
    /// The thread it was made in; none where it belongs to no thread.
    thread_id: Option<String>,
    /// It succeeded. May be left out where there is an error.
    success: Option<bool>,
    /// What went wrong.
    error: Option<ErrorObject>,
}

/// What went wrong, told as an object and not as a list of what is in it.
#[derive(Debug, JsonSchema)]
#[schemars(inline)]
struct ErrorObject(Wrong);

impl<'de> Deserialize<'de> for ErrorObject {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct ObjectVisitor;
        impl<'de> Visitor<'de> for ObjectVisitor {
            type Value = ErrorObject;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with a `message`")
            }
            fn visit_map<M: MapAccess<'de>>(self, members: M) -> Result<ErrorObject, M::Error> {
                Wrong::deserialize(MapAccessDeserializer::new(members)).map(ErrorObject)
            }
        }
        from.deserialize_map(ObjectVisitor)
    }
}

/// What went wrong.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Wrong {
    /// The kind of error.
    #[serde(default)]
    kind: ReportedErrorKind,
    /// What happened, for operators.
    message: String,
    /// Whether it speaks against the tool; as the kind says where absent. `false` for a tool that works and said no.
    counts: Option<bool>,
    /// How long the other side asked to wait.
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
    who: Principal,
    Params(ToolPath { name }): Params<ToolPath>,
    Body(report): Body<Report>,
) -> ApiResult<Json<ToolStatusInfo>> {
    let tool = super::stats::find_tool(&app, &name)?;
    let result = parse_result(report.success, report.error.map(|ErrorObject(wrong)| wrong))?;
    authorize(&who, report.thread_id.is_some(), &result)?;
    let thread = match &report.thread_id {
        Some(id) => Some(threads::find(&app, &who.tenant, id).await?.id),
        None => None,
    };
    let view = thread.as_ref().map_or(StatusScope::Shared, |thread| StatusScope::Thread(&who.tenant, thread));
    Ok(Json(app.hub().report_result(&tool.definition.name, view, result).await?))
}

fn parse_result(success: Option<bool>, error: Option<Wrong>) -> ApiResult<Result<(), ToolError>> {
    let refused = |pointer: &str, detail: &str| {
        let flaw = Flaw { pointer: pointer.into(), detail: detail.into() };
        Err(Problem::new(Code::INVALID_REQUEST, detail).with("errors", [flaw]))
    };
    match (success, error) {
        (Some(true), None) => Ok(Ok(())),
        (Some(true), Some(_)) => refused("/error", "an execution that succeeded has no error"),
        (None, None) => refused("", "say `\"success\": true`, or what the `error` was"),
        (Some(false), None) => Ok(Err(ToolError::new("it failed elsewhere; nobody said how"))),
        (_, Some(wrong)) if wrong.retry_after_ms.is_some_and(|wait| wait > 86_400_000) => {
            refused("/error/retryAfterMs", "`retryAfterMs` is at most a day, 86400000")
        }
        (_, Some(wrong)) => {
            let mut error = ToolError::with_kind(wrong.kind.into(), wrong.message);
            if let Some(wait) = wrong.retry_after_ms {
                error = error.retryable(Some(Duration::from_millis(wait.into())));
            }
            let counted = error.counts();
            match wrong.counts {
                Some(false) => Ok(Err(error.uncounted())),
                Some(true) if !counted => refused("/error/counts", "an error of this kind never speaks against a tool"),
                _ => Ok(Err(error)),
            }
        }
    }
}

/// Whoever may only call tools could otherwise take one away from all others by telling tales.
fn authorize(who: &Principal, in_thread: bool, result: &Result<(), ToolError>) -> ApiResult<()> {
    let everybody = match result {
        Ok(()) => !in_thread,
        Err(error) => !in_thread || (error.counts() && error.kind().row().scope != FailureScope::Thread),
    };
    if everybody && !who.has_scope(Scope::Admin) {
        let why = "a report that counts for every thread needs the scope `admin`";
        return Err(Problem::new(Code::FORBIDDEN, why).hint("name a thread, and the kind `tool_error` or `crashed`"));
    }
    Ok(())
}

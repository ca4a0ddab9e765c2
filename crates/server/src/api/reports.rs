//! `POST /tools/{name}/reports`: health reports about executions outside the hub; they count for the tool's status, and no
//! call is involved.

use axum::{extract::State, http::Method};
use schemars::JsonSchema;
use serde::Deserialize;
use toolhub_core::{ErrorKind, StatusScope, ToolError, ToolStatusInfo, ids::ThreadId};

use super::{
    reported_error::{self, ReportedError, invalid},
    tools::ToolPath,
};
use crate::{
    app::App,
    extract::{Body, Params},
    json::Json,
    problem::{ApiResult, Code},
    route::Route,
    scope::{Access, Principal, Scope},
};

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::POST, "/api/v1/tools/{name}/reports", Access::Needs(Scope::ToolsCall), "tools", report)
            .audited("tool.report")
            .summary("Report the result of an execution that happened elsewhere; one that counts for every thread needs `admin`")
            .json_response::<ToolStatusInfo>(200, "The tool's status now")
            .problems(&[Code::FORBIDDEN])
            .refusals(&[ErrorKind::ToolNotFound, ErrorKind::StoreUnavailable]),
    ]
}

/// The result of an execution.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Report {
    /// The thread it belongs to, if any.
    /// A thread that does not exist is created, as by a call.
    thread_id: Option<ThreadId>,
    /// Whether it succeeded. May be omitted if there is an error.
    success: Option<bool>,
    /// The error: a text, or an object with a `message` and more.
    error: Option<ReportedError>,
}

async fn report(
    State(app): State<App>,
    principal: Principal,
    Params(ToolPath { name }): Params<ToolPath>,
    Body(report): Body<Report>,
) -> ApiResult<Json<ToolStatusInfo>> {
    let tool = super::stats::find_tool(&app, &name)?;
    let result = parse_result(report.success, report.error)?;
    authorize(&principal, report.thread_id.is_some(), &result)?;
    let thread = report.thread_id;
    let view = thread.as_ref().map_or(StatusScope::Shared, |thread| StatusScope::Thread(&principal.tenant, thread));
    Ok(Json(app.hub().report_result(&tool.definition.name, view, result).await?))
}

fn parse_result(success: Option<bool>, error: Option<ReportedError>) -> ApiResult<Result<(), ToolError>> {
    match (success, error) {
        (Some(true), None) => Ok(Ok(())),
        (Some(true), Some(_)) => Err(invalid("/error", "an execution that succeeded has no error")),
        (None, None) => Err(invalid("", "send `\"success\": true`, or an `error`")),
        (Some(false), None) => Ok(Err(ToolError::new("the execution failed elsewhere, without details"))),
        (_, Some(reported)) => reported.into_error().map(Err),
    }
}

/// Requires `admin` for a report that counts for every thread: otherwise a key that may only call tools could disable a
/// tool for all others.
fn authorize(principal: &Principal, in_thread: bool, result: &Result<(), ToolError>) -> ApiResult<()> {
    match result {
        Err(error) if in_thread => reported_error::authorize(principal, error),
        Ok(()) if in_thread => Ok(()),
        _ if principal.has_scope(Scope::Admin) => Ok(()),
        _ => Err(reported_error::needs_admin()),
    }
}

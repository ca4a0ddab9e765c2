//! Calls: made, listed, looked up, followed and cancelled.

mod event_stream;
mod rate_limit_headers;
mod submission;
mod view;

use axum::{
    extract::State,
    http::{Method, StatusCode},
    response::IntoResponse,
};
use schemars::JsonSchema;
use serde::Deserialize;
use toolhub_core::{
    CallQuery, CallQueryError, Cancellation, ErrorKind, Status, ToolName,
    clock::Timestamp,
    ids::{CallId, Caller, RunId, Tenant, ThreadId},
};

use crate::{
    app::App,
    duration_param::DurationParam,
    extract::{Params, Query},
    json::Json,
    links::Links,
    page::{self, List, RequestUri, list_query},
    problem::{ApiResult, Code, Problem},
    route::Route,
    scope::{Access, Principal, Scope},
};
use view::Detail;
pub(super) use view::{ApprovalLink, CallView};

/// Why a call may be refused before its tool runs.
pub(super) const REFUSALS: &[ErrorKind] = &[
    ErrorKind::ToolNotFound,
    ErrorKind::ArgumentsInvalid,
    ErrorKind::DependencyNotMet,
    ErrorKind::RateLimited,
    ErrorKind::Overloaded,
    ErrorKind::ApprovalRequired,
    ErrorKind::ApprovalDenied,
    ErrorKind::ApprovalTimeout,
    ErrorKind::Forbidden,
    ErrorKind::IdempotencyKeyReused,
    ErrorKind::IdempotencyInProgress,
    ErrorKind::ToolFailedStatus,
    ErrorKind::ToolMaintenance,
    ErrorKind::ToolUnavailable,
    ErrorKind::StateConflict,
    ErrorKind::StateLimit,
    ErrorKind::StateUnreadable,
    ErrorKind::StoreUnavailable,
    ErrorKind::ShuttingDown,
];

pub(super) fn routes() -> Vec<Route> {
    let (read, call) = (Access::Needs(Scope::ToolsRead), Access::Needs(Scope::ToolsCall));
    vec![
        Route::new(Method::POST, "/api/v1/tools/{name}/calls", call, "calls", submission::call)
            .handles_idempotency()
            .response_header(&[200, 202, 429], "RateLimit-Policy", "The rate limits of the tool, if it has any.")
            .response_header(&[200, 202, 429], "RateLimit", "The remaining quota, and when it resets.")
            .summary("Call a tool")
            .json_response::<CallView>(200, "The call ran; the body has its outcome")
            .json_response::<CallView>(
                202,
                "The call continues in the background, or waits for an approval; poll `Location` for its outcome",
            )
            .problems(&[Code::INVALID_KEY])
            .refusals(REFUSALS),
        Route::new(Method::GET, "/api/v1/calls", read, "calls", list)
            .summary("Calls, newest first")
            .json_response::<List<CallView>>(200, "A page of calls")
            .refusals(&[ErrorKind::StoreUnavailable]),
        Route::new(Method::GET, "/api/v1/calls/{id}", read, "calls", get)
            .summary("One call")
            .json_response::<CallView>(200, "Its progress or its outcome, and its timeline")
            .problems(&[Code::CALL_NOT_FOUND])
            .refusals(&[ErrorKind::StoreUnavailable]),
        Route::new(Method::POST, "/api/v1/calls/{id}/cancel", call, "calls", cancel)
            .summary("Cancel a call")
            .json_response::<CallView>(
                202,
                "Cancellation was requested; the call still gets an outcome, and a result that was faster wins",
            )
            .problems(&[Code::CALL_NOT_FOUND, Code::CALL_ENDED, Code::CONFLICT])
            .refusals(&[ErrorKind::StoreUnavailable]),
        Route::new(Method::GET, "/api/v1/calls/{id}/events", read, "calls", event_stream::follow)
            .summary("Follow one call: its progress, then its outcome")
            .response(200, "text/event-stream", "Events; the last one is `call.ended`")
            .problems(&[Code::CALL_NOT_FOUND])
            .refusals(&[ErrorKind::StoreUnavailable]),
    ]
}

/// A call in a path.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct CallPath {
    /// The call.
    pub(super) id: String,
}

impl CallPath {
    pub(super) fn parse_id(&self) -> ApiResult<CallId> {
        self.id.parse().map_err(|_| not_found(&self.id))
    }
}

pub(super) fn not_found(id: &str) -> Problem {
    Problem::new(Code::CALL_NOT_FOUND, format!("there is no call `{id}`, or its record is no longer stored"))
}

list_query! {
    /// Which calls to list.
    struct CallsQuery {
        /// Only calls of this tool.
        tool: Option<ToolName>,
        /// Only calls in this thread.
        thread_id: Option<ThreadId>,
        /// Only calls with this status: `executing` for open ones, or one of the three terminal ones.
        status: Option<Status>,
        /// Only calls that ended with this error code.
        code: Option<ErrorKind>,
        /// Only calls that this key made; `local` without keys.
        caller: Option<Caller>,
        /// Only calls of this agent run.
        run_id: Option<RunId>,
        /// Only ended calls that took longer than this, such as `500ms` or `2s`. A page of such a search may have fewer
        /// calls than `limit`, even none, without being the last.
        slower_than: Option<DurationParam>,
        /// `short` leaves out arguments, output and content; without it, long ones are shortened.
        #[serde(default)]
        view: Detail,
        /// Only calls that arrived at this time or later.
        since: Option<Timestamp>,
        /// Only calls that arrived before this time.
        until: Option<Timestamp>,
    }
}

async fn list(
    State(app): State<App>,
    principal: Principal,
    Query(query): Query<CallsQuery>,
    links: Links,
    uri: RequestUri,
) -> ApiResult<impl IntoResponse> {
    let detail = query.view;
    let query = CallQuery {
        tool: query.tool,
        thread: query.thread_id,
        status: query.status,
        code: query.code,
        caller: query.caller,
        run: query.run_id,
        slower_than: query.slower_than.map(|DurationParam(duration)| duration),
        from: query.since,
        until: query.until,
        limit: query.limit.get(),
        cursor: page::decode_cursor(query.cursor.as_ref(), "calls")?,
    };
    let matches = app.hub().calls(&principal.tenant, &query).await.map_err(|error| match error {
        CallQueryError::Store(error) => error.into(),
        _ => page::unknown_position(),
    })?;
    let view = |record| CallView::from_record(record, &links).with_detail(detail);
    let calls = matches.calls.into_iter().map(view).collect();
    let position = |calls: &[CallView]| calls.last().map(|last| last.id().to_string()).unwrap_or_default();
    Ok(uri.bounded_list_response("calls", calls, matches.next, position))
}

async fn get(
    State(app): State<App>,
    principal: Principal,
    Params(path): Params<CallPath>,
    links: Links,
) -> ApiResult<Json<CallView>> {
    let id = path.parse_id()?;
    let record = app.hub().call_record(&principal.tenant, id).await?.ok_or_else(|| not_found(&path.id))?;
    let timeline = app.hub().call_timeline(&principal.tenant, &record).await?;
    Ok(Json(CallView::from_record(record, &links).with_timeline(timeline)))
}

async fn cancel(
    State(app): State<App>,
    principal: Principal,
    Params(path): Params<CallPath>,
    links: Links,
) -> ApiResult<(StatusCode, Json<CallView>)> {
    let id = path.parse_id()?;
    // A call that is refused before its tool runs leaves no record: this view is then the last that is known of it.
    let before = find(&app, &principal.tenant, id, &links).await?;
    match app.hub().cancel_call(&principal.tenant, id).await? {
        Cancellation::Requested => {}
        Cancellation::NotFound => return Err(not_found(&path.id)),
        Cancellation::AlreadyEnded(status) => {
            return Err(Problem::new(Code::CALL_ENDED, format!("`{id}` has ended already")).with("callStatus", status));
        }
        _ => {
            return Err(Problem::new(
                Code::CONFLICT,
                format!("`{id}` is open but does not run: its outcome is not stored yet, or it goes on later"),
            ));
        }
    }
    let view = find(&app, &principal.tenant, id, &links).await?.or(before).ok_or_else(|| not_found(&path.id))?;
    Ok((StatusCode::ACCEPTED, Json(view)))
}

/// Looks up a call, if there is a record of it.
pub(super) async fn find(app: &App, tenant: &Tenant, id: CallId, links: &Links) -> ApiResult<Option<CallView>> {
    let record = app.hub().call_record(tenant, id).await?;
    Ok(record.map(|record| CallView::from_record(record, links)))
}

//! Calls: made, looked up, followed, cancelled.

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
    ids::{CallId, Tenant, ThreadId},
};

use crate::{
    app::App,
    extract::{Params, Query},
    json::Json,
    links::Links,
    page::{self, List, RequestUri, list_query},
    problem::{ApiResult, Code, Problem},
    route::Route,
    scope::{Access, Principal, Scope},
};
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
            .response_header(&[200, 202, 429], "RateLimit-Policy", "The rates of the tool, where it has any.")
            .response_header(&[200, 202, 429], "RateLimit", "What is left of them, and until when.")
            .summary("Call a tool")
            .json_response::<CallView>(200, "The call ran; how it ended is in it")
            .json_response::<CallView>(
                202,
                "The call goes on alone, or waits for a person; look at `Location` for its end",
            )
            .problems(&[Code::INVALID_KEY])
            .refusals(REFUSALS),
        Route::new(Method::GET, "/api/v1/calls", read, "calls", list)
            .summary("Calls, the newest first")
            .json_response::<List<CallView>>(200, "A page of them")
            .refusals(&[ErrorKind::StoreUnavailable]),
        Route::new(Method::GET, "/api/v1/calls/{id}", read, "calls", get)
            .summary("One call")
            .json_response::<CallView>(200, "Where it is, or how it ended")
            .problems(&[Code::CALL_NOT_FOUND])
            .refusals(&[ErrorKind::StoreUnavailable]),
        Route::new(Method::POST, "/api/v1/calls/{id}/cancel", call, "calls", cancel)
            .summary("Ask a call to stop")
            .json_response::<CallView>(202, "It was asked; it still has an end, and a result that was faster wins")
            .problems(&[Code::CALL_NOT_FOUND, Code::CALL_ENDED, Code::CONFLICT])
            .refusals(&[ErrorKind::StoreUnavailable]),
        Route::new(Method::GET, "/api/v1/calls/{id}/events", read, "calls", event_stream::follow)
            .summary("Follow one call: its progress, then its end")
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
    Problem::new(Code::CALL_NOT_FOUND, format!("there is no call `{id}`, or nothing is kept of it"))
}

list_query! {
    /// Which calls are wanted.
    struct CallsQuery {
        /// Only calls of this tool.
        tool: Option<ToolName>,
        /// Only calls in this thread.
        thread_id: Option<ThreadId>,
        /// Only calls that are here on their way: `executing` for those that are open, or one of the three ends.
        status: Option<Status>,
        /// Only calls that arrived at this moment or later.
        since: Option<Timestamp>,
        /// Only calls that arrived before this moment.
        until: Option<Timestamp>,
    }
}

async fn list(
    State(app): State<App>,
    principal: Principal,
    Query(query): Query<CallsQuery>,
    links: Links,
    here: RequestUri,
) -> ApiResult<impl IntoResponse> {
    let query = CallQuery {
        tool: query.tool,
        thread: query.thread_id,
        status: query.status,
        from: query.since,
        until: query.until,
        limit: query.limit.get(),
        cursor: page::decode_cursor(query.cursor.as_ref(), "calls")?,
        ..CallQuery::default()
    };
    let found = app.hub().calls(&principal.tenant, &query).await.map_err(|error| match error {
        CallQueryError::Store(error) => error.into(),
        _ => page::unknown_position(),
    })?;
    let calls = found.calls.into_iter().map(|record| CallView::from_record(record, &links)).collect();
    Ok(here.list_response("calls", calls, found.next))
}

async fn get(
    State(app): State<App>,
    principal: Principal,
    Params(named): Params<CallPath>,
    links: Links,
) -> ApiResult<Json<CallView>> {
    let id = named.parse_id()?;
    find(&app, &principal.tenant, id, &links).await?.map(Json).ok_or_else(|| not_found(&named.id))
}

async fn cancel(
    State(app): State<App>,
    principal: Principal,
    Params(named): Params<CallPath>,
    links: Links,
) -> ApiResult<(StatusCode, Json<CallView>)> {
    let id = named.parse_id()?;
    // One that was refused before its tool ran leaves no record: then this is the last that is known of it.
    let before = find(&app, &principal.tenant, id, &links).await?;
    match app.hub().cancel_call(&principal.tenant, id).await? {
        Cancellation::Requested => {}
        Cancellation::NotFound => return Err(not_found(&named.id)),
        Cancellation::AlreadyEnded(status) => {
            return Err(Problem::new(Code::CALL_ENDED, format!("`{id}` has ended already")).with("callStatus", status));
        }
        _ => return Err(Problem::new(Code::CONFLICT, format!("`{id}` is run by another node; ask that one"))),
    }
    let view = find(&app, &principal.tenant, id, &links).await?.or(before).ok_or_else(|| not_found(&named.id))?;
    Ok((StatusCode::ACCEPTED, Json(view)))
}

/// A call as it is now, if anything is known of it.
pub(super) async fn find(app: &App, tenant: &Tenant, id: CallId, links: &Links) -> ApiResult<Option<CallView>> {
    let record = app.hub().call_record(tenant, id).await?;
    Ok(record.map(|record| CallView::from_record(record, links)))
}

//! Calls: made, looked up, followed, cancelled.

mod follow;
mod make;
mod rates;
mod view;

use axum::{
    extract::State,
    http::{Method, StatusCode},
    response::IntoResponse,
};
use schemars::JsonSchema;
use serde::Deserialize;
use toolhub_core::{
    CallQuery, CallQueryError, Cancel, ErrorKind, Status, ToolName,
    clock::Timestamp,
    ids::{CallId, Tenant, ThreadId},
};

use crate::{
    app::App,
    extract::{Params, Query},
    json::Json,
    links::Links,
    page::{self, Here, List, list_query},
    problem::{Answer, Code, Problem},
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
        Route::new(Method::POST, "/api/v1/tools/{name}/calls", call, "calls", make::call)
            .minds_repetitions()
            .gives(&[200, 202, 429], "RateLimit-Policy", "The rates of the tool, where it has any.")
            .gives(&[200, 202, 429], "RateLimit", "What is left of them, and until when.")
            .says("Call a tool")
            .answers::<CallView>(200, "The call ran; how it ended is in it")
            .answers::<CallView>(202, "The call goes on alone, or waits for a person; look at `Location` for its end")
            .problems(&[Code::INVALID_KEY])
            .refusals(REFUSALS),
        Route::new(Method::GET, "/api/v1/calls", read, "calls", list)
            .says("Calls, the newest first")
            .answers::<List<CallView>>(200, "A page of them")
            .refusals(&[ErrorKind::StoreUnavailable]),
        Route::new(Method::GET, "/api/v1/calls/{id}", read, "calls", get)
            .says("One call")
            .answers::<CallView>(200, "Where it is, or how it ended")
            .problems(&[Code::CALL_NOT_FOUND])
            .refusals(&[ErrorKind::StoreUnavailable]),
        Route::new(Method::POST, "/api/v1/calls/{id}/cancel", call, "calls", cancel)
            .says("Ask a call to stop")
            .answers::<CallView>(202, "It was asked; it still has an end, and a result that was faster wins")
            .problems(&[Code::CALL_NOT_FOUND, Code::CALL_ENDED, Code::CONFLICT])
            .refusals(&[ErrorKind::StoreUnavailable]),
        Route::new(Method::GET, "/api/v1/calls/{id}/events", read, "calls", follow::follow)
            .says("Follow one call: its progress, then its end")
            .answers_as(200, "text/event-stream", "Events; the last one is `call.ended`")
            .problems(&[Code::CALL_NOT_FOUND])
            .refusals(&[ErrorKind::StoreUnavailable]),
    ]
}

/// A call in a path.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct OfCall {
    /// The call.
    pub(super) id: String,
}

impl OfCall {
    pub(super) fn id(&self) -> Answer<CallId> {
        self.id.parse().map_err(|_| unknown(&self.id))
    }
}

pub(super) fn unknown(id: &str) -> Problem {
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
    here: Here,
) -> Answer<impl IntoResponse> {
    let query = CallQuery {
        tool: query.tool,
        thread: query.thread_id,
        status: query.status,
        from: query.since,
        until: query.until,
        limit: query.limit.get(),
        cursor: page::place(query.cursor.as_ref(), "calls")?,
        ..CallQuery::default()
    };
    let found = app.hub().calls(&principal.tenant, &query).await.map_err(|error| match error {
        CallQueryError::Store(error) => error.into(),
        _ => page::no_such_place(),
    })?;
    let calls = found.calls.into_iter().map(|record| CallView::kept(record, &links)).collect();
    Ok(here.list("calls", calls, found.next))
}

async fn get(
    State(app): State<App>,
    principal: Principal,
    Params(named): Params<OfCall>,
    links: Links,
) -> Answer<Json<CallView>> {
    let id = named.id()?;
    find(&app, &principal.tenant, id, &links).await?.map(Json).ok_or_else(|| unknown(&named.id))
}

async fn cancel(
    State(app): State<App>,
    principal: Principal,
    Params(named): Params<OfCall>,
    links: Links,
) -> Answer<(StatusCode, Json<CallView>)> {
    let id = named.id()?;
    // One that was refused before its tool ran leaves no record: then this is the last that is known of it.
    let before = find(&app, &principal.tenant, id, &links).await?;
    match app.hub().cancel(&principal.tenant, id).await? {
        Cancel::Asked => {}
        Cancel::NotFound => return Err(unknown(&named.id)),
        Cancel::Ended(status) => {
            return Err(Problem::new(Code::CALL_ENDED, format!("`{id}` has ended already")).with("callStatus", status));
        }
        _ => return Err(Problem::new(Code::CONFLICT, format!("`{id}` is run by another node; ask that one"))),
    }
    let view = find(&app, &principal.tenant, id, &links).await?.or(before).ok_or_else(|| unknown(&named.id))?;
    Ok((StatusCode::ACCEPTED, Json(view)))
}

/// A call as it is now, if anything is known of it.
pub(super) async fn find(app: &App, tenant: &Tenant, id: CallId, links: &Links) -> Answer<Option<CallView>> {
    let record = app.hub().call_record(tenant, id).await?;
    Ok(record.map(|record| CallView::kept(record, links)))
}

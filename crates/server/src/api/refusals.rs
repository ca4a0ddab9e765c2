//! The latest refused calls of this process.

use axum::{extract::State, http::Method, response::IntoResponse};
use toolhub_core::{ErrorKind, Refusal, ids::ThreadId};

use crate::{
    app::App,
    extract::Query,
    page::{self, List, RequestUri, list_query},
    problem::ApiResult,
    route::Route,
    scope::{Access, Principal, Scope},
};

const LIST_NAME: &str = "refusals";

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/api/v1/refusals", Access::Needs(Scope::ToolsRead), "calls", list)
            .summary(
                "Calls that were refused before they reached their tool, newest first; the last 10,000 of this process",
            )
            .json_response::<List<Refusal>>(200, "A page of refused calls of the key's tenant"),
    ]
}

list_query! {
    /// Which refused calls to list.
    struct RefusalsQuery {
        /// Only calls of this tool, named as the callers wrote it.
        tool: Option<String>,
        /// Only calls of this thread.
        thread_id: Option<ThreadId>,
        /// Only calls of this caller.
        caller: Option<String>,
        /// Only calls with this error code.
        code: Option<ErrorKind>,
    }
}

async fn list(
    State(app): State<App>,
    principal: Principal,
    Query(query): Query<RefusalsQuery>,
    uri: RequestUri,
) -> ApiResult<impl IntoResponse> {
    let before = page::decode_cursor_as(query.cursor.as_ref(), LIST_NAME)?;
    let is_wanted = |refusal: &Refusal| {
        refusal.tenant == principal.tenant
            && query.tool.as_ref().is_none_or(|tool| *refusal.tool == **tool)
            && query.thread_id.as_ref().is_none_or(|thread| refusal.thread_id.as_ref() == Some(thread))
            && query.caller.as_ref().is_none_or(|caller| refusal.caller.as_str() == caller)
            && query.code.is_none_or(|code| refusal.code == code.name())
    };
    let mut refusals = app.hub().refusals(before, query.limit.plus_one(), is_wanted);
    let next = query.limit.truncate(&mut refusals).map(|last| last.number.to_string());
    Ok(uri.list_response(LIST_NAME, refusals, next))
}

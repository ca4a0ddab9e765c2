//! Which contexts there are, without what is remembered in them.

use axum::{extract::State, http::Method};
use toolhub_core::{
    ContextFilter, ContextInfo, ErrorKind,
    ids::{IdError, StateName, ThreadId},
};

use super::{READ_ACCESS, entry::state_problem};
use crate::{
    app::App,
    extract::Query,
    page::{self, List, ListResponse, RequestUri, list_query},
    problem::{ApiResult, Code, Problem},
    route::Route,
    scope::Principal,
};

const LIST_NAME: &str = "contexts";
/// Stands between the state and the place in a cursor; no name may hold it.
const CURSOR_SEPARATOR: char = '|';
/// How often the core is asked for one page: of what has expired, many rows may make few contexts.
const MAX_SCANS_PER_PAGE: usize = 20;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/api/v1/state/contexts", READ_ACCESS, "state", list)
            .summary("Which contexts there are, and which kinds of state each holds")
            .json_response::<List<ContextInfo>>(200, "A page of them, by the name of their state")
            .refusals(&[ErrorKind::StateUnreadable, ErrorKind::StoreUnavailable]),
    ]
}

list_query! {
    /// Which contexts are query.
    struct ContextsQuery {
        /// Only those of this thread.
        thread_id: Option<String>,
        /// Only those of the states of this tool, or, where no tool has the name, of the state of this name.
        tool: Option<String>,
    }
}

async fn list(
    State(app): State<App>,
    who: Principal,
    Query(query): Query<ContextsQuery>,
    here: RequestUri,
) -> ApiResult<ListResponse<ContextInfo>> {
    let wrong = |wrong: IdError| Problem::new(Code::INVALID_REQUEST, wrong.to_string());
    let thread = query.thread_id.map(ThreadId::new).transpose().map_err(wrong)?;
    let states = states_to_list(&app, query.tool).map_err(wrong)?;
    let place = page::decode_cursor(query.cursor.as_ref(), LIST_NAME)?;
    let (mut at, mut cursor) = start_position(&states, place.as_deref()).ok_or_else(page::unknown_position)?;
    let mut found: Vec<ContextInfo> = Vec::new();
    for _ in 0..MAX_SCANS_PER_PAGE {
        let Some(state) = states.get(at) else { break };
        let limit = query.limit.get() - found.len();
        let filter = ContextFilter { tool_type: state.clone(), thread: thread.clone(), limit };
        let page =
            app.hub().state().list_contexts(&who.tenant, &filter, cursor.as_deref()).await.map_err(state_problem)?;
        found.extend(page.contexts);
        cursor = page.next;
        if cursor.is_none() {
            at += 1;
        }
        if found.len() >= query.limit.get() {
            break;
        }
    }
    let name = |state: &Option<StateName>| state.as_ref().map_or_else(String::new, ToString::to_string);
    let next = states.get(at).map(|state| format!("{}{CURSOR_SEPARATOR}{}", name(state), cursor.unwrap_or_default()));
    Ok(here.list_response(LIST_NAME, found, next))
}

/// The states to be listed, one after the other; one without a name for all.
fn states_to_list(app: &App, tool: Option<String>) -> Result<Vec<Option<StateName>>, IdError> {
    let Some(name) = tool else { return Ok(vec![None]) };
    let mut named: Vec<StateName> = app.hub().get(&name).map(|tool| tool.states().to_vec()).unwrap_or_default();
    if named.is_empty() {
        named.push(StateName::new(name)?);
    }
    named.sort();
    Ok(named.into_iter().map(Some).collect())
}

/// Which state a page begins with, and where in its list; `None` where a cursor names no such place.
fn start_position(states: &[Option<StateName>], place: Option<&str>) -> Option<(usize, Option<String>)> {
    let Some(place) = place else { return Some((0, None)) };
    let (name, cursor) = place.split_once(CURSOR_SEPARATOR)?;
    let at = states.iter().position(|state| state.as_ref().map_or("", StateName::as_str) == name)?;
    Some((at, (!cursor.is_empty()).then(|| cursor.to_owned())))
}

//! The list of state contexts, without their data.

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
/// Separates the state's name from the position in a cursor; no name may contain it.
const CURSOR_SEPARATOR: char = '|';
/// Largest number of scans for one page: many expired rows may yield few contexts.
const MAX_SCANS_PER_PAGE: usize = 20;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/api/v1/state/contexts", READ_ACCESS, "state", list)
            .summary("State contexts, and the kinds of state in each")
            .json_response::<List<ContextInfo>>(200, "A page of contexts, by the name of their state")
            .refusals(&[ErrorKind::StateUnreadable, ErrorKind::StoreUnavailable]),
    ]
}

list_query! {
    /// Which contexts to list.
    struct ContextsQuery {
        /// Only those of this thread.
        thread_id: Option<String>,
        /// Only those of this tool's states, or, if no tool has the name, of the state with this name.
        tool: Option<String>,
    }
}

async fn list(
    State(app): State<App>,
    principal: Principal,
    Query(query): Query<ContextsQuery>,
    uri: RequestUri,
) -> ApiResult<ListResponse<ContextInfo>> {
    let invalid = |error: IdError| Problem::new(Code::INVALID_REQUEST, error.to_string());
    let thread = query.thread_id.map(ThreadId::new).transpose().map_err(invalid)?;
    let states = states_to_list(&app, query.tool).map_err(invalid)?;
    let position = page::decode_cursor(query.cursor.as_ref(), LIST_NAME)?;
    let (mut index, mut cursor) = start_position(&states, position.as_deref()).ok_or_else(page::unknown_position)?;
    let mut contexts: Vec<ContextInfo> = Vec::new();
    for _ in 0..MAX_SCANS_PER_PAGE {
        let Some(state) = states.get(index) else { break };
        let limit = query.limit.get() - contexts.len();
        let filter = ContextFilter { tool_type: state.clone(), thread: thread.clone(), limit };
        let page = app
            .hub()
            .state()
            .list_contexts(&principal.tenant, &filter, cursor.as_deref())
            .await
            .map_err(state_problem)?;
        contexts.extend(page.contexts);
        cursor = page.next;
        if cursor.is_none() {
            index += 1;
        }
        if contexts.len() >= query.limit.get() {
            break;
        }
    }
    let name = |state: &Option<StateName>| state.as_ref().map_or_else(String::new, ToString::to_string);
    let next =
        states.get(index).map(|state| format!("{}{CURSOR_SEPARATOR}{}", name(state), cursor.unwrap_or_default()));
    Ok(uri.list_response(LIST_NAME, contexts, next))
}

/// The states to list, one after the other; a single `None` stands for all.
fn states_to_list(app: &App, tool: Option<String>) -> Result<Vec<Option<StateName>>, IdError> {
    let Some(name) = tool else { return Ok(vec![None]) };
    let mut states: Vec<StateName> = app.hub().get(&name).map(|tool| tool.states().to_vec()).unwrap_or_default();
    if states.is_empty() {
        states.push(StateName::new(name)?);
    }
    states.sort();
    Ok(states.into_iter().map(Some).collect())
}

/// The state that a page begins with, and the cursor in its list; `None` if the position does not exist.
fn start_position(states: &[Option<StateName>], position: Option<&str>) -> Option<(usize, Option<String>)> {
    let Some(position) = position else { return Some((0, None)) };
    let (name, cursor) = position.split_once(CURSOR_SEPARATOR)?;
    let index = states.iter().position(|state| state.as_ref().map_or("", StateName::as_str) == name)?;
    Some((index, (!cursor.is_empty()).then(|| cursor.to_owned())))
}

//! The list of threads: by id, or by their last activity.

use std::str::FromStr;

use axum::{extract::State, http::Method};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhub_core::{
    ErrorKind, ThreadInfo,
    backend::{self, Partition, RowKey, Table},
    clock::Timestamp,
    ids::{RunId, Tenant, ThreadId},
};

use crate::{
    app::App,
    extract::Query,
    page::{self, List, ListResponse, RequestUri, list_query},
    problem::ApiResult,
    route::Route,
    scope::{Access, Principal, Scope},
};

const LIST_NAME: &str = "threads";
const ACTIVE_LIST_NAME: &str = "active_threads";

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/api/v1/threads", Access::Needs(Scope::ToolsRead), "threads", list)
            .summary("The threads of the key's tenant, by id or by their last activity")
            .json_response::<List<ListedThread>>(200, "A page of threads")
            .refusals(&[ErrorKind::StoreUnavailable]),
    ]
}

list_query! {
    /// Which threads to list, and in which order.
    struct ThreadsQuery {
        /// The order; `id` by default.
        order: Option<ThreadOrder>,
        /// Only threads with this text in their id, ignoring case.
        q: Option<String>,
    }
}

/// The order of threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum ThreadOrder {
    /// By id.
    #[default]
    Id,
    /// The most recently active ones first. A thread that becomes active moves to the first page.
    Active,
}

/// A thread in a list.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct ListedThread {
    #[serde(flatten)]
    info: ThreadInfo,
    /// The agent run that has not ended in it.
    open_run_id: Option<RunId>,
    /// How many approvals of its calls wait for an answer.
    waiting_approvals: usize,
}

/// Where a page by activity ended.
struct ActivePosition(Timestamp, ThreadId);

impl FromStr for ActivePosition {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (millis, thread) = text.split_once(' ').ok_or(())?;
        Ok(Self(Timestamp::from_millis(millis.parse().map_err(drop)?), ThreadId::new(thread).map_err(drop)?))
    }
}

async fn list(
    State(app): State<App>,
    principal: Principal,
    Query(query): Query<ThreadsQuery>,
    uri: RequestUri,
) -> ApiResult<ListResponse<ListedThread>> {
    let tenant = &principal.tenant;
    let text = query.q.as_ref().map(|text| text.to_lowercase()).unwrap_or_default();
    let matches = |thread: &ThreadInfo| thread.id.as_str().to_lowercase().contains(&text);
    let (list_name, threads, next) = match query.order.unwrap_or_default() {
        ThreadOrder::Id => {
            let mut threads = threads_by_id(&app, tenant, &query, matches).await?;
            let next = query.limit.truncate(&mut threads).map(|last| last.id.to_string());
            (LIST_NAME, threads, next)
        }
        ThreadOrder::Active => {
            let after = page::decode_cursor_as(query.cursor.as_ref(), ACTIVE_LIST_NAME)?;
            let after = after.map(|ActivePosition(at, thread)| (at, thread));
            let mut threads = app.hub().recent_threads(tenant, after, query.limit.plus_one(), matches).await?;
            let next = query.limit.truncate(&mut threads);
            let next = next.map(|last| format!("{} {}", last.last_active.millis(), last.id));
            (ACTIVE_LIST_NAME, threads, next)
        }
    };
    let ids: Vec<ThreadId> = threads.iter().map(|thread| thread.id.clone()).collect();
    let open_runs = app.agents().open_runs(tenant, &ids).await?;
    let waiting = app.hub().pending_approvals_by_thread(tenant);
    let listed = threads.into_iter().map(|info| ListedThread {
        open_run_id: open_runs.get(&info.id).copied(),
        waiting_approvals: waiting.get(&info.id).copied().unwrap_or(0),
        info,
    });
    Ok(uri.list_response(list_name, listed.collect(), next))
}

/// The first threads after the cursor, by id; more than the limit if there are more.
async fn threads_by_id(
    app: &App,
    tenant: &Tenant,
    query: &ThreadsQuery,
    matches: impl Fn(&ThreadInfo) -> bool,
) -> ApiResult<Vec<ThreadInfo>> {
    let last = page::decode_cursor(query.cursor.as_ref(), LIST_NAME)?;
    let last = last.map(ThreadId::new).transpose().map_err(|_| page::unknown_position())?;
    let mut after = last.map(|id| backend::Cursor(thread_row_key(tenant, &id)));
    let mut threads = Vec::new();
    loop {
        let page = app.hub().threads(tenant, after).await?;
        threads.extend(page.threads.into_iter().filter(&matches));
        after = page.next;
        if after.is_none() || threads.len() >= query.limit.plus_one() {
            return Ok(threads);
        }
    }
}

/// The row key of a thread: the list is in the order of these.
fn thread_row_key(tenant: &Tenant, id: &ThreadId) -> RowKey {
    let partition = Partition::for_thread(tenant.clone(), id.clone());
    RowKey { partition, table: Table::Threads, id: id.clone().into() }
}

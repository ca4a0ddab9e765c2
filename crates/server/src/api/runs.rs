//! Runs of agents: listed, looked up, followed, cancelled; and the export of a whole thread.

pub(super) mod event_stream;
mod export_stream;
mod filter;

use std::str::FromStr;

use axum::{
    extract::State,
    http::{Method, StatusCode},
    response::Response,
};
use schemars::JsonSchema;
use serde::Deserialize;
use toolhub_agent::{RunCancellation, RunRecord, ThreadExport};
use toolhub_core::{
    ErrorKind,
    ids::{RunId, ThreadId},
};

use super::threads::{self, ThreadPath, truncate};
use crate::{
    app::App,
    extract::{Params, Query},
    json::Json,
    links::Links,
    page::{self, List, ListResponse, RequestUri, list_query},
    problem::{ApiResult, Code, Problem},
    route::Route,
    scope::{Access, Principal, Scope},
    sse,
};

use filter::{RunFilter, fetch_filtered};

const LIST_NAME: &str = "runs";
const ALL_LIST_NAME: &str = "all_runs";

pub(super) fn routes() -> Vec<Route> {
    let (read, call) = (Access::Needs(Scope::ToolsRead), Access::Needs(Scope::ToolsCall));
    vec![
        Route::new(Method::GET, "/api/v1/threads/{id}/runs", read, "agents", list)
            .summary("Runs of a thread, newest first")
            .json_response::<List<RunRecord>>(200, "A page of runs")
            .problems(&[Code::THREAD_NOT_FOUND])
            .refusals(&[ErrorKind::StoreUnavailable]),
        Route::new(Method::GET, "/api/v1/runs", read, "agents", list_all)
            .summary("Runs of all threads of the key's tenant, newest first")
            .json_response::<List<RunRecord>>(200, "A page of runs")
            .refusals(&[ErrorKind::StoreUnavailable]),
        Route::new(Method::GET, "/api/v1/runs/{id}", read, "agents", show)
            .summary("One run")
            .json_response::<RunRecord>(200, "Its progress or its result")
            .problems(&[Code::RUN_NOT_FOUND])
            .refusals(&[ErrorKind::StoreUnavailable]),
        Route::new(Method::GET, "/api/v1/runs/{id}/events", read, "agents", follow)
            .summary("Follow one run: its events from now on, then its end")
            .response(200, "text/event-stream", "Events; the last one is `run.completed` or `run.failed`")
            .problems(&[Code::RUN_NOT_FOUND])
            .refusals(&[ErrorKind::StoreUnavailable]),
        Route::new(Method::POST, "/api/v1/runs/{id}/cancel", call, "agents", cancel)
            .summary("Cancel a run, and its calls with it")
            .json_response::<RunRecord>(
                202,
                "Cancellation was requested; the run still gets a result, and an answer that was faster wins",
            )
            .problems(&[Code::RUN_NOT_FOUND, Code::RUN_ENDED])
            .refusals(&[ErrorKind::StoreUnavailable]),
        Route::new(Method::GET, "/api/v1/threads/{id}/export", Access::Needs(Scope::StateRead), "threads", export)
            .summary("Everything stored for a thread: messages, runs, calls, tool statuses and tool state")
            .json_response::<ThreadExport>(200, "The export; `DELETE /api/v1/threads/{id}` deletes the same data")
            .problems(&[Code::THREAD_NOT_FOUND])
            .refusals(&[ErrorKind::StoreUnavailable]),
    ]
}

list_query! {
    /// Which runs to list.
    struct RunsQuery {
        /// Only runs of this kind. A page of them may have fewer items than `limit`, or none; `nextCursor` goes on.
        status: Option<RunFilter>,
    }
}

/// A run in a path.
#[derive(Debug, Deserialize, JsonSchema)]
struct RunPath {
    /// The run.
    id: String,
}

impl RunPath {
    fn parse_id(&self) -> ApiResult<RunId> {
        self.id.parse().map_err(|_| not_found(&self.id))
    }

    /// The record of the run, with arguments redacted unless the principal may report results.
    async fn find(&self, app: &App, principal: &Principal) -> ApiResult<RunRecord> {
        let record = app.agents().run(&principal.tenant, self.parse_id()?).await?.ok_or_else(|| not_found(&self.id))?;
        Ok(redact_arguments(app, principal, record))
    }
}

/// Redacts the arguments of a run's calls, unless the principal may call tools: only a program that executes external
/// calls and reports their results needs them unredacted.
fn redact_arguments(app: &App, principal: &Principal, mut record: RunRecord) -> RunRecord {
    if !principal.has_scope(Scope::ToolsCall) {
        let arguments = record.calls.iter_mut().filter_map(|call| call.arguments.as_mut());
        arguments.for_each(|arguments| app.hub().redact(arguments));
    }
    record
}

fn not_found(id: &str) -> Problem {
    Problem::new(Code::RUN_NOT_FOUND, format!("there is no run `{}`, or its record is no longer stored", truncate(id)))
}

async fn list(
    State(app): State<App>,
    principal: Principal,
    Params(path): Params<ThreadPath>,
    Query(query): Query<RunsQuery>,
    uri: RequestUri,
) -> ApiResult<ListResponse<RunRecord>> {
    let thread = threads::find(&app, &principal.tenant, &path.id).await?;
    let before = page::decode_cursor_as(query.cursor.as_ref(), LIST_NAME)?;
    let fetch = |limit, before| app.agents().runs(&principal.tenant, &thread.id, limit, before);
    let (runs, next) = fetch_filtered(query.limit, query.status, before, |last| last.id, fetch).await?;
    let runs: Vec<_> = runs.into_iter().map(|record| redact_arguments(&app, &principal, record)).collect();
    let position = |runs: &[RunRecord]| runs.last().map(|last| last.id.to_string()).unwrap_or_default();
    let next = next.map(|run| run.to_string());
    Ok(uri.bounded_list_response(LIST_NAME, runs, next, position))
}

/// Where a page over all threads ended.
struct RunPosition(RunId, ThreadId);

impl FromStr for RunPosition {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (run, thread) = text.split_once(' ').ok_or(())?;
        Ok(Self(run.parse().map_err(drop)?, ThreadId::new(thread).map_err(drop)?))
    }
}

async fn list_all(
    State(app): State<App>,
    principal: Principal,
    Query(query): Query<RunsQuery>,
    uri: RequestUri,
) -> ApiResult<ListResponse<RunRecord>> {
    let before = page::decode_cursor_as(query.cursor.as_ref(), ALL_LIST_NAME)?;
    let before = before.map(|RunPosition(run, thread)| (run, thread));
    let fetch = |limit, before| app.agents().tenant_runs(&principal.tenant, limit, before);
    let last_of = |last: &RunRecord| (last.id, last.thread.clone());
    let (runs, next) = fetch_filtered(query.limit, query.status, before, last_of, fetch).await?;
    let runs: Vec<_> = runs.into_iter().map(|record| redact_arguments(&app, &principal, record)).collect();
    let position =
        |runs: &[RunRecord]| runs.last().map(|last| format!("{} {}", last.id, last.thread)).unwrap_or_default();
    let next = next.map(|(run, thread)| format!("{run} {thread}"));
    Ok(uri.bounded_list_response(ALL_LIST_NAME, runs, next, position))
}

async fn show(
    State(app): State<App>,
    principal: Principal,
    Params(path): Params<RunPath>,
) -> ApiResult<Json<RunRecord>> {
    path.find(&app, &principal).await.map(Json)
}

async fn follow(
    State(app): State<App>,
    principal: Principal,
    Params(path): Params<RunPath>,
    links: Links,
) -> ApiResult<Response> {
    // Subscribe before the lookup, so that an end in between is not missed.
    let events = app.hub().subscribe();
    let record = path.find(&app, &principal).await?;
    let run_events = event_stream::follow_existing(&app, &principal.tenant, &record, events, links);
    Ok(sse::stream(&app, principal, run_events))
}

async fn cancel(
    State(app): State<App>,
    principal: Principal,
    Params(path): Params<RunPath>,
) -> ApiResult<(StatusCode, Json<RunRecord>)> {
    let id = path.parse_id()?;
    match app.agents().cancel(&principal.tenant, id).await? {
        RunCancellation::Requested => Ok((StatusCode::ACCEPTED, Json(path.find(&app, &principal).await?))),
        RunCancellation::Ended(status) => {
            Err(Problem::new(Code::RUN_ENDED, format!("`{id}` has ended already")).with("runStatus", status))
        }
        _ => Err(not_found(&path.id)),
    }
}

async fn export(State(app): State<App>, principal: Principal, Params(path): Params<ThreadPath>) -> ApiResult<Response> {
    let thread = threads::find(&app, &principal.tenant, &path.id).await?;
    Ok(export_stream::response(app.agents(), &principal.tenant, &thread.id))
}

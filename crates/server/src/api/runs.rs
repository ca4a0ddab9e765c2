//! Runs of agents: listed, looked at, followed, cancelled; and everything that is kept of a thread, at once.

pub(super) mod event_stream;

use axum::{
    extract::State,
    http::{Method, StatusCode},
    response::Response,
};
use schemars::JsonSchema;
use serde::Deserialize;
use toolhub_agent::{RunCancellation, RunRecord, ThreadExport};
use toolhub_core::{ErrorKind, ids::RunId};

use super::threads::{self, ThreadPath, truncate};
use crate::{
    app::App,
    extract::{Params, Query},
    json::Json,
    page::{self, List, ListQuery, ListResponse, RequestUri},
    problem::{ApiResult, Code, Problem},
    route::Route,
    scope::{Access, Principal, Scope},
    sse,
};

const LIST_NAME: &str = "runs";

pub(super) fn routes() -> Vec<Route> {
    let (read, call) = (Access::Needs(Scope::ToolsRead), Access::Needs(Scope::ToolsCall));
    vec![
        Route::new(Method::GET, "/api/v1/threads/{id}/runs", read, "agents", list)
            .summary("The runs of a thread, the newest first")
            .json_response::<List<RunRecord>>(200, "A page of them")
            .problems(&[Code::THREAD_NOT_FOUND])
            .refusals(&[ErrorKind::StoreUnavailable]),
        Route::new(Method::GET, "/api/v1/runs/{id}", read, "agents", show)
            .summary("One run")
            .json_response::<RunRecord>(200, "Where it is, or how it ended")
            .problems(&[Code::RUN_NOT_FOUND])
            .refusals(&[ErrorKind::StoreUnavailable]),
        Route::new(Method::GET, "/api/v1/runs/{id}/events", read, "agents", follow)
            .summary("Follow one run: what happens in it from now on, then its end")
            .response(200, "text/event-stream", "Events; the last one is `run.completed` or `run.failed`")
            .problems(&[Code::RUN_NOT_FOUND])
            .refusals(&[ErrorKind::StoreUnavailable]),
        Route::new(Method::POST, "/api/v1/runs/{id}/cancel", call, "agents", cancel)
            .summary("Ask a run to stop, and its calls with it")
            .json_response::<RunRecord>(202, "It was asked; it still has an end, and an answer that was faster wins")
            .problems(&[Code::RUN_NOT_FOUND, Code::RUN_ENDED])
            .refusals(&[ErrorKind::StoreUnavailable]),
        Route::new(
            Method::GET,
            "/api/v1/threads/{id}/export",
            Access::Needs(Scope::StateRead),
            "threads",
            export,
        )
        .summary("Everything that is kept of a thread: messages, runs, calls, how its tools stand, and what they remember")
        .json_response::<ThreadExport>(200, "All of it; `DELETE /api/v1/threads/{id}` takes the same away")
        .problems(&[Code::THREAD_NOT_FOUND])
        .refusals(&[ErrorKind::StoreUnavailable]),
    ]
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

    /// The run as it stands, as it may be told.
    async fn find(&self, app: &App, who: &Principal) -> ApiResult<RunRecord> {
        let record = app.agents().run(&who.tenant, self.parse_id()?).await?.ok_or_else(|| not_found(&self.id))?;
        Ok(redact_arguments(app, who, record))
    }
}

/// A run as it may be told. The work of a call is done by whoever may bring its result: they need its arguments as they are, and
/// nobody else does.
fn redact_arguments(app: &App, who: &Principal, mut record: RunRecord) -> RunRecord {
    if !who.has_scope(Scope::ToolsCall) {
        let arguments = record.calls.iter_mut().filter_map(|call| call.arguments.as_mut());
        arguments.for_each(|arguments| app.hub().redact(arguments));
    }
    record
}

fn not_found(id: &str) -> Problem {
    Problem::new(Code::RUN_NOT_FOUND, format!("there is no run `{}`, or nothing is kept of it", truncate(id)))
}

async fn list(
    State(app): State<App>,
    who: Principal,
    Params(of): Params<ThreadPath>,
    Query(query): Query<ListQuery>,
    here: RequestUri,
) -> ApiResult<ListResponse<RunRecord>> {
    let thread = threads::find(&app, &who.tenant, &of.id).await?;
    let before = page::decode_cursor_as(query.cursor.as_ref(), LIST_NAME)?;
    let mut runs = app.agents().runs(&who.tenant, &thread.id, query.limit.plus_one(), before).await?;
    let next = query.limit.truncate(&mut runs).map(|last| last.id.to_string());
    let runs = runs.into_iter().map(|record| redact_arguments(&app, &who, record)).collect();
    Ok(here.list_response(LIST_NAME, runs, next))
}

async fn show(State(app): State<App>, who: Principal, Params(of): Params<RunPath>) -> ApiResult<Json<RunRecord>> {
    of.find(&app, &who).await.map(Json)
}

async fn follow(State(app): State<App>, who: Principal, Params(of): Params<RunPath>) -> ApiResult<Response> {
    // Listened to before it is looked at: no end can fall in between.
    let news = app.hub().subscribe();
    let record = of.find(&app, &who).await?;
    let following = event_stream::follow_existing(&app, who.tenant.clone(), &record, news);
    Ok(sse::stream(&app, who, following))
}

async fn cancel(
    State(app): State<App>,
    who: Principal,
    Params(of): Params<RunPath>,
) -> ApiResult<(StatusCode, Json<RunRecord>)> {
    let id = of.parse_id()?;
    match app.agents().cancel(&who.tenant, id).await? {
        RunCancellation::Requested => Ok((StatusCode::ACCEPTED, Json(of.find(&app, &who).await?))),
        RunCancellation::Ended(status) => {
            Err(Problem::new(Code::RUN_ENDED, format!("`{id}` has ended already")).with("runStatus", status))
        }
        _ => Err(not_found(&of.id)),
    }
}

async fn export(
    State(app): State<App>,
    who: Principal,
    Params(of): Params<ThreadPath>,
) -> ApiResult<Json<ThreadExport>> {
    let thread = threads::find(&app, &who.tenant, &of.id).await?;
    Ok(Json(app.agents().export(&who.tenant, &thread.id).await?))
}

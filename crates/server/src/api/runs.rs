//! Runs of agents: listed, looked at, followed, cancelled; and everything that is kept of a thread, at once.

pub(super) mod follow;

use axum::{
    extract::State,
    http::{Method, StatusCode},
    response::Response,
};
use schemars::JsonSchema;
use serde::Deserialize;
use toolhub_agent::{CancelRun, RunRecord, ThreadExport};
use toolhub_core::{ErrorKind, ids::RunId};

use super::threads::{self, OfThread, shortened};
use crate::{
    app::App,
    extract::{Params, Query},
    json::Json,
    page::{self, Here, List, ListQuery, Listed},
    problem::{Answer, Code, Problem},
    route::Route,
    scope::{Access, Principal, Scope},
    sse,
};

const LIST: &str = "runs";

pub(super) fn routes() -> Vec<Route> {
    let (read, call) = (Access::Needs(Scope::ToolsRead), Access::Needs(Scope::ToolsCall));
    vec![
        Route::new(Method::GET, "/api/v1/threads/{id}/runs", read, "agents", list)
            .says("The runs of a thread, the newest first")
            .answers::<List<RunRecord>>(200, "A page of them")
            .problems(&[Code::THREAD_NOT_FOUND])
            .refusals(&[ErrorKind::StoreUnavailable]),
        Route::new(Method::GET, "/api/v1/runs/{id}", read, "agents", show)
            .says("One run")
            .answers::<RunRecord>(200, "Where it is, or how it ended")
            .problems(&[Code::RUN_NOT_FOUND])
            .refusals(&[ErrorKind::StoreUnavailable]),
        Route::new(Method::GET, "/api/v1/runs/{id}/events", read, "agents", follow)
            .says("Follow one run: what happens in it from now on, then its end")
            .answers_as(200, "text/event-stream", "Events; the last one is `run.completed` or `run.failed`")
            .problems(&[Code::RUN_NOT_FOUND])
            .refusals(&[ErrorKind::StoreUnavailable]),
        Route::new(Method::POST, "/api/v1/runs/{id}/cancel", call, "agents", cancel)
            .says("Ask a run to stop, and its calls with it")
            .answers::<RunRecord>(202, "It was asked; it still has an end, and an answer that was faster wins")
            .problems(&[Code::RUN_NOT_FOUND, Code::RUN_ENDED])
            .refusals(&[ErrorKind::StoreUnavailable]),
        Route::new(
            Method::GET,
            "/api/v1/threads/{id}/export",
            Access::Needs(Scope::StateRead),
            "threads",
            export,
        )
        .says("Everything that is kept of a thread: messages, runs, calls, how its tools stand, and what they remember")
        .answers::<ThreadExport>(200, "All of it; `DELETE /api/v1/threads/{id}` takes the same away")
        .problems(&[Code::THREAD_NOT_FOUND])
        .refusals(&[ErrorKind::StoreUnavailable]),
    ]
}

/// A run in a path.
#[derive(Debug, Deserialize, JsonSchema)]
struct OfRun {
    /// The run.
    id: String,
}

impl OfRun {
    fn id(&self) -> Answer<RunId> {
        self.id.parse().map_err(|_| unknown(&self.id))
    }

    /// The run as it stands, as it may be told.
    async fn find(&self, app: &App, who: &Principal) -> Answer<RunRecord> {
        let record = app.agents().run(&who.tenant, self.id()?).await?.ok_or_else(|| unknown(&self.id))?;
        Ok(told(app, who, record))
    }
}

/// A run as it may be told. The work of a call is done by whoever may bring its result: they need its arguments as they are, and
/// nobody else does.
fn told(app: &App, who: &Principal, mut record: RunRecord) -> RunRecord {
    if !who.may(Scope::ToolsCall) {
        let arguments = record.calls.iter_mut().filter_map(|call| call.arguments.as_mut());
        arguments.for_each(|arguments| app.hub().hide_secrets(arguments));
    }
    record
}

fn unknown(id: &str) -> Problem {
    Problem::new(Code::RUN_NOT_FOUND, format!("there is no run `{}`, or nothing is kept of it", shortened(id)))
}

async fn list(
    State(app): State<App>,
    who: Principal,
    Params(of): Params<OfThread>,
    Query(query): Query<ListQuery>,
    here: Here,
) -> Answer<Listed<RunRecord>> {
    let thread = threads::find(&app, &who.tenant, &of.id).await?;
    let before = page::place_as(query.cursor.as_ref(), LIST)?;
    let mut runs = app.agents().runs(&who.tenant, &thread.id, query.limit.and_one(), before).await?;
    let next = query.limit.cut(&mut runs).map(|last| last.id.to_string());
    let runs = runs.into_iter().map(|record| told(&app, &who, record)).collect();
    Ok(here.list(LIST, runs, next))
}

async fn show(State(app): State<App>, who: Principal, Params(of): Params<OfRun>) -> Answer<Json<RunRecord>> {
    of.find(&app, &who).await.map(Json)
}

async fn follow(State(app): State<App>, who: Principal, Params(of): Params<OfRun>) -> Answer<Response> {
    // Listened to before it is looked at: no end can fall in between.
    let news = app.hub().subscribe();
    let record = of.find(&app, &who).await?;
    let following = follow::later(&app, who.tenant.clone(), &record, news);
    Ok(sse::stream(&app, who, following))
}

async fn cancel(
    State(app): State<App>,
    who: Principal,
    Params(of): Params<OfRun>,
) -> Answer<(StatusCode, Json<RunRecord>)> {
    let id = of.id()?;
    match app.agents().cancel(&who.tenant, id).await? {
        CancelRun::Asked => Ok((StatusCode::ACCEPTED, Json(of.find(&app, &who).await?))),
        CancelRun::Ended(status) => {
            Err(Problem::new(Code::RUN_ENDED, format!("`{id}` has ended already")).with("runStatus", status))
        }
        _ => Err(unknown(&of.id)),
    }
}

async fn export(State(app): State<App>, who: Principal, Params(of): Params<OfThread>) -> Answer<Json<ThreadExport>> {
    let thread = threads::find(&app, &who.tenant, &of.id).await?;
    Ok(Json(app.agents().export(&who.tenant, &thread.id).await?))
}

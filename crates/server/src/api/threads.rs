//! Threads: made, listed, looked at, and taken away with everything that is kept for them.

use axum::{
    extract::State,
    http::{Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhub_core::{
    ErrorKind, ThreadError, ThreadInfo, ToolName,
    backend::{self, Partition, RowKey, Table},
    ids::{Tenant, ThreadId},
};

use crate::{
    app::App,
    extract::{MaybeBody, Params, Query},
    json::Json,
    page::{self, List, ListQuery, ListResponse, RequestUri},
    problem::{ApiResult, Code, Flaw, Problem},
    route::Route,
    scope::{Access, Principal, Scope},
};

const LIST_NAME: &str = "threads";

pub(super) fn routes() -> Vec<Route> {
    let reads = Access::Needs(Scope::ToolsRead);
    vec![
        Route::new(Method::POST, "/api/v1/threads", Access::Needs(Scope::ToolsCall), "threads", create)
            .summary("Make a thread; one with an id that nobody can guess where none is given")
            .json_response::<ThreadInfo>(201, "It was made")
            .json_response::<ThreadInfo>(200, "It was there already")
            .response_header(&[201], "Location", "Where it can be looked at.")
            .refusals(&[ErrorKind::StoreUnavailable]),
        Route::new(Method::GET, "/api/v1/threads", reads, "threads", list)
            .summary("The threads of the key's tenant, by id")
            .json_response::<List<ThreadInfo>>(200, "A page of them")
            .refusals(&[ErrorKind::StoreUnavailable]),
        Route::new(Method::GET, "/api/v1/threads/{id}", reads, "threads", show)
            .summary("A thread")
            .json_response::<ThreadInfo>(200, "When it was made and used")
            .problems(&[Code::THREAD_NOT_FOUND])
            .refusals(&[ErrorKind::StoreUnavailable]),
        Route::new(Method::DELETE, "/api/v1/threads/{id}", Access::Needs(Scope::StateWrite), "threads", delete)
            .audited("thread.delete")
            .summary("Take a thread away: its instances, its state, and every record of it")
            .empty_response(204, "It is gone")
            .problems(&[Code::THREAD_NOT_FOUND, Code::THREAD_BUSY])
            .refusals(&[ErrorKind::StoreUnavailable]),
        Route::new(
            Method::DELETE,
            "/api/v1/threads/{id}/instances",
            Access::Needs(Scope::ToolsCall),
            "threads",
            close_instances,
        )
        .audited("thread.close_instances")
        .summary("Close all live instances of a thread; what is remembered stays")
        .json_response::<Closed>(200, "The tools whose instances were closed")
        .problems(&[Code::THREAD_NOT_FOUND])
        .refusals(&[ErrorKind::StoreUnavailable]),
        Route::new(
            Method::DELETE,
            "/api/v1/threads/{id}/instances/{tool}",
            Access::Needs(Scope::ToolsCall),
            "threads",
            close_instance,
        )
        .audited("thread.close_instances")
        .summary("Close a tool's live instance in a thread; what is remembered stays")
        .json_response::<Closed>(200, "The tool, if it had an instance there")
        .problems(&[Code::THREAD_NOT_FOUND])
        .refusals(&[ErrorKind::ToolNotFound, ErrorKind::StoreUnavailable]),
    ]
}

/// The thread of this id, if the tenant has it.
pub(super) async fn find(app: &App, tenant: &Tenant, id: &str) -> ApiResult<ThreadInfo> {
    // What is no legal id, and what belongs to somebody else, is as unknown as what never was.
    let unknown = || Problem::new(Code::THREAD_NOT_FOUND, format!("there is no thread `{}`", truncate(id)));
    let thread = ThreadId::new(id).map_err(|_| unknown())?;
    app.hub().thread(tenant, &thread).await?.ok_or_else(unknown)
}

/// A text from outside may be of any length.
pub(super) fn truncate(text: &str) -> String {
    text.chars().take(64).collect()
}

/// A thread's id in a path.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ThreadPath {
    /// The thread.
    pub(super) id: String,
}

/// A tool in a thread.
#[derive(Debug, Deserialize, JsonSchema)]
struct InstancePath {
    /// The thread.
    id: String,
    /// The tool.
    tool: String,
}

/// What a thread is made with.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NewThread {
    /// Its id: 1 to 128 letters, digits, `.`, `_`, `:` or `-`, and neither `.` nor `..`.
    #[schemars(regex(pattern = r"^(\.{0,2}[A-Za-z0-9_:-]|\.{3})[A-Za-z0-9._:-]{0,127}$"))]
    id: Option<String>,
}

/// Whose instances were closed.
#[derive(Debug, Serialize, JsonSchema)]
struct Closed {
    /// The tools.
    closed: Vec<ToolName>,
}

async fn create(State(app): State<App>, who: Principal, MaybeBody(body): MaybeBody<NewThread>) -> ApiResult<Response> {
    let id = body.unwrap_or_default().id.map(ThreadId::new).transpose().map_err(|wrong| {
        let flaw = Flaw { pointer: "/id".into(), detail: wrong.to_string() };
        Problem::new(Code::INVALID_REQUEST, wrong.to_string()).with("errors", [flaw])
    })?;
    if let Some(id) = &id
        && let Some(thread) = app.hub().thread(&who.tenant, id).await?
    {
        return Ok(Json(thread).into_response());
    }
    let thread = app.hub().create_thread(&who.tenant, id).await?;
    let location = format!("/api/v1/threads/{}", thread.id);
    Ok((StatusCode::CREATED, [(header::LOCATION, location)], Json(thread)).into_response())
}

async fn list(
    State(app): State<App>,
    who: Principal,
    Query(query): Query<ListQuery>,
    here: RequestUri,
) -> ApiResult<ListResponse<ThreadInfo>> {
    let last = page::decode_cursor(query.cursor.as_ref(), LIST_NAME)?;
    let last = last.map(ThreadId::new).transpose().map_err(|_| page::unknown_position())?;
    let mut after = last.map(|id| backend::Cursor(thread_row_key(&who.tenant, &id)));
    let mut threads = Vec::new();
    loop {
        let page = app.hub().threads(&who.tenant, after).await?;
        threads.extend(page.threads);
        after = page.next;
        if after.is_none() || threads.len() >= query.limit.plus_one() {
            break;
        }
    }
    let next = query.limit.truncate(&mut threads).map(|last| last.id.to_string());
    Ok(here.list_response(LIST_NAME, threads, next))
}

/// Where the row of a thread lies: the list is in the order of these.
fn thread_row_key(tenant: &Tenant, id: &ThreadId) -> RowKey {
    let partition = Partition::for_thread(tenant.clone(), id.clone());
    RowKey { partition, table: Table::Threads, id: id.clone().into() }
}

async fn show(State(app): State<App>, who: Principal, Params(of): Params<ThreadPath>) -> ApiResult<Json<ThreadInfo>> {
    find(&app, &who.tenant, &of.id).await.map(Json)
}

async fn delete(State(app): State<App>, who: Principal, Params(of): Params<ThreadPath>) -> ApiResult<StatusCode> {
    let thread = find(&app, &who.tenant, &of.id).await?;
    match app.agents().delete_thread(&who.tenant, &thread.id).await {
        // Whether it was still there or somebody else was quicker: it is gone.
        Ok(_) => Ok(StatusCode::NO_CONTENT),
        Err(ThreadError::Store(error)) => Err(error.into()),
        Err(error) => {
            let busy = Problem::new(Code::THREAD_BUSY, error.to_string());
            // Most calls in a thread are those of a run, and end with it.
            Err(match app.agents().open_run(&who.tenant, &thread.id).await? {
                Some(run) => busy
                    .hint(format!("POST /api/v1/runs/{run}/cancel ends the run that is open in it, with its calls"))
                    .with("runId", run),
                None => busy.hint(format!(
                    "GET /api/v1/calls?threadId={} lists its calls; POST /api/v1/calls/{{id}}/cancel ends one",
                    thread.id
                )),
            })
        }
    }
}

async fn close_instances(
    State(app): State<App>,
    who: Principal,
    Params(of): Params<ThreadPath>,
) -> ApiResult<Json<Closed>> {
    let thread = find(&app, &who.tenant, &of.id).await?;
    let closed = app.hub().thread_context(&who.tenant, &thread.id).cleanup_all().await;
    Ok(Json(Closed { closed }))
}

async fn close_instance(
    State(app): State<App>,
    who: Principal,
    Params(of): Params<InstancePath>,
) -> ApiResult<Json<Closed>> {
    let thread = find(&app, &who.tenant, &of.id).await?;
    let tool = super::stats::find_tool(&app, &of.tool)?;
    let was_there = app.hub().thread_context(&who.tenant, &thread.id).cleanup(&of.tool).await;
    Ok(Json(Closed { closed: was_there.then(|| tool.definition.name.clone()).into_iter().collect() }))
}

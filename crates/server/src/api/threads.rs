//! Threads: created, listed, looked up, and deleted with all of their data.

mod list;

use axum::{
    extract::State,
    http::{Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhub_core::{
    ErrorKind, InstanceInfo, ThreadError, ThreadInfo, ToolName,
    ids::{Tenant, ThreadId},
    suggest,
};

use crate::{
    app::App,
    extract::{MaybeBody, Params},
    json::Json,
    problem::{ApiResult, Code, FieldError, Problem},
    route::Route,
    scope::{Access, Principal, Scope},
};

/// How many ids an unknown one is answered with, and about how many are compared with it.
const MAX_SUGGESTIONS: usize = 3;
const MAX_COMPARED: usize = 1_000;

pub(super) fn routes() -> Vec<Route> {
    let reads = Access::Needs(Scope::ToolsRead);
    let mut routes = vec![
        Route::new(Method::POST, "/api/v1/threads", Access::Needs(Scope::ToolsCall), "threads", create)
            .summary("Create a thread; without an id it gets a random one")
            .json_response::<ThreadInfo>(201, "The thread was created")
            .json_response::<ThreadInfo>(200, "The thread exists already")
            .response_header(&[201], "Location", "The path of the thread.")
            .refusals(&[ErrorKind::StoreUnavailable]),
        Route::new(Method::GET, "/api/v1/threads/{id}", reads, "threads", show)
            .summary("One thread")
            .json_response::<ThreadInfo>(200, "The thread")
            .problems(&[Code::THREAD_NOT_FOUND])
            .refusals(&[ErrorKind::StoreUnavailable]),
        Route::new(Method::DELETE, "/api/v1/threads/{id}", Access::Needs(Scope::StateWrite), "threads", delete)
            .audited("thread.delete")
            .summary("Delete a thread: its instances, its state, and all of its records")
            .empty_response(204, "The thread is deleted")
            .problems(&[Code::THREAD_NOT_FOUND, Code::THREAD_BUSY])
            .refusals(&[ErrorKind::StoreUnavailable]),
        Route::new(Method::GET, "/api/v1/threads/{id}/instances", reads, "threads", list_instances)
            .summary("The live instances of a thread on this server")
            .json_response::<Instances>(200, "The instances, the oldest first")
            .problems(&[Code::THREAD_NOT_FOUND])
            .refusals(&[ErrorKind::StoreUnavailable]),
        Route::new(
            Method::DELETE,
            "/api/v1/threads/{id}/instances",
            Access::Needs(Scope::ToolsCall),
            "threads",
            close_instances,
        )
        .audited("thread.close_instances")
        .summary("Close all live instances of a thread; state stays")
        .json_response::<ClosedInstances>(200, "The tools whose instances were closed")
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
        .summary("Close a tool's live instance in a thread; state stays")
        .json_response::<ClosedInstances>(200, "The tool, if it had an instance in the thread")
        .problems(&[Code::THREAD_NOT_FOUND])
        .refusals(&[ErrorKind::ToolNotFound, ErrorKind::StoreUnavailable]),
    ];
    routes.extend(list::routes());
    routes
}

/// The thread with this id, if the tenant has it.
pub(super) async fn find(app: &App, tenant: &Tenant, id: &str) -> ApiResult<ThreadInfo> {
    look_up(app, tenant, id).await?.ok_or_else(|| unknown(id))
}

async fn look_up(app: &App, tenant: &Tenant, id: &str) -> ApiResult<Option<ThreadInfo>> {
    match ThreadId::new(id) {
        Ok(id) => Ok(app.hub().thread(tenant, &id).await?),
        Err(_) => Ok(None),
    }
}

/// An invalid id and another tenant's thread look the same as one that never existed.
fn unknown(id: &str) -> Problem {
    Problem::new(Code::THREAD_NOT_FOUND, format!("there is no thread `{}`", truncate(id)))
}

/// Like [`find`]. The problem names close ids, if the caller may list threads.
pub(super) async fn find_or_suggest(app: &App, principal: &Principal, id: &str) -> ApiResult<ThreadInfo> {
    if let Some(thread) = look_up(app, &principal.tenant, id).await? {
        return Ok(thread);
    }
    if !principal.has_scope(Scope::ToolsRead) {
        return Err(unknown(id));
    }
    let (mut threads, mut after) = (Vec::new(), None);
    while threads.len() < MAX_COMPARED {
        let page = app.hub().threads(&principal.tenant, after).await?;
        threads.extend(page.threads);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let id_text: String = id.chars().take(128).collect();
    let closest = suggest::closest(&id_text, threads.iter().map(|thread| thread.id.as_str()), MAX_SUGGESTIONS);
    Err(unknown(id).with_some("suggestions", (!closest.is_empty()).then_some(closest)))
}

/// Shortens client input for a message.
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

/// The thread to create.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NewThread {
    /// Its id: 1 to 128 letters, digits, `.`, `_`, `:` or `-`, and neither `.` nor `..`.
    #[schemars(regex(pattern = r"^(\.{0,2}[A-Za-z0-9_:-]|\.{3})[A-Za-z0-9._:-]{0,127}$"))]
    id: Option<String>,
}

/// Live instances.
#[derive(Debug, Serialize, JsonSchema)]
struct Instances {
    /// The instances.
    items: Vec<InstanceInfo>,
}

/// The result of closing instances.
#[derive(Debug, Serialize, JsonSchema)]
struct ClosedInstances {
    /// The tools whose instances were closed.
    closed: Vec<ToolName>,
}

async fn create(
    State(app): State<App>,
    principal: Principal,
    MaybeBody(body): MaybeBody<NewThread>,
) -> ApiResult<Response> {
    let id = body.unwrap_or_default().id.map(ThreadId::new).transpose().map_err(|error| {
        let field_error = FieldError::new("/id", error.to_string());
        Problem::new(Code::INVALID_REQUEST, error.to_string()).with("errors", [field_error])
    })?;
    if let Some(id) = &id
        && let Some(thread) = app.hub().thread(&principal.tenant, id).await?
    {
        return Ok(Json(thread).into_response());
    }
    let thread = app.hub().create_thread(&principal.tenant, id).await?;
    let location = format!("/api/v1/threads/{}", thread.id);
    Ok((StatusCode::CREATED, [(header::LOCATION, location)], Json(thread)).into_response())
}

async fn show(
    State(app): State<App>,
    principal: Principal,
    Params(path): Params<ThreadPath>,
) -> ApiResult<Json<ThreadInfo>> {
    find(&app, &principal.tenant, &path.id).await.map(Json)
}

async fn delete(
    State(app): State<App>,
    principal: Principal,
    Params(path): Params<ThreadPath>,
) -> ApiResult<StatusCode> {
    let thread = find(&app, &principal.tenant, &path.id).await?;
    match app.agents().delete_thread(&principal.tenant, &thread.id).await {
        // If a concurrent request deleted it first, the result is the same.
        Ok(_) => Ok(StatusCode::NO_CONTENT),
        Err(ThreadError::Store(error)) => Err(error.into()),
        Err(error) => {
            let busy = Problem::new(Code::THREAD_BUSY, error.to_string());
            // Most calls in a thread belong to a run and end with it.
            Err(match app.agents().open_run(&principal.tenant, &thread.id).await? {
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

async fn list_instances(
    State(app): State<App>,
    principal: Principal,
    Params(path): Params<ThreadPath>,
) -> ApiResult<Json<Instances>> {
    let thread = find(&app, &principal.tenant, &path.id).await?;
    Ok(Json(Instances { items: app.hub().thread_context(&principal.tenant, &thread.id).instances() }))
}

async fn close_instances(
    State(app): State<App>,
    principal: Principal,
    Params(path): Params<ThreadPath>,
) -> ApiResult<Json<ClosedInstances>> {
    let thread = find(&app, &principal.tenant, &path.id).await?;
    let closed = app.hub().thread_context(&principal.tenant, &thread.id).cleanup_all().await;
    Ok(Json(ClosedInstances { closed }))
}

async fn close_instance(
    State(app): State<App>,
    principal: Principal,
    Params(path): Params<InstancePath>,
) -> ApiResult<Json<ClosedInstances>> {
    let thread = find(&app, &principal.tenant, &path.id).await?;
    let tool = super::stats::find_tool(&app, &path.tool)?;
    let had_instance = app.hub().thread_context(&principal.tenant, &thread.id).cleanup(&path.tool).await;
    Ok(Json(ClosedInstances { closed: had_instance.then(|| tool.definition.name.clone()).into_iter().collect() }))
}

//! Snapshots of a thread's tool statuses and evidence as one JSON text: saved and restored.

use axum::{
    body::Bytes,
    extract::State,
    http::{HeaderMap, Method, header},
    response::IntoResponse,
};
use serde_json::Value;
use toolhub_core::{ErrorKind, SnapshotRestore};

use super::threads::{self, ThreadPath};
use crate::{
    app::App,
    extract::{self, FromBody, Params},
    json::Json,
    operation::Operation,
    problem::{ApiResult, Code, Problem},
    route::Route,
    scope::{Access, Principal, Scope},
};

const PATH: &str = "/api/v1/threads/{id}/snapshot";

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, PATH, Access::Needs(Scope::StateRead), "threads", save)
            .summary("A thread's statuses and evidence, to be restored later or elsewhere")
            .json_response::<Value>(200, "The snapshot: `states`, `config`, `timestamp` and `evidence`")
            .problems(&[Code::THREAD_NOT_FOUND])
            .refusals(&[ErrorKind::StoreUnavailable]),
        Route::new(Method::PUT, PATH, Access::Needs(Scope::StateWrite), "threads", restore)
            .audited("thread.restore")
            .summary("Restore a thread's statuses and evidence; the running config stays")
            .json_response::<SnapshotRestore>(
                200,
                "What was restored. An unreadable snapshot restores nothing: see `warning`",
            )
            .problems(&[Code::THREAD_NOT_FOUND])
            .refusals(&[ErrorKind::StoreUnavailable]),
    ]
}

/// The body as it was sent: the core parses it and salvages a damaged one.
#[derive(Debug)]
struct SnapshotBody(String);

impl FromBody for SnapshotBody {
    fn describe(operation: &mut Operation<'_>) {
        operation.body::<Value>(true);
    }

    fn from_body(_: &HeaderMap, body: Bytes, app: &App) -> Result<Self, Problem> {
        extract::check_limits(&body, app.settings().limits.json())?;
        let text = String::from_utf8(body.into())
            .map_err(|_| Problem::new(Code::INVALID_JSON, "the body is not valid UTF-8"))?;
        if text.trim().is_empty() {
            return Err(Problem::new(Code::INVALID_JSON, "the request has no body; send the response of GET"));
        }
        Ok(Self(text))
    }

    fn incomplete_body_problem(_: &axum::Error, limit: usize) -> Problem {
        Problem::new(Code::TOO_LARGE, format!("the body is larger than {limit} bytes, or did not arrive completely"))
    }
}

async fn save(
    State(app): State<App>,
    principal: Principal,
    Params(path): Params<ThreadPath>,
) -> ApiResult<impl IntoResponse> {
    let thread = threads::find(&app, &principal.tenant, &path.id).await?;
    let text = app.hub().serialize_tool_states(&principal.tenant, &thread.id).await?;
    Ok(([(header::CONTENT_TYPE, "application/json")], text))
}

async fn restore(
    State(app): State<App>,
    principal: Principal,
    Params(path): Params<ThreadPath>,
    SnapshotBody(text): SnapshotBody,
) -> ApiResult<Json<SnapshotRestore>> {
    let thread = threads::find(&app, &principal.tenant, &path.id).await?;
    Ok(Json(app.hub().deserialize_tool_states(&principal.tenant, &thread.id, &text).await?))
}

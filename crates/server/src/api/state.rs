//! State of tools over HTTP: read, written, patched, deleted, rolled back.
//!
//! In: a context, one percent-encoded segment of the path, and a kind. Out: entries with their `ETag`. A condition on it is
//! checked by the write itself (compare-and-set).

mod conditions;
mod contexts;
mod entry;
mod history;

use axum::{
    extract::State,
    http::{Method, StatusCode},
    response::{IntoResponse, Response},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use toolhub_core::{ContextId, ErrorKind, StateKind, ids::Tenant};

use crate::{
    app::App,
    duration_param::DurationParam,
    extract::{Body, Params},
    problem::{ApiResult, Code, Problem},
    route::Route,
    scope::{Access, Principal, Scope},
};
use conditions::{IfMatch, IfNoneMatch};
use entry::{Entry, EntryResponse, state_problem};

const PATH: &str = "/api/v1/state/contexts/{contextId}/{kind}";
const READ_ACCESS: Access = Access::Needs(Scope::StateRead);
const WRITE_ACCESS: Access = Access::Needs(Scope::StateWrite);
/// Errors that every request about a state may be refused with.
const COMMON_ERRORS: &[ErrorKind] =
    &[ErrorKind::StateNotFound, ErrorKind::StateUnreadable, ErrorKind::StoreUnavailable];
/// Additional errors of writes.
const WRITE_ERRORS: &[ErrorKind] = &[ErrorKind::StateConflict, ErrorKind::StateTooLarge, ErrorKind::StateLimit];

/// Description of the `ETag` header of entries.
const ETAG_DESCRIPTION: &str = "Identifies this write, for `If-Match` and `If-None-Match`. It never returns, also if the state is deleted and created again.";

pub(super) fn routes() -> Vec<Route> {
    let own = vec![
        Route::new(Method::GET, PATH, READ_ACCESS, "state", get)
            .summary("Read a state")
            .json_response::<Entry>(200, "The entry")
            .empty_response(304, "The state still has the `ETag` of `If-None-Match`")
            .response_header(&[200, 304], "ETag", ETAG_DESCRIPTION)
            .refusals(COMMON_ERRORS),
        Route::new(Method::PUT, PATH, WRITE_ACCESS, "state", put)
            .audited("state.put")
            .summary("Write a state as a whole; creates the thread and the context if they do not exist")
            .json_response::<Entry>(200, "The entry that was written")
            .json_response::<Entry>(201, "The entry that was created")
            .response_header(&[200, 201], "ETag", ETAG_DESCRIPTION)
            .problems(&[Code::STATE_CONFLICT])
            .refusals(COMMON_ERRORS)
            .refusals(WRITE_ERRORS),
        Route::new(Method::PATCH, PATH, WRITE_ACCESS, "state", patch)
            .audited("state.patch")
            .summary("Merge members into a state (JSON merge patch); null removes a member, the time to live stays")
            .json_response::<Entry>(200, "The entry that was written")
            .response_header(&[200], "ETag", ETAG_DESCRIPTION)
            .problems(&[Code::STATE_CONFLICT])
            .refusals(COMMON_ERRORS)
            .refusals(WRITE_ERRORS),
        Route::new(Method::DELETE, PATH, WRITE_ACCESS, "state", delete)
            .audited("state.delete")
            .summary("Delete a state with its snapshots; its history stays")
            .empty_response(204, "The state is deleted")
            .response_header(&[204], "Durability", "`behind`: the write was acknowledged before it was durable.")
            .problems(&[Code::STATE_CONFLICT, Code::INVALID_REQUEST])
            .refusals(COMMON_ERRORS)
            .refusals(&[ErrorKind::StateConflict]),
    ];
    [contexts::routes(), own, history::routes()].into_iter().flatten().collect()
}

/// A context and a kind in a path.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct StatePath {
    /// `{thread}/{state}`, or `~/{state}` for a state that all threads share; percent-encoded, with `%2F` for the
    /// slash.
    context_id: String,
    /// The kind of state.
    kind: Kind,
}

/// The kinds of state in a context.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Kind {
    Business,
    Session,
    Cache,
    Connection,
}

impl From<Kind> for StateKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Connection => Self::Connection,
            Kind::Session => Self::Session,
            Kind::Business => Self::Business,
            Kind::Cache => Self::Cache,
        }
    }
}

impl StatePath {
    fn parse(&self) -> ApiResult<(ContextId, StateKind)> {
        // An invalid id names nothing that exists.
        let invalid = |error: toolhub_core::ids::IdError| {
            Problem::new(Code::NOT_FOUND, error.to_string())
                .hint("write the context as `thread%2Fstate` or `~%2Fstate`")
        };
        Ok((self.context_id.parse().map_err(invalid)?, self.kind.into()))
    }
}

/// The state to write.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PutState {
    /// The whole data.
    data: Map<String, Value>,
    /// Time to live, such as `30s`, `1h` or `7d`; by default unlimited, which kind `cache` does not allow.
    ttl: Option<DurationParam>,
}

/// The changes to merge into a state.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PatchState {
    /// The members that change; null removes one.
    data: Map<String, Value>,
}

async fn get(
    State(app): State<App>,
    principal: Principal,
    Params(path): Params<StatePath>,
    if_none_match: IfNoneMatch,
) -> ApiResult<Response> {
    let (context, kind) = path.parse()?;
    let entry = app.hub().state().get_state(&principal.tenant, &context, kind).await.map_err(state_problem)?;
    let entry = Entry::from(entry.ok_or_else(|| not_found(&context, kind))?);
    let tag = entry.etag();
    Ok(if if_none_match.matches(&tag) {
        tag.attach_to(StatusCode::NOT_MODIFIED).into_response()
    } else {
        EntryResponse(entry).into_response()
    })
}

async fn put(
    State(app): State<App>,
    principal: Principal,
    Params(path): Params<StatePath>,
    if_match: IfMatch,
    if_none_match: IfNoneMatch,
    Body(body): Body<PutState>,
) -> ApiResult<Response> {
    let (context, kind) = path.parse()?;
    let state = app.hub().state();
    let condition = if_match.condition(&if_none_match, &app, &principal.tenant, (&context, kind)).await?;
    let ttl = body.ttl.map(|DurationParam(time)| time);
    // Create the thread first: the state of an unknown thread would never be swept.
    use_thread(&app, &principal.tenant, &context).await?;
    let data = (Value::Object(body.data), ttl);
    let entry = state.set_state_if(&principal.tenant, &context, kind, data, condition.condition).await;
    let (entry, new) = entry.map_err(|error| condition.to_problem(error))?;
    let entry = Entry::from(entry).with_durability(state.durability(&context));
    let status = if new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, EntryResponse(entry)).into_response())
}

async fn patch(
    State(app): State<App>,
    principal: Principal,
    Params(path): Params<StatePath>,
    if_match: IfMatch,
    if_none_match: IfNoneMatch,
    Body(body): Body<PatchState>,
) -> ApiResult<EntryResponse> {
    let (context, kind) = path.parse()?;
    let state = app.hub().state();
    let condition = if_match.condition(&if_none_match, &app, &principal.tenant, (&context, kind)).await?;
    let data = Value::Object(body.data);
    let entry = state.update_state_if(&principal.tenant, &context, kind, data, condition.condition).await;
    let entry = entry.map_err(|error| condition.to_problem(error))?;
    use_thread(&app, &principal.tenant, &context).await?;
    Ok(EntryResponse(Entry::from(entry).with_durability(state.durability(&context))))
}

async fn delete(
    State(app): State<App>,
    principal: Principal,
    Params(path): Params<StatePath>,
    if_match: IfMatch,
    if_none_match: IfNoneMatch,
) -> ApiResult<Response> {
    let (context, kind) = path.parse()?;
    let state = app.hub().state();
    let condition = if_match.condition(&if_none_match, &app, &principal.tenant, (&context, kind)).await?;
    let deleted = state.delete_state_if(&principal.tenant, &context, kind, condition.condition).await;
    if !deleted.map_err(|error| condition.to_problem(error))? {
        return Err(not_found(&context, kind));
    }
    use_thread(&app, &principal.tenant, &context).await?;
    Ok(entry::with_durability_header(StatusCode::NO_CONTENT.into_response(), state.durability(&context)))
}

/// Marks the context's thread as used, and creates it if it does not exist.
async fn use_thread(app: &App, tenant: &Tenant, context: &ContextId) -> ApiResult<()> {
    match context.thread() {
        Some(thread) => Ok(app.hub().touch_thread(tenant, thread).await?),
        None => Ok(()),
    }
}

fn not_found(context: &ContextId, kind: StateKind) -> Problem {
    Problem::new(Code::STATE_NOT_FOUND, format!("there is no state `{context}/{kind}`, or it has expired"))
}

//! What tools remember, for people and programs: looked at, written, patched, forgotten, rolled back.
//!
//! In: a context, one percent-encoded part of the path, and a kind. Out: entries with their version as `ETag`. Every
//! condition on that version is part of the write itself.

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
/// What every request about a state may be refused with.
const COMMON_ERRORS: &[ErrorKind] =
    &[ErrorKind::StateNotFound, ErrorKind::StateUnreadable, ErrorKind::StoreUnavailable];
/// What a write may be refused with beyond that.
const WRITE_ERRORS: &[ErrorKind] = &[ErrorKind::StateConflict, ErrorKind::StateTooLarge, ErrorKind::StateLimit];

/// What the header says that entries have.
const ETAG_DESCRIPTION: &str = "The version, for `If-Match` and `If-None-Match`.";

pub(super) fn routes() -> Vec<Route> {
    let own = vec![
        Route::new(Method::GET, PATH, READ_ACCESS, "state", get)
            .summary("What is remembered")
            .json_response::<Entry>(200, "The entry; its version is the `ETag`")
            .empty_response(304, "It is still what `If-None-Match` names")
            .response_header(&[200, 304], "ETag", ETAG_DESCRIPTION)
            .refusals(COMMON_ERRORS),
        Route::new(Method::PUT, PATH, WRITE_ACCESS, "state", put)
            .audited("state.put")
            .summary("Replace what is remembered, or begin to remember; makes the thread and the context")
            .json_response::<Entry>(200, "The entry as it was written")
            .json_response::<Entry>(201, "The entry, which is new")
            .response_header(&[200, 201], "ETag", ETAG_DESCRIPTION)
            .problems(&[Code::STATE_CONFLICT])
            .refusals(COMMON_ERRORS)
            .refusals(WRITE_ERRORS),
        Route::new(Method::PATCH, PATH, WRITE_ACCESS, "state", patch)
            .audited("state.patch")
            .summary("Merge members into what is remembered; null takes one away, the time to live stays")
            .json_response::<Entry>(200, "The entry as it was written")
            .response_header(&[200], "ETag", ETAG_DESCRIPTION)
            .problems(&[Code::STATE_CONFLICT])
            .refusals(COMMON_ERRORS)
            .refusals(WRITE_ERRORS),
        Route::new(Method::DELETE, PATH, WRITE_ACCESS, "state", delete)
            .audited("state.delete")
            .summary("Forget it, with its snapshots; its history stays")
            .empty_response(204, "It is forgotten")
            .response_header(&[204], "Durability", "`behind`: it is acknowledged before it is on the disk.")
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
    /// `{thread}/{state}`, or `~/{state}` for one that all threads share; percent-encoded, with `%2F` for the slash.
    context_id: String,
    /// The kind of state.
    kind: Kind,
}

/// The sorts of state a context may hold.
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
        // What is no legal id names nothing that exists.
        let wrong = |wrong: toolhub_core::ids::IdError| {
            Problem::new(Code::NOT_FOUND, wrong.to_string())
                .hint("write the context as `thread%2Fstate` or `~%2Fstate`")
        };
        Ok((self.context_id.parse().map_err(wrong)?, self.kind.into()))
    }
}

/// What is to be remembered.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    /// All of it.
    data: Map<String, Value>,
    /// How long, such as `30s`, `1h` or `7d`; for ever where nothing is said, which kind `cache` does not allow.
    ttl: Option<DurationParam>,
}

/// What is to be merged into what is remembered.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Patched {
    /// The members that change; null takes one away.
    data: Map<String, Value>,
}

async fn get(
    State(app): State<App>,
    who: Principal,
    Params(place): Params<StatePath>,
    same: IfNoneMatch,
) -> ApiResult<Response> {
    let (context, kind) = place.parse()?;
    let found = app.hub().state().get_state(&who.tenant, &context, kind).await.map_err(state_problem)?;
    let entry = Entry::from(found.ok_or_else(|| not_found(&context, kind))?);
    let tag = entry.etag();
    Ok(if same.matches(&tag) {
        tag.attach_to(StatusCode::NOT_MODIFIED).into_response()
    } else {
        EntryResponse(entry).into_response()
    })
}

async fn put(
    State(app): State<App>,
    who: Principal,
    Params(place): Params<StatePath>,
    is: IfMatch,
    is_not: IfNoneMatch,
    Body(written): Body<Written>,
) -> ApiResult<Response> {
    let (context, kind) = place.parse()?;
    let state = app.hub().state();
    let condition = is.condition(&is_not, &app, &who.tenant, (&context, kind)).await?;
    let ttl = written.ttl.map(|DurationParam(time)| time);
    // A state in a thread that nobody knows would never be swept.
    use_thread(&app, &who.tenant, &context).await?;
    let data = (Value::Object(written.data), ttl);
    let entry = state.set_state_if(&who.tenant, &context, kind, data, condition.condition).await;
    let (entry, new) = entry.map_err(|error| condition.to_problem(error))?;
    let entry = Entry::from(entry).with_durability(state.durability(&context));
    let status = if new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, EntryResponse(entry)).into_response())
}

async fn patch(
    State(app): State<App>,
    who: Principal,
    Params(place): Params<StatePath>,
    is: IfMatch,
    is_not: IfNoneMatch,
    Body(patched): Body<Patched>,
) -> ApiResult<EntryResponse> {
    let (context, kind) = place.parse()?;
    let state = app.hub().state();
    let condition = is.condition(&is_not, &app, &who.tenant, (&context, kind)).await?;
    let data = Value::Object(patched.data);
    let entry = state.update_state_if(&who.tenant, &context, kind, data, condition.condition).await;
    let entry = entry.map_err(|error| condition.to_problem(error))?;
    use_thread(&app, &who.tenant, &context).await?;
    Ok(EntryResponse(Entry::from(entry).with_durability(state.durability(&context))))
}

async fn delete(
    State(app): State<App>,
    who: Principal,
    Params(place): Params<StatePath>,
    is: IfMatch,
    is_not: IfNoneMatch,
) -> ApiResult<Response> {
    let (context, kind) = place.parse()?;
    let state = app.hub().state();
    let condition = is.condition(&is_not, &app, &who.tenant, (&context, kind)).await?;
    let was_there = state.delete_state_if(&who.tenant, &context, kind, condition.condition).await;
    if !was_there.map_err(|error| condition.to_problem(error))? {
        return Err(not_found(&context, kind));
    }
    use_thread(&app, &who.tenant, &context).await?;
    Ok(entry::with_durability_header(StatusCode::NO_CONTENT.into_response(), state.durability(&context)))
}

/// Notes that the context's thread is in use, and makes it where it is not there.
async fn use_thread(app: &App, tenant: &Tenant, context: &ContextId) -> ApiResult<()> {
    match context.thread() {
        Some(thread) => Ok(app.hub().touch_thread(tenant, thread).await?),
        None => Ok(()),
    }
}

fn not_found(context: &ContextId, kind: StateKind) -> Problem {
    Problem::new(Code::STATE_NOT_FOUND, format!("there is no state `{context}/{kind}`, or it has expired"))
}

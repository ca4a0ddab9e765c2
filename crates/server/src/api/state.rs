//! What tools remember, for people and programs: looked at, written, patched, forgotten, rolled back.
//!
//! In: a context, one percent-encoded part of the path, and a kind. Out: entries with their version as `ETag`. Every
//! condition on that version is part of the write itself.

mod conditions;
mod contexts;
mod entry;
mod past;

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
    extract::{Body, Params},
    problem::{Answer, Code, Problem},
    route::Route,
    scope::{Access, Principal, Scope},
    span::Span,
};
use conditions::{IfMatch, IfNoneMatch};
use entry::{Entry, Tagged, refused};

const PATH: &str = "/api/v1/state/contexts/{contextId}/{kind}";
const READS: Access = Access::Needs(Scope::StateRead);
const WRITES: Access = Access::Needs(Scope::StateWrite);
/// What every request about a state may be refused with.
const ALWAYS: &[ErrorKind] = &[ErrorKind::StateNotFound, ErrorKind::StateUnreadable, ErrorKind::StoreUnavailable];
/// What a write may be refused with beyond that.
const WRITTEN: &[ErrorKind] = &[ErrorKind::StateConflict, ErrorKind::StateTooLarge, ErrorKind::StateLimit];

/// What the header says that entries have.
const TAG: &str = "The version, for `If-Match` and `If-None-Match`.";

pub(super) fn routes() -> Vec<Route> {
    let own = vec![
        Route::new(Method::GET, PATH, READS, "state", get)
            .says("What is remembered")
            .answers::<Entry>(200, "The entry; its version is the `ETag`")
            .answers_nothing(304, "It is still what `If-None-Match` names")
            .gives(&[200, 304], "ETag", TAG)
            .refusals(ALWAYS),
        Route::new(Method::PUT, PATH, WRITES, "state", put)
            .audited("state.put")
            .says("Replace what is remembered, or begin to remember; makes the thread and the context")
            .answers::<Entry>(200, "The entry as it was written")
            .answers::<Entry>(201, "The entry, which is new")
            .gives(&[200, 201], "ETag", TAG)
            .problems(&[Code::STATE_CONFLICT])
            .refusals(ALWAYS)
            .refusals(WRITTEN),
        Route::new(Method::PATCH, PATH, WRITES, "state", patch)
            .audited("state.patch")
            .says("Merge members into what is remembered; null takes one away, the time to live stays")
            .answers::<Entry>(200, "The entry as it was written")
            .gives(&[200], "ETag", TAG)
            .problems(&[Code::STATE_CONFLICT])
            .refusals(ALWAYS)
            .refusals(WRITTEN),
        Route::new(Method::DELETE, PATH, WRITES, "state", delete)
            .audited("state.delete")
            .says("Forget it, with its snapshots; its history stays")
            .answers_nothing(204, "It is forgotten")
            .gives(&[204], "Durability", "`behind`: it is acknowledged before it is on the disk.")
            .problems(&[Code::STATE_CONFLICT, Code::INVALID_REQUEST])
            .refusals(ALWAYS)
            .refusals(&[ErrorKind::StateConflict]),
    ];
    [contexts::routes(), own, past::routes()].into_iter().flatten().collect()
}

/// A context and a kind in a path.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Place {
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

impl Place {
    fn read(&self) -> Answer<(ContextId, StateKind)> {
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
    ttl: Option<Span>,
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
    Params(place): Params<Place>,
    same: IfNoneMatch,
) -> Answer<Response> {
    let (context, kind) = place.read()?;
    let found = app.hub().state().get_state(&who.tenant, &context, kind).await.map_err(refused)?;
    let entry = Entry::from(found.ok_or_else(|| nothing(&context, kind))?);
    let tag = entry.tag();
    Ok(if same.names(&tag) { tag.on(StatusCode::NOT_MODIFIED).into_response() } else { Tagged(entry).into_response() })
}

async fn put(
    State(app): State<App>,
    who: Principal,
    Params(place): Params<Place>,
    is: IfMatch,
    is_not: IfNoneMatch,
    Body(written): Body<Written>,
) -> Answer<Response> {
    let (context, kind) = place.read()?;
    let state = app.hub().state();
    let condition = is.condition(&is_not, &app, &who.tenant, (&context, kind)).await?;
    let ttl = written.ttl.map(|Span(time)| time);
    // A state in a thread that nobody knows would never be swept.
    use_thread(&app, &who.tenant, &context).await?;
    let data = (Value::Object(written.data), ttl);
    let entry = state.set_state_if(&who.tenant, &context, kind, data, condition.is).await;
    let (entry, new) = entry.map_err(|error| condition.refused(error))?;
    let entry = Entry::from(entry).told(state.durability(&context));
    let status = if new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Tagged(entry)).into_response())
}

async fn patch(
    State(app): State<App>,
    who: Principal,
    Params(place): Params<Place>,
    is: IfMatch,
    is_not: IfNoneMatch,
    Body(patched): Body<Patched>,
) -> Answer<Tagged> {
    let (context, kind) = place.read()?;
    let state = app.hub().state();
    let condition = is.condition(&is_not, &app, &who.tenant, (&context, kind)).await?;
    let data = Value::Object(patched.data);
    let entry = state.update_state_if(&who.tenant, &context, kind, data, condition.is).await;
    let entry = entry.map_err(|error| condition.refused(error))?;
    use_thread(&app, &who.tenant, &context).await?;
    Ok(Tagged(Entry::from(entry).told(state.durability(&context))))
}

async fn delete(
    State(app): State<App>,
    who: Principal,
    Params(place): Params<Place>,
    is: IfMatch,
    is_not: IfNoneMatch,
) -> Answer<Response> {
    let (context, kind) = place.read()?;
    let state = app.hub().state();
    let condition = is.condition(&is_not, &app, &who.tenant, (&context, kind)).await?;
    let was_there = state.delete_state_if(&who.tenant, &context, kind, condition.is).await;
    if !was_there.map_err(|error| condition.refused(error))? {
        return Err(nothing(&context, kind));
    }
    use_thread(&app, &who.tenant, &context).await?;
    Ok(entry::durability(StatusCode::NO_CONTENT.into_response(), state.durability(&context)))
}

/// Notes that the context's thread is in use, and makes it where it is not there.
async fn use_thread(app: &App, tenant: &Tenant, context: &ContextId) -> Answer<()> {
    match context.thread() {
        Some(thread) => Ok(app.hub().use_thread(tenant, thread).await?),
        None => Ok(()),
    }
}

fn nothing(context: &ContextId, kind: StateKind) -> Problem {
    Problem::new(Code::STATE_NOT_FOUND, format!("there is no state `{context}/{kind}`, or it has expired"))
}

//! What states were like and what happened to them, the newest first; and the way back.

use axum::{extract::State, http::Method};
use schemars::JsonSchema;
use serde::Deserialize;
use toolhub_core::{ContextId, HistoryEntry, StateKind, StateVersion, clock::Timestamp};

use super::{
    COMMON_ERRORS, Kind, READ_ACCESS, StatePath, WRITE_ACCESS, WRITE_ERRORS,
    conditions::{IfMatch, IfNoneMatch},
    entry::{Entry, EntryResponse, state_problem},
    not_found, use_thread,
};
use crate::{
    app::App,
    extract::{Body, Params, Query},
    page::{self, List, ListQuery, ListResponse, RequestUri},
    problem::{ApiResult, Code, Problem},
    route::Route,
    scope::Principal,
};

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/api/v1/state/contexts/{contextId}/{kind}/history", READ_ACCESS, "state", history)
            .summary("What happened to a context, the newest first; only kind `business` has a history")
            .json_response::<List<HistoryEntry>>(200, "A page of it")
            .refusals(COMMON_ERRORS),
        Route::new(Method::GET, "/api/v1/state/contexts/{contextId}/{kind}/versions", READ_ACCESS, "state", versions)
            .summary("The snapshots of a state, the newest first; only kind `business` has any")
            .json_response::<List<StateVersion>>(200, "A page of them")
            .refusals(COMMON_ERRORS),
        Route::new(Method::POST, "/api/v1/state/contexts/{contextId}/{kind}/rollback", WRITE_ACCESS, "state", rollback)
            .audited("state.rollback")
            .summary("Make a new version with the data of an old one; only kind `business` has any")
            .json_response::<Entry>(200, "The entry as it was written")
            .response_header(&[200], "ETag", super::ETAG_DESCRIPTION)
            .problems(&[Code::STATE_CONFLICT])
            .refusals(COMMON_ERRORS)
            .refusals(WRITE_ERRORS),
    ]
}

/// Where to go back to.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Back {
    /// The version whose data is wanted.
    version: u64,
}

async fn history(
    State(app): State<App>,
    who: Principal,
    Params(place): Params<StatePath>,
    Query(query): Query<ListQuery>,
    here: RequestUri,
) -> ApiResult<ListResponse<HistoryEntry>> {
    let context = place.versioned_context()?;
    let list = format!("history {context}");
    let last = page::decode_cursor(query.cursor.as_ref(), &list)?;
    let last = last.map(|text| parse_position(&text).ok_or_else(page::unknown_position)).transpose()?;
    let mut entries = app.hub().state().history(&who.tenant, &context, usize::MAX).await.map_err(state_problem)?;
    if entries.is_empty() {
        require_exists(&app, &who, &context).await?;
    }
    entries.reverse();
    if let Some((moment, many)) = last {
        // Entries have no number of their own; of those of one moment, so many were told before.
        let mut same = 0;
        entries.retain(|entry| {
            same += usize::from(entry.timestamp == moment);
            entry.timestamp < moment || (entry.timestamp == moment && same > many)
        });
    }
    let end = query.limit.truncate(&mut entries).map(|last| last.timestamp);
    let next = end.map(|moment| {
        let before = last.filter(|(earlier, _)| *earlier == moment).map_or(0, |(_, many)| many);
        let here = entries.iter().filter(|entry| entry.timestamp == moment).count();
        format!("{} {}", moment.millis(), before + here)
    });
    Ok(here.list_response(&list, entries, next))
}

/// The moment of the last entry that was told, and how many of that moment were.
fn parse_position(place: &str) -> Option<(Timestamp, usize)> {
    let (millis, many) = place.split_once(' ')?;
    Some((Timestamp::from_millis(millis.parse().ok()?), many.parse().ok()?))
}

async fn versions(
    State(app): State<App>,
    who: Principal,
    Params(place): Params<StatePath>,
    Query(query): Query<ListQuery>,
    here: RequestUri,
) -> ApiResult<ListResponse<StateVersion>> {
    let context = place.versioned_context()?;
    let list = format!("versions {context}");
    let last: Option<u64> = page::decode_cursor_as(query.cursor.as_ref(), &list)?;
    let found = app.hub().state().versions(&who.tenant, &context).await.map_err(state_problem)?;
    if found.is_empty() {
        require_exists(&app, &who, &context).await?;
    }
    let older = found.into_iter().rev().filter(|found| last.is_none_or(|last| found.version < last));
    let mut older: Vec<StateVersion> = older.collect();
    let next = query.limit.truncate(&mut older).map(|last| last.version.to_string());
    Ok(here.list_response(&list, older, next))
}

async fn rollback(
    State(app): State<App>,
    who: Principal,
    Params(place): Params<StatePath>,
    is: IfMatch,
    is_not: IfNoneMatch,
    Body(back): Body<Back>,
) -> ApiResult<EntryResponse> {
    let context = place.versioned_context()?;
    let state = app.hub().state();
    let condition = is.condition(&is_not, &app, &who.tenant, (&context, StateKind::Business)).await?;
    let entry = state.rollback_if(&who.tenant, &context, back.version, condition.condition).await;
    let entry = entry.map_err(|error| condition.to_problem(error))?;
    use_thread(&app, &who.tenant, &context).await?;
    Ok(EntryResponse(Entry::from(entry).with_durability(state.durability(&context))))
}

impl StatePath {
    /// The context, if the kind is the one with a past.
    fn versioned_context(&self) -> ApiResult<ContextId> {
        let (context, kind) = self.parse()?;
        match self.kind {
            Kind::Business => Ok(context),
            _ => Err(Problem::new(Code::NOT_FOUND, format!("a state of kind `{kind}` has no past"))
                .hint("only kind `business` has snapshots and a history")),
        }
    }
}

/// Nothing of the past is told where nothing is.
async fn require_exists(app: &App, who: &Principal, context: &ContextId) -> ApiResult<()> {
    let found = app.hub().state().get_state(&who.tenant, context, StateKind::Business).await.map_err(state_problem)?;
    found.map(|_| ()).ok_or_else(|| not_found(context, StateKind::Business))
}

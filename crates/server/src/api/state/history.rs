//! History and versions of states, newest first, and rollback.

use axum::{extract::State, http::Method};
use schemars::JsonSchema;
use serde::Deserialize;
use toolhub_core::{ContextId, HistoryCursor, HistoryEntry, StateKind, StateVersion};

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
            .summary("History of a context, newest first; only kind `business` has a history")
            .json_response::<List<HistoryEntry>>(200, "A page of entries")
            .refusals(COMMON_ERRORS),
        Route::new(Method::GET, "/api/v1/state/contexts/{contextId}/{kind}/versions", READ_ACCESS, "state", versions)
            .summary("Snapshots of a state, newest first; only kind `business` has any")
            .json_response::<List<StateVersion>>(200, "A page of snapshots")
            .refusals(COMMON_ERRORS),
        Route::new(Method::POST, "/api/v1/state/contexts/{contextId}/{kind}/rollback", WRITE_ACCESS, "state", rollback)
            .audited("state.rollback")
            .summary("Write a new version with the data of an old one; only kind `business` has versions")
            .json_response::<Entry>(200, "The entry that was written")
            .response_header(&[200], "ETag", super::ETAG_DESCRIPTION)
            .problems(&[Code::STATE_CONFLICT])
            .refusals(COMMON_ERRORS)
            .refusals(WRITE_ERRORS),
    ]
}

/// The rollback target.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RollbackBody {
    /// The version whose data to restore.
    version: u64,
}

async fn history(
    State(app): State<App>,
    principal: Principal,
    Params(path): Params<StatePath>,
    Query(query): Query<ListQuery>,
    uri: RequestUri,
) -> ApiResult<ListResponse<HistoryEntry>> {
    let context = path.versioned_context()?;
    let list = format!("history {context}");
    let after: Option<HistoryCursor> = page::decode_cursor_as(query.cursor.as_ref(), &list)?;
    let page = app.hub().state().history_page(&principal.tenant, &context, after, query.limit.get()).await;
    let (entries, next) = page.map_err(state_problem)?;
    if entries.is_empty() {
        require_exists(&app, &principal, &context).await?;
    }
    Ok(uri.list_response(&list, entries, next.map(|next| next.to_string())))
}

async fn versions(
    State(app): State<App>,
    principal: Principal,
    Params(path): Params<StatePath>,
    Query(query): Query<ListQuery>,
    uri: RequestUri,
) -> ApiResult<ListResponse<StateVersion>> {
    let context = path.versioned_context()?;
    let list = format!("versions {context}");
    let last: Option<u64> = page::decode_cursor_as(query.cursor.as_ref(), &list)?;
    let page = app.hub().state().versions_page(&principal.tenant, &context, last).await;
    let (mut older, has_more) = page.map_err(state_problem)?;
    if older.is_empty() {
        require_exists(&app, &principal, &context).await?;
    }
    let next = query.limit.truncate(&mut older).map(|last| last.version);
    let next = next.or(older.last().map(|last| last.version).filter(|_| has_more)).map(|version| version.to_string());
    Ok(uri.list_response(&list, older, next))
}

async fn rollback(
    State(app): State<App>,
    principal: Principal,
    Params(path): Params<StatePath>,
    if_match: IfMatch,
    if_none_match: IfNoneMatch,
    Body(body): Body<RollbackBody>,
) -> ApiResult<EntryResponse> {
    let context = path.versioned_context()?;
    let state = app.hub().state();
    let condition =
        if_match.condition(&if_none_match, &app, &principal.tenant, (&context, StateKind::Business)).await?;
    let entry = state.rollback_if(&principal.tenant, &context, body.version, condition.condition).await;
    let entry = entry.map_err(|error| condition.to_problem(error))?;
    use_thread(&app, &principal.tenant, &context).await?;
    Ok(EntryResponse(Entry::from(entry).with_durability(state.durability(&context))))
}

impl StatePath {
    /// The context, if its kind is versioned.
    fn versioned_context(&self) -> ApiResult<ContextId> {
        let (context, kind) = self.parse()?;
        match self.kind {
            Kind::Business => Ok(context),
            _ => Err(Problem::new(Code::NOT_FOUND, format!("a state of kind `{kind}` has no history"))
                .hint("only kind `business` has snapshots and a history")),
        }
    }
}

/// Answers 404 for a state that does not exist, rather than an empty list.
async fn require_exists(app: &App, principal: &Principal, context: &ContextId) -> ApiResult<()> {
    let entry =
        app.hub().state().get_state(&principal.tenant, context, StateKind::Business).await.map_err(state_problem)?;
    entry.map(|_| ()).ok_or_else(|| not_found(context, StateKind::Business))
}

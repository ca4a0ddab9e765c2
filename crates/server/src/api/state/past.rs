//! What states were like and what happened to them, the newest first; and the way back.

use axum::{extract::State, http::Method};
use schemars::JsonSchema;
use serde::Deserialize;
use toolhub_core::{ContextId, HistoryEntry, StateKind, StateVersion, clock::Timestamp};

use super::{
    ALWAYS, Kind, Place, READS, WRITES, WRITTEN,
    conditions::{IfMatch, IfNoneMatch},
    entry::{Entry, Tagged, refused},
    nothing, use_thread,
};
use crate::{
    app::App,
    extract::{Body, Params, Query},
    page::{self, Here, List, ListQuery, Listed},
    problem::{Answer, Code, Problem},
    route::Route,
    scope::Principal,
};

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/api/v1/state/contexts/{contextId}/{kind}/history", READS, "state", history)
            .says("What happened to a context, the newest first; only kind `business` has a history")
            .answers::<List<HistoryEntry>>(200, "A page of it")
            .refusals(ALWAYS),
        Route::new(Method::GET, "/api/v1/state/contexts/{contextId}/{kind}/versions", READS, "state", versions)
            .says("The snapshots of a state, the newest first; only kind `business` has any")
            .answers::<List<StateVersion>>(200, "A page of them")
            .refusals(ALWAYS),
        Route::new(Method::POST, "/api/v1/state/contexts/{contextId}/{kind}/rollback", WRITES, "state", rollback)
            .audited("state.rollback")
            .says("Make a new version with the data of an old one; only kind `business` has any")
            .answers::<Entry>(200, "The entry as it was written")
            .gives(&[200], "ETag", super::TAG)
            .problems(&[Code::STATE_CONFLICT])
            .refusals(ALWAYS)
            .refusals(WRITTEN),
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
    Params(place): Params<Place>,
    Query(query): Query<ListQuery>,
    here: Here,
) -> Answer<Listed<HistoryEntry>> {
    let context = place.with_a_past()?;
    let list = format!("history {context}");
    let last = page::place(query.cursor.as_ref(), &list)?;
    let last = last.map(|text| told(&text).ok_or_else(page::no_such_place)).transpose()?;
    let mut entries = app.hub().state().history(&who.tenant, &context, usize::MAX).await.map_err(refused)?;
    if entries.is_empty() {
        there(&app, &who, &context).await?;
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
    let end = query.limit.cut(&mut entries).map(|last| last.timestamp);
    let next = end.map(|moment| {
        let before = last.filter(|(earlier, _)| *earlier == moment).map_or(0, |(_, many)| many);
        let here = entries.iter().filter(|entry| entry.timestamp == moment).count();
        format!("{} {}", moment.millis(), before + here)
    });
    Ok(here.list(&list, entries, next))
}

/// The moment of the last entry that was told, and how many of that moment were.
fn told(place: &str) -> Option<(Timestamp, usize)> {
    let (millis, many) = place.split_once(' ')?;
    Some((Timestamp::from_millis(millis.parse().ok()?), many.parse().ok()?))
}

async fn versions(
    State(app): State<App>,
    who: Principal,
    Params(place): Params<Place>,
    Query(query): Query<ListQuery>,
    here: Here,
) -> Answer<Listed<StateVersion>> {
    let context = place.with_a_past()?;
    let list = format!("versions {context}");
    let last: Option<u64> = page::place_as(query.cursor.as_ref(), &list)?;
    let found = app.hub().state().versions(&who.tenant, &context).await.map_err(refused)?;
    if found.is_empty() {
        there(&app, &who, &context).await?;
    }
    let older = found.into_iter().rev().filter(|found| last.is_none_or(|last| found.version < last));
    let mut older: Vec<StateVersion> = older.collect();
    let next = query.limit.cut(&mut older).map(|last| last.version.to_string());
    Ok(here.list(&list, older, next))
}

async fn rollback(
    State(app): State<App>,
    who: Principal,
    Params(place): Params<Place>,
    is: IfMatch,
    is_not: IfNoneMatch,
    Body(back): Body<Back>,
) -> Answer<Tagged> {
    let context = place.with_a_past()?;
    let state = app.hub().state();
    let condition = is.condition(&is_not, &app, &who.tenant, (&context, StateKind::Business)).await?;
    let entry = state.rollback_if(&who.tenant, &context, back.version, condition.is).await;
    let entry = entry.map_err(|error| condition.refused(error))?;
    use_thread(&app, &who.tenant, &context).await?;
    Ok(Tagged(Entry::from(entry).told(state.durability(&context))))
}

impl Place {
    /// The context, if the kind is the one with a past.
    fn with_a_past(&self) -> Answer<ContextId> {
        let (context, kind) = self.read()?;
        match self.kind {
            Kind::Business => Ok(context),
            _ => Err(Problem::new(Code::NOT_FOUND, format!("a state of kind `{kind}` has no past"))
                .hint("only kind `business` has snapshots and a history")),
        }
    }
}

/// Nothing of the past is told where nothing is.
async fn there(app: &App, who: &Principal, context: &ContextId) -> Answer<()> {
    let found = app.hub().state().get_state(&who.tenant, context, StateKind::Business).await.map_err(refused)?;
    found.map(|_| ()).ok_or_else(|| nothing(context, StateKind::Business))
}

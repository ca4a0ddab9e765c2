//! The audit: who did what to the server.

use axum::{extract::State, http::Method, response::IntoResponse};
use schemars::JsonSchema;
use serde::Deserialize;
use toolhub_core::{ErrorKind, clock::Timestamp};

use crate::{
    app::App,
    audit::Entry,
    extract::Query,
    page::{self, Cursor, Here, Limit, List},
    problem::Answer,
    route::Route,
    scope::{Access, Scope},
};

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/api/v1/audit", Access::Needs(Scope::Admin), "system", list)
            .says("Who changed what, and who was not let, the latest first")
            .answers::<List<Entry>>(200, "A page of it")
            .refusals(&[ErrorKind::StoreUnavailable]),
    ]
}

/// Which part of the audit is wanted.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Wanted {
    /// What happened then or later.
    since: Option<Timestamp>,
    /// What happened before then.
    until: Option<Timestamp>,
    #[serde(default)]
    limit: Limit,
    cursor: Option<Cursor>,
}

async fn list(State(app): State<App>, Query(wanted): Query<Wanted>, here: Here) -> Answer<impl IntoResponse> {
    let after = page::place(wanted.cursor.as_ref(), "audit")?;
    let page = app.audit().page(wanted.since, wanted.until, after.as_deref(), wanted.limit.get());
    let (entries, next) = page.await?;
    Ok(here.list("audit", entries, next))
}

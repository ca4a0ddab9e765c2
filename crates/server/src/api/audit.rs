//! The audit: who did what to the server.

use axum::{extract::State, http::Method, response::IntoResponse};
use toolhub_core::{ErrorKind, clock::Timestamp};

use crate::{
    app::App,
    audit::Entry,
    extract::Query,
    page::{self, List, RequestUri, list_query},
    problem::ApiResult,
    route::Route,
    scope::{Access, Scope},
};

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/api/v1/audit", Access::Needs(Scope::Admin), "system", list)
            .summary("Who changed what, and who was not let, the latest first")
            .json_response::<List<Entry>>(200, "A page of it")
            .refusals(&[ErrorKind::StoreUnavailable]),
    ]
}

list_query! {
    /// Which part of the audit is query.
    struct AuditQuery {
        /// What happened then or later.
        since: Option<Timestamp>,
        /// What happened before then.
        until: Option<Timestamp>,
    }
}

async fn list(
    State(app): State<App>,
    Query(query): Query<AuditQuery>,
    here: RequestUri,
) -> ApiResult<impl IntoResponse> {
    let after = page::decode_cursor(query.cursor.as_ref(), "audit")?;
    let page = app.audit().page(query.since, query.until, after.as_deref(), query.limit.get());
    let (entries, next) = page.await?;
    Ok(here.list_response("audit", entries, next))
}

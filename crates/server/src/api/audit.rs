//! The audit log, listed.

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
            .summary("The audit log: changes and denied requests, newest first")
            .json_response::<List<Entry>>(200, "A page of entries")
            .refusals(&[ErrorKind::StoreUnavailable]),
    ]
}

list_query! {
    /// Which entries to list.
    struct AuditQuery {
        /// Only entries at or after this time.
        since: Option<Timestamp>,
        /// Only entries before this time.
        until: Option<Timestamp>,
    }
}

async fn list(
    State(app): State<App>,
    Query(query): Query<AuditQuery>,
    uri: RequestUri,
) -> ApiResult<impl IntoResponse> {
    let after = page::decode_cursor(query.cursor.as_ref(), "audit")?;
    let page = app.audit().page(query.since, query.until, after.as_deref(), query.limit.get());
    let (entries, next) = page.await?;
    Ok(uri.list_response("audit", entries, next))
}

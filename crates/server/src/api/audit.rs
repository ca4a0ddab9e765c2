//! The audit log, listed.

use axum::{extract::State, http::Method, response::IntoResponse};
use toolhub_core::{ErrorKind, Glob, clock::Timestamp};

use crate::{
    app::App,
    audit::{Entry, Filter},
    extract::Query,
    page::{self, List, RequestUri, list_query},
    problem::{ApiResult, Code, Problem},
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
        /// Only these actions: a name such as `key.create`, or a glob such as `tool.*`.
        action: Option<String>,
        /// Only what this principal did: the name of a key.
        principal: Option<String>,
        /// Only what was done to these objects: `tools/weather`, or a glob such as `tools/*`.
        object: Option<String>,
    }
}

async fn list(
    State(app): State<App>,
    Query(query): Query<AuditQuery>,
    uri: RequestUri,
) -> ApiResult<impl IntoResponse> {
    let after = page::decode_cursor(query.cursor.as_ref(), "audit")?;
    let AuditQuery { since, until, action, principal, object, .. } = query;
    let filter = Filter { since, until, action: glob(action)?, principal, object: glob(object)? };
    let page = app.audit().page(&filter, after.as_deref(), query.limit.get());
    let (entries, next) = page.await?;
    Ok(uri.list_response("audit", entries, next))
}

fn glob(text: Option<String>) -> ApiResult<Option<Glob>> {
    text.map(|text| Glob::new(text).map_err(|why| Problem::new(Code::INVALID_REQUEST, why))).transpose()
}

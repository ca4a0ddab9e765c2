//! The targets of alerts: listed, tested, and their deliveries.
//!
//! In: names of targets. Out: what the hub knows of them. The targets themselves are in the config.

use axum::{extract::State, http::Method, response::IntoResponse};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhub_core::{
    AlertTargetError, AlertTargetInfo, ErrorKind,
    alerts::{AlertDelivery, DeliveryAttempt},
    suggest,
};

use super::threads::truncate;
use crate::{
    app::App,
    extract::{Params, Query},
    json::Json,
    page::{self, List, ListQuery, RequestUri},
    problem::{ApiResult, Code, Problem},
    route::Route,
    scope::{Access, Scope},
};

pub(super) fn routes() -> Vec<Route> {
    // Alerts concern all tenants, and answers of targets may be anything: they are for administrators.
    let admin = Access::Needs(Scope::Admin);
    let (unknown, store) = (&[Code::ALERT_TARGET_NOT_FOUND], &[ErrorKind::StoreUnavailable]);
    vec![
        Route::new(Method::GET, "/api/v1/alerts", admin, "alerts", list)
            .summary("Targets of alerts with the alerts that hold, by name")
            .json_response::<List<AlertTargetInfo>>(200, "A page of targets")
            .refusals(store),
        Route::new(Method::GET, "/api/v1/alerts/{name}/deliveries", admin, "alerts", deliveries)
            .summary("Messages to a target and their delivery, newest first: on the first page those that wait, then those of a week")
            .json_response::<List<AlertDelivery>>(200, "A page of deliveries")
            .problems(unknown)
            .refusals(store),
        Route::new(Method::POST, "/api/v1/alerts/{name}/test", admin, "alerts", test)
            .audited("alert.test")
            .summary("Send a test message to a target now, once")
            .json_response::<TestResult>(200, "What the target answered; it may have refused the message")
            .problems(unknown),
        Route::new(Method::POST, "/api/v1/alerts/{name}/retry", admin, "alerts", retry)
            .audited("alert.retry")
            .summary("Send the waiting messages of a target now, and enable it if it had said that it wants none")
            .json_response::<RetryResult>(200, "How many messages wait")
            .problems(unknown)
            .refusals(store),
    ]
}

/// A target's name in a path.
#[derive(Debug, Deserialize, JsonSchema)]
struct TargetPath {
    /// The target.
    name: String,
}

/// What a target answered to a test message.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "AlertTestResult")]
struct TestResult {
    /// Whether it took the message.
    delivered: bool,
    #[serde(flatten)]
    attempt: DeliveryAttempt,
}

/// The messages that are sent again.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "AlertRetryResult")]
struct RetryResult {
    /// How many wait.
    waiting: usize,
}

async fn list(State(app): State<App>, Query(query): Query<ListQuery>, uri: RequestUri) -> ApiResult<impl IntoResponse> {
    let after = page::decode_cursor(query.cursor.as_ref(), "alerts")?.unwrap_or_default();
    let mut targets = app.hub().alert_targets().await?;
    targets.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    targets.retain(|target| target.name > after);
    let next = query.limit.truncate(&mut targets).map(|last| last.name.clone());
    Ok(uri.list_response("alerts", targets, next))
}

async fn deliveries(
    State(app): State<App>,
    Params(TargetPath { name }): Params<TargetPath>,
    Query(query): Query<ListQuery>,
    uri: RequestUri,
) -> ApiResult<impl IntoResponse> {
    let before = page::decode_cursor_as(query.cursor.as_ref(), "alert-deliveries")?;
    let page = app.hub().alert_deliveries(&name, before, query.limit.get()).await.map_err(|why| problem(&name, why))?;
    Ok(uri.list_response("alert-deliveries", page.deliveries, page.next.map(|number| number.to_string())))
}

async fn test(State(app): State<App>, Params(TargetPath { name }): Params<TargetPath>) -> ApiResult<Json<TestResult>> {
    let attempt = app.hub().test_alert_target(&name).await.map_err(|why| problem(&name, why))?;
    Ok(Json(TestResult { delivered: attempt.is_success(), attempt }))
}

async fn retry(
    State(app): State<App>,
    Params(TargetPath { name }): Params<TargetPath>,
) -> ApiResult<Json<RetryResult>> {
    let waiting = app.hub().retry_alert_deliveries(&name).await.map_err(|why| problem(&name, why))?;
    Ok(Json(RetryResult { waiting }))
}

fn problem(name: &str, error: AlertTargetError) -> Problem {
    match error {
        AlertTargetError::Store(error) => error.into(),
        AlertTargetError::Unknown(_, known) => {
            let problem = format!("no alert target is named `{}`", truncate(name));
            let closest = suggest::closest(name, known.iter().map(String::as_str), 3);
            let closest: Vec<String> = closest.into_iter().map(String::from).collect();
            Problem::new(Code::ALERT_TARGET_NOT_FOUND, problem).with("suggestions", closest)
        }
    }
}

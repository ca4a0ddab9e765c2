//! Backups of the store, made on demand.

use axum::{
    extract::State,
    http::{Method, StatusCode},
};
use schemars::JsonSchema;
use serde::Deserialize;
use toolhub_core::StoreRole;

use super::config::{host_control, host_problem};
use crate::{
    app::App,
    extract::Query,
    host_control::Backup,
    json::Json,
    problem::{ApiResult, Code},
    route::Route,
    scope::{Access, Scope},
};

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::POST, "/api/v1/backups", Access::Needs(Scope::Admin), "system", create)
            .audited("backup.make")
            .summary("Make an online backup of a store")
            .json_response::<Backup>(201, "The backup")
            .problems(&[Code::NOT_FOUND, Code::NOT_DONE]),
    ]
}

/// What to back up.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct BackupQuery {
    /// `hub`, the default: all records of the hub. `state`: the states of a persistent state manager, which has its own store.
    #[serde(default)]
    store: StoreRole,
}

async fn create(
    State(app): State<App>,
    Query(BackupQuery { store }): Query<BackupQuery>,
) -> ApiResult<(StatusCode, Json<Backup>)> {
    let backup = host_control(&app)?.backup(store).await.map_err(host_problem)?;
    Ok((StatusCode::CREATED, Json(backup)))
}

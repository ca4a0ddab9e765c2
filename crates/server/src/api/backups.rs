//! Backups of the store, made on demand.

use axum::{
    extract::State,
    http::{Method, StatusCode},
};

use super::config::{host_control, host_problem};
use crate::{
    app::App,
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
            .summary("Make an online backup of the store")
            .json_response::<Backup>(201, "The backup")
            .problems(&[Code::NOT_FOUND, Code::NOT_DONE]),
    ]
}

async fn create(State(app): State<App>) -> ApiResult<(StatusCode, Json<Backup>)> {
    let backup = host_control(&app)?.backup().await.map_err(host_problem)?;
    Ok((StatusCode::CREATED, Json(backup)))
}

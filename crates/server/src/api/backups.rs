//! Backups of the store, made on demand.

use axum::{
    extract::State,
    http::{Method, StatusCode},
};

use super::config::{refused, steward};
use crate::{
    app::App,
    json::Json,
    problem::{Answer, Code},
    route::Route,
    scope::{Access, Scope},
    steward::Backup,
};

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::POST, "/api/v1/backups", Access::Needs(Scope::Admin), "system", make)
            .audited("backup.make")
            .says("Make a backup of the store, while it is in use")
            .answers::<Backup>(201, "Where it is")
            .problems(&[Code::NOT_FOUND, Code::NOT_DONE]),
    ]
}

async fn make(State(app): State<App>) -> Answer<(StatusCode, Json<Backup>)> {
    let backup = steward(&app)?.backup().await.map_err(refused)?;
    Ok((StatusCode::CREATED, Json(backup)))
}

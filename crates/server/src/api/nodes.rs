//! The nodes that share the store of the hub.
//!
//! In: nothing. Out: this node and the others, with what this one knows of them. `reload` reloads the config of all.

mod reload;

use axum::{extract::State, http::Method, response::IntoResponse};
use toolhub_core::{ErrorKind, NodeStatus};

pub(crate) use reload::answer_other_nodes;

use crate::{
    app::App,
    extract::Query,
    page::{self, List, ListQuery, RequestUri},
    problem::{ApiResult, Code},
    route::Route,
    scope::{Access, Scope},
};

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/api/v1/nodes", Access::Needs(Scope::ToolsRead), "system", list)
            .summary("The nodes that share the store, by id")
            .json_response::<List<NodeStatus>>(
                200,
                "A page of nodes: those that are alive, and those that died in the last minutes",
            )
            .refusals(&[ErrorKind::StoreUnavailable]),
        Route::new(Method::POST, "/api/v1/nodes/reload", Access::Needs(Scope::Admin), "system", reload::reload_all)
            .audited("config.reload")
            .summary("Let every living node reload the config from its own files")
            .json_response::<reload::NodeReloads>(200, "What each node did; an invalid config changes nothing there")
            .refusals(&[ErrorKind::StoreUnavailable])
            .problems(&[Code::NOT_FOUND]),
    ]
}

async fn list(State(app): State<App>, Query(query): Query<ListQuery>, uri: RequestUri) -> ApiResult<impl IntoResponse> {
    let after = page::decode_cursor(query.cursor.as_ref(), "nodes")?.unwrap_or_default();
    let mut nodes = app.hub().nodes().await?;
    nodes.sort_unstable_by(|one, other| one.id.cmp(&other.id));
    nodes.retain(|node| *node.id > *after);
    let next = query.limit.truncate(&mut nodes).map(|last| last.id.to_string());
    Ok(uri.list_response("nodes", nodes, next))
}

//! The nodes that share the store of the hub.
//!
//! In: nothing. Out: this node and the others, with what this one knows of them.

use axum::{extract::State, http::Method, response::IntoResponse};
use toolhub_core::{ErrorKind, NodeStatus};

use crate::{
    app::App,
    extract::Query,
    page::{self, List, ListQuery, RequestUri},
    problem::ApiResult,
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

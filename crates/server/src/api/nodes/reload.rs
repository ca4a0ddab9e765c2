//! Reloads the config of all nodes: each reads its own files.
//!
//! In: nothing. Out: for each node what changed, or why nothing did. This node asks the others over the store that they share.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use axum::extract::State;
use futures_util::future::join_all;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use smol_str::SmolStr;
use toolhub_core::{NodeRequestError, NodeState, NodeStatus, ToolHub};

use super::super::config::{ConfigErrorItem, host_control};
use crate::{
    app::App,
    host_control::{HostControl, HostControlError, ReloadReport, run_to_end},
    json::Json,
    problem::ApiResult,
};

const REQUEST_KIND: &str = "config.reload";
/// How long another node may take.
const TIMEOUT: Duration = Duration::from_secs(60);

/// What the nodes did.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct NodeReloads {
    /// All living nodes, this one first.
    nodes: Vec<NodeReload>,
}

/// What a node did.
#[derive(Debug, Serialize, JsonSchema)]
struct NodeReload {
    /// The id of the node.
    id: SmolStr,
    /// Its name.
    name: SmolStr,
    #[serde(flatten)]
    result: ReloadResult,
}

/// Whether a node has reloaded its config.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "status", rename_all = "snake_case")]
enum ReloadResult {
    /// It has.
    Reloaded {
        /// What changed.
        report: ReloadReport,
    },
    /// It could not: nothing was changed.
    Refused {
        /// Why.
        detail: String,
        /// The problems of its config.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        errors: Vec<ConfigErrorItem>,
    },
    /// It is not known whether it did.
    Unanswered {
        /// Why.
        detail: String,
    },
}

pub(super) async fn reload_all(State(app): State<App>) -> ApiResult<Json<NodeReloads>> {
    let host = host_control(&app)?;
    let nodes = app.hub().nodes().await?;
    let alive = nodes.into_iter().filter(|node| node.state == NodeState::Alive);
    let reloads = alive.map(|node| async {
        let result = if node.is_self { reload(host).await } else { ask(app.hub(), &node).await };
        NodeReload { id: node.id, name: node.name, result }
    });
    Ok(Json(NodeReloads { nodes: join_all(reloads).await }))
}

/// Lets other nodes ask this one to reload.
pub(crate) fn answer_other_nodes(hub: &ToolHub, host: &Arc<dyn HostControl>) {
    // The host program holds the hub.
    let host: Weak<dyn HostControl> = Arc::downgrade(host);
    hub.on_node_request(REQUEST_KIND, move |_| {
        let host = host.upgrade();
        async move {
            let result = match host {
                Some(host) => reload(&host).await,
                None => ReloadResult::Unanswered { detail: "the node is stopping".into() },
            };
            serde_json::to_value(result).unwrap_or_default()
        }
    });
}

async fn reload(host: &Arc<dyn HostControl>) -> ReloadResult {
    match run_to_end(host, |host| host.reload()).await {
        Ok(report) => ReloadResult::Reloaded { report },
        Err(error) => {
            let detail = error.to_string();
            let problems = if let HostControlError::Config(problems) = error { problems } else { Vec::new() };
            ReloadResult::Refused { detail, errors: problems.into_iter().map(ConfigErrorItem::from).collect() }
        }
    }
}

async fn ask(hub: &ToolHub, node: &NodeStatus) -> ReloadResult {
    let asked = tokio::time::timeout(TIMEOUT, hub.ask_node(&node.id, REQUEST_KIND, Value::Null)).await;
    let detail = match asked {
        Ok(Ok(answer)) => match serde_json::from_value(answer) {
            Ok(result) => return result,
            Err(error) => format!("its answer is not understood: {error}"),
        },
        Ok(Err(error @ NodeRequestError::Unsupported)) => {
            return ReloadResult::Refused { detail: error.to_string(), errors: Vec::new() };
        }
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("it has not answered within {} s", TIMEOUT.as_secs()),
    };
    ReloadResult::Unanswered { detail }
}

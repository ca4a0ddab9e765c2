//! What is known of a node: what its program says of it, the record in its row, and how other nodes see it.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::compatibility::record_layouts;
use toolhub_storage::backend::Row;
use toolhub_types::timestamp::Timestamp;

/// What a program says of the node it runs, for [`HubBuilder::node`](crate::HubBuilder::node).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use]
pub struct NodeInfo {
    pub(super) name: Option<SmolStr>,
    pub(super) address: Option<SmolStr>,
    pub(super) config_digest: Option<SmolStr>,
}

impl NodeInfo {
    /// A node with this name, which people recognize it by. Names need not be unique.
    pub fn new(name: impl Into<SmolStr>) -> Self {
        Self { name: Some(name.into()), ..Self::default() }
    }

    /// The address at which the node can be reached.
    pub fn address(mut self, address: impl Into<SmolStr>) -> Self {
        self.address = Some(address.into());
        self
    }

    /// A digest of the node's configuration, to find nodes that are configured differently.
    pub fn config_digest(mut self, digest: impl Into<SmolStr>) -> Self {
        self.config_digest = Some(digest.into());
        self
    }
}

/// The record in a node's row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeRecord {
    pub(super) id: SmolStr,
    pub(super) name: SmolStr,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) address: Option<SmolStr>,
    pub(super) version: SmolStr,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) config_digest: Option<SmolStr>,
    pub(super) started_at: Timestamp,
    #[serde(default)]
    pub(super) layouts: NodeLayouts,
    /// How long it may be silent before it is dead, as it was configured; the others wait at least that long.
    #[serde(
        rename = "timeoutMs",
        skip_serializing_if = "Option::is_none",
        default,
        with = "toolhub_types::millis::option"
    )]
    pub(super) timeout: Option<Duration>,
}

/// How long the node of this row may be silent before it is dead, as it announced; `None` if it announced nothing that can be read.
#[doc(hidden)]
#[must_use]
pub fn announced_node_timeout(row: &Row) -> Option<Duration> {
    serde_json::from_slice::<NodeRecord>(&row.value).ok()?.timeout
}

/// Generations of the layouts of all records; see `compatibility.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeLayouts {
    /// The newest generation that the node reads.
    pub read: u32,
    /// The generation that it writes: the older one until every living node reads the newer one.
    pub written: u32,
}

impl Default for NodeLayouts {
    /// Of a node that announces none.
    fn default() -> Self {
        Self { read: 1, written: 1 }
    }
}

/// Whether a node is alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NodeState {
    /// It renews its row.
    Alive,
    /// It did not renew its row for the node timeout. Its calls and runs were taken over.
    Dead,
}

/// A node of a shared store, as this node sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Node")]
#[non_exhaustive]
pub struct NodeStatus {
    /// Its id, unique among all nodes that ever used the store.
    pub id: SmolStr,
    /// Its name.
    pub name: SmolStr,
    /// The address at which it can be reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<SmolStr>,
    /// The version of Toolhub it runs.
    pub version: SmolStr,
    /// The digest of its configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_digest: Option<SmolStr>,
    /// When it started, by its own clock.
    pub started_at: Timestamp,
    /// Which layouts of records it reads and writes.
    pub layouts: NodeLayouts,
    /// Whether it is alive.
    pub state: NodeState,
    /// How long ago this node noticed its last renewal.
    #[serde(rename = "sinceRenewalMs", with = "toolhub_types::millis")]
    #[schemars(with = "u64")]
    pub since_renewal: Duration,
    /// Whether it is the node that was asked.
    pub is_self: bool,
    /// Whether it does what one node is enough for: it removes expired rows and idle threads, and checks withheld tools.
    pub is_maintainer: bool,
}

impl NodeRecord {
    /// A node whose row has a layout that this version does not know: it is alive as long as the row changes.
    pub(super) fn unreadable(id: SmolStr) -> Self {
        Self {
            name: id.clone(),
            id,
            address: None,
            version: SmolStr::new_static("newer"),
            config_digest: None,
            started_at: Timestamp::default(),
            layouts: NodeLayouts { read: record_layouts() + 1, written: record_layouts() + 1 },
            timeout: None,
        }
    }

    pub(super) fn status(&self, state: NodeState, since_renewal: Duration, is_self: bool) -> NodeStatus {
        let Self { id, name, address, version, config_digest, started_at, layouts, timeout: _ } = self.clone();
        let is_maintainer = false;
        NodeStatus {
            id,
            name,
            address,
            version,
            config_digest,
            started_at,
            layouts,
            state,
            since_renewal,
            is_self,
            is_maintainer,
        }
    }
}

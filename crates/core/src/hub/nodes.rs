//! Public API of membership: the nodes that share the store, and which of them are alive.
//!
//! In: nothing, or the id of a node. Out: what this node knows of the others. `nodes.rs` beside the hub keeps it up to date.

use smol_str::SmolStr;
use tokio::sync::watch;

use super::ToolHub;
use crate::nodes::NodeStatus;
use toolhub_storage::backend::StoreError;
use toolhub_types::policy::Limits;

impl ToolHub {
    /// Warns of tools that may run once per node although they probably must not run beside themselves at all.
    pub(super) fn warn_of_concurrency_per_node(&self) {
        let tools = self.tools();
        let is_single = |limits: &Limits| limits.max_concurrency == Some(1) && limits.max_concurrency_shared.is_none();
        let mut names: Vec<_> =
            tools.iter().filter(|tool| is_single(&tool.limits)).map(|tool| tool.definition.name.as_str()).collect();
        if self.has_exclusive_store() || names.is_empty() {
            return;
        }
        names.sort_unstable();
        tracing::warn!(
            tools = %names.join(", "),
            "`max_concurrency = 1` holds on each node of the shared store; set `max_concurrency_shared = 1` for tools that must not run \
             beside themselves on any node"
        );
    }

    /// The nodes that share the store: this one, those that are alive, and those that died in the last ten minutes. On a store
    /// with one user it is this node alone.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn nodes(&self) -> Result<Vec<NodeStatus>, StoreError> {
        self.engine.nodes.list().await
    }

    /// Tells the other nodes the digest of this node's current configuration, after a reload.
    ///
    /// # Errors
    /// When the store does not answer. The digest is announced with the next renewal of the node's row then.
    pub async fn announce_config(&self, digest: impl Into<SmolStr>) -> Result<(), StoreError> {
        self.engine.nodes.set_config_digest(digest.into()).await
    }

    /// The id of this node, unique among all that ever used the store.
    #[must_use]
    pub fn node_id(&self) -> &str {
        &self.engine.journal.node
    }

    /// The name by which people know this node; `this node` if the store has no other user.
    #[must_use]
    pub fn node_name(&self) -> SmolStr {
        super::alerts::own_node_name(&self.engine)
    }

    /// How many nodes were alive at the last look, this one included. Makes no request.
    #[must_use]
    pub fn alive_nodes(&self) -> usize {
        self.engine.nodes.alive()
    }

    /// Whether this node does what one is enough for, as of the last look: it holds the maintenance lease.
    #[must_use]
    pub fn is_maintainer(&self) -> bool {
        self.engine.nodes.is_maintainer()
    }

    /// Whether this hub is the only user of its store.
    #[must_use]
    pub fn has_exclusive_store(&self) -> bool {
        self.engine.nodes.is_exclusive()
    }

    /// Whether a node is alive, for crates with records that name the node that works on them. Such a record must have been read
    /// before. This node is alive.
    ///
    /// # Errors
    /// When the store does not answer.
    #[doc(hidden)]
    pub async fn is_node_alive(&self, id: &str) -> Result<bool, StoreError> {
        self.engine.nodes.is_alive(id).await
    }

    /// Changes whenever a node has died or left.
    #[doc(hidden)]
    #[must_use]
    pub fn node_departures(&self) -> watch::Receiver<u64> {
        self.engine.nodes.departures()
    }
}

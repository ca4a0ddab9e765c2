//! Requests of other crates to a certain node.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use smol_str::{SmolStr, format_smolstr};

use super::{LAYOUT, TTL, commit, load};
use toolhub_storage::backend::{
    Backend, Change, Expect, Partition, PartitionKind, RowKey, RowVersion, Scan, Scope, StoreError, Table, decode,
    encode, read_all,
};
use toolhub_types::{ids::Tenant, timestamp::Timestamp};

/// What the ids of all these rows begin with.
const PREFIX: &str = "node/";

/// The row of a request: `node/{node}/{kind}/{number}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeRequestKey {
    pub(crate) node: SmolStr,
    pub(crate) kind: SmolStr,
    number: SmolStr,
}

/// A request, and in time its answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NodeRequest {
    pub(crate) body: Value,
    /// The node that asks; `None` from one of a version that does not say so.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) asker: Option<SmolStr>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) answer: Option<NodeAnswer>,
}

/// The answer of a node.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum NodeAnswer {
    Done(Value),
    /// It has no such requests.
    Unsupported,
    /// It could not answer; the reason, for operators.
    Failed(String),
}

impl NodeRequestKey {
    /// A new request to a node.
    pub(crate) fn new(node: &str, kind: &str) -> Self {
        Self { node: node.into(), kind: kind.into(), number: format_smolstr!("{:016x}", fastrand::u64(..)) }
    }

    pub(crate) fn parse(key: &RowKey) -> Option<Self> {
        let mut parts = key.id.strip_prefix(PREFIX)?.splitn(3, '/').map(SmolStr::from);
        Some(Self { node: parts.next()?, kind: parts.next()?, number: parts.next()? })
    }

    pub(crate) fn row(&self) -> RowKey {
        let id = format_smolstr!("{}{}/{}", node_prefix(&self.node), self.kind, self.number);
        RowKey { partition: partition(), table: Table::Requests, id }
    }
}

/// What the ids of the requests to a node begin with.
pub(crate) fn node_prefix(node: &str) -> String {
    format!("{PREFIX}{node}/")
}

/// Writes a request, or the answer to it.
pub(crate) async fn put_node_request(
    store: &dyn Backend,
    key: RowKey,
    request: &NodeRequest,
    replaced: Option<RowVersion>,
    now: Timestamp,
) -> Result<(), StoreError> {
    let value = encode(Table::Requests, &key.id, request)?;
    let change = Change::Put { value, schema: LAYOUT, expires: Some(now + TTL) };
    commit(store, key, (replaced.map_or(Expect::Absent, Expect::Same), change), now).await
}

/// A request with its row version.
pub(crate) async fn load_node_request(
    store: &dyn Backend,
    key: &RowKey,
    now: Timestamp,
) -> Result<Option<(NodeRequest, RowVersion)>, StoreError> {
    load(store, key, now).await?.map(|row| decode(key.table, &key.id, LAYOUT, &row)).transpose()
}

/// All requests to nodes that no asker has withdrawn yet: their keys, the nodes asked, and the askers.
pub(crate) async fn node_requests(
    store: &dyn Backend,
    now: Timestamp,
) -> Result<Vec<(RowKey, NodeRequestKey, Option<SmolStr>)>, StoreError> {
    let rows = read_all(store, Scan::new(Table::Requests, Scope::Partition(partition())).prefix(PREFIX), now).await?;
    let requests = rows.into_iter().filter_map(|(key, row)| {
        let request = NodeRequestKey::parse(&key)?;
        let (NodeRequest { asker, .. }, _) = decode(key.table, &key.id, LAYOUT, &row).ok()?;
        Some((key, request, asker))
    });
    Ok(requests.collect())
}

fn partition() -> Partition {
    Partition { tenant: Tenant::default(), kind: PartitionKind::Nodes }
}

//! Node leases: detects the calls of crashed nodes.
//!
//! In: a node that runs calls. Out: a lease row that it renews while it does; and for other nodes, whether a call's
//! node is dead. Clocks are never compared between nodes: a node is dead when its row has not changed for the lease
//! timeout, measured by the monotonic clock of an observer that has seen the call open all the time. So a changed
//! clock, a suspended hub, or two machines with different dates never cause a running call to be taken over.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use smol_str::SmolStr;
use tokio_util::sync::CancellationToken;

use super::{Journal, LiveCalls, OpenCall};
use toolhub_storage::{
    backend::{
        Batch, Change, Durability, Expect, Partition, PartitionKind, RowVersion, Scan, Scope, StoreError, Table, Write,
        read_all,
    },
    clock::{Clock, Instant},
};
use toolhub_types::{ids::Tenant, timestamp::Timestamp};

/// How often a node that runs calls renews its lease.
pub(crate) const LEASE_RENEW_INTERVAL: Duration = Duration::from_secs(5);
/// How long a lease is valid without renewal. Three intervals, because a store may be slow.
const LEASE_TIMEOUT: Duration = Duration::from_secs(15);
/// Time to live of the row of a node, after which the store may sweep it.
const NODE_ROW_TTL: Duration = Duration::from_secs(24 * 3600);

/// The row version of each node's lease.
pub(crate) type Leases = HashMap<SmolStr, RowVersion>;

impl Journal {
    /// The leases of all nodes.
    pub(crate) async fn leases(&self, now: Timestamp) -> Result<Leases, StoreError> {
        let rows = read_all(&*self.store, Scan::new(Table::Nodes, Scope::Partition(nodes_partition())), now).await?;
        Ok(rows.into_iter().map(|(key, row)| (key.id, row.version)).collect())
    }

    /// Renews the lease of this node.
    async fn renew_lease(&self, now: Timestamp) -> Result<(), StoreError> {
        let change = Change::Put { value: b"{}".as_slice().into(), schema: 1, expires: Some(now + NODE_ROW_TTL) };
        self.write_lease(change, now).await
    }

    async fn write_lease(&self, change: Change, now: Timestamp) -> Result<(), StoreError> {
        let (id, durability) = (self.node.clone(), Durability::KillSafe);
        let write = Write { table: Table::Nodes, id, expect: Expect::Any, change, durability };
        self.store.commit(Batch::new(nodes_partition()).with(write), now).await.map(|_| ())
    }
}

fn nodes_partition() -> Partition {
    Partition { tenant: Tenant::default(), kind: PartitionKind::Nodes }
}

/// Renews the lease of this node while calls run on it, and removes it when the hub stops.
pub(crate) async fn keep_lease(
    journal: Journal,
    clock: std::sync::Arc<dyn Clock>,
    live: LiveCalls,
    stopped: CancellationToken,
) {
    let mut has_lease = false;
    while stopped.run_until_cancelled(live.wait_started()).await.is_some() {
        loop {
            // After a store failure the next round retries; other nodes cannot read the leases meanwhile either.
            has_lease |= journal.renew_lease(clock.now()).await.is_ok();
            if stopped.run_until_cancelled(tokio::time::sleep(LEASE_RENEW_INTERVAL)).await.is_none() || live.len() == 0
            {
                break;
            }
        }
    }
    if has_lease {
        let _ = journal.write_lease(Change::Remove, clock.now()).await;
    }
}

/// The open calls of other nodes: the last lease version of their node, and since when it has not changed.
#[derive(Default)]
pub(crate) struct LeaseMonitor(HashMap<SmolStr, (Option<RowVersion>, Instant)>);

impl LeaseMonitor {
    /// Whether a call's node is dead. Must be called repeatedly while the call is open.
    pub(crate) fn is_dead(&mut self, id: &SmolStr, call: &OpenCall, leases: &Leases, now: Instant) -> bool {
        let lease = leases.get(call.node()).copied();
        let (last, since) = self.0.entry(id.clone()).or_insert((lease, now));
        if *last != lease {
            (*last, *since) = (lease, now);
        }
        now.saturating_duration_since(*since) >= LEASE_TIMEOUT
    }

    /// Removes the calls that are no longer open.
    pub(crate) fn retain_open(&mut self, open: &HashSet<SmolStr>) {
        self.0.retain(|id, _| open.contains(id));
        self.0.shrink_to(2 * self.0.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::CallRecord;
    use toolhub_types::{ids::CallId, json::CompactJson};

    fn call(node: &str) -> OpenCall {
        let text = serde_json::json!({
            "id": CallId::mint(Timestamp::from_millis(1)), "tool": "pay", "caller": "local", "arguments": {},
            "status": "executing", "openedAt": Timestamp::from_millis(1), "opening": {"node": node, "starts": 1},
        });
        let record: CallRecord<CompactJson> = serde_json::from_value(text).unwrap();
        OpenCall { record, row_version: RowVersion { number: 1, stamp: 1 } }
    }

    fn leases_at(version: u64) -> Leases {
        [("n1".into(), RowVersion { number: version, stamp: version })].into()
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_is_dead_when_it_said_nothing_for_a_lease_while_its_call_was_seen_open() {
        let (mut monitor, call, id) = (LeaseMonitor::default(), call("n1"), SmolStr::new("call"));
        let mut dead_after = async |seconds: u64, leases: &Leases| {
            tokio::time::advance(Duration::from_secs(seconds)).await;
            monitor.is_dead(&id, &call, leases, Instant::now())
        };
        assert!(!dead_after(100, &leases_at(1)).await, "seen for the first time");
        assert!(!dead_after(14, &leases_at(1)).await);
        assert!(!dead_after(1, &leases_at(2)).await, "its lease was renewed just now");
        assert!(!dead_after(14, &leases_at(2)).await);
        assert!(!dead_after(1, &Leases::new()).await, "its row was removed, which is a change too");
        assert!(!dead_after(14, &Leases::new()).await);
        assert!(dead_after(1, &Leases::new()).await);
    }
}

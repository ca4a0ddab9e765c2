//! Which nodes are alive, told by the nodes themselves.
//!
//! In: a node that runs calls. Out: a row that it writes again and again while it does; and for the others, which calls
//! are of the dead. Nobody compares clocks: a call's node is dead when its row has not changed for as long as a lease
//! lasts, by the time of whoever watches, who has seen the call open all the while. A clock that is set, a hub that was
//! stopped for an hour, two machines that disagree about the date: none of them kills a call that runs.

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

/// How often a node that runs calls says that it is alive.
pub(crate) const LEASE_RENEW_INTERVAL: Duration = Duration::from_secs(5);
/// How long it is believed. Three times as long, because a store may be slow.
const LEASE_TIMEOUT: Duration = Duration::from_secs(15);
/// When the row of a node that is gone may be swept.
const NODE_ROW_TTL: Duration = Duration::from_secs(24 * 3600);

/// What a node last said.
pub(crate) type Leases = HashMap<SmolStr, RowVersion>;

impl Journal {
    /// What all nodes last said.
    pub(crate) async fn leases(&self, now: Timestamp) -> Result<Leases, StoreError> {
        let rows = read_all(&*self.store, Scan::new(Table::Nodes, Scope::Partition(nodes_partition())), now).await?;
        Ok(rows.into_iter().map(|(key, row)| (key.id, row.version)).collect())
    }

    /// Says that this node is alive.
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

/// Says again and again that this node is alive while calls run on it, and takes that back when the hub is gone.
pub(crate) async fn keep_lease(
    journal: Journal,
    clock: std::sync::Arc<dyn Clock>,
    live: LiveCalls,
    gone: CancellationToken,
) {
    let mut said = false;
    while gone.run_until_cancelled(live.wait_started()).await.is_some() {
        loop {
            // A store that does not answer is asked again; until it does, nobody else learns anything either.
            said |= journal.renew_lease(clock.now()).await.is_ok();
            if gone.run_until_cancelled(tokio::time::sleep(LEASE_RENEW_INTERVAL)).await.is_none() || live.len() == 0 {
                break;
            }
        }
    }
    if said {
        let _ = journal.write_lease(Change::Remove, clock.now()).await;
    }
}

/// The open calls of other nodes, and since when their node has said nothing.
#[derive(Default)]
pub(crate) struct LeaseMonitor(HashMap<SmolStr, (Option<RowVersion>, Instant)>);

impl LeaseMonitor {
    /// Whether a call's node is dead. To be asked again and again while the call is open.
    pub(crate) fn is_dead(&mut self, id: &SmolStr, call: &OpenCall, leases: &Leases, now: Instant) -> bool {
        let said = leases.get(call.node()).copied();
        let (last, since) = self.0.entry(id.clone()).or_insert((said, now));
        if *last != said {
            (*last, *since) = (said, now);
        }
        now.saturating_duration_since(*since) >= LEASE_TIMEOUT
    }

    /// Forgets the calls that are not open any more.
    pub(crate) fn retain_open(&mut self, open: &HashSet<SmolStr>) {
        self.0.retain(|id, _| open.contains(id));
        self.0.shrink_to(2 * self.0.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::CallRecord;
    use toolhub_types::ids::CallId;

    fn call(node: &str) -> OpenCall {
        let text = serde_json::json!({
            "id": CallId::mint(Timestamp::from_millis(1)), "tool": "pay", "caller": "local", "arguments": {},
            "status": "executing", "openedAt": Timestamp::from_millis(1), "opening": {"node": node, "starts": 1},
        });
        let record: CallRecord = serde_json::from_value(text).unwrap();
        OpenCall { record, row_version: RowVersion { number: 1, stamp: 1 } }
    }

    fn leases_at(version: u64) -> Leases {
        [("n1".into(), RowVersion { number: version, stamp: version })].into()
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_is_dead_when_it_said_nothing_for_a_lease_while_its_call_was_seen_open() {
        let (mut watched, call, id) = (LeaseMonitor::default(), call("n1"), SmolStr::new("call"));
        let mut dead_after = async |seconds: u64, leases: &Leases| {
            tokio::time::advance(Duration::from_secs(seconds)).await;
            watched.is_dead(&id, &call, leases, Instant::now())
        };
        assert!(!dead_after(100, &leases_at(1)).await, "seen for the first time");
        assert!(!dead_after(14, &leases_at(1)).await);
        assert!(!dead_after(1, &leases_at(2)).await, "it spoke just now");
        assert!(!dead_after(14, &leases_at(2)).await);
        assert!(!dead_after(1, &Leases::new()).await, "its row is gone, which is news too");
        assert!(!dead_after(14, &Leases::new()).await);
        assert!(dead_after(1, &Leases::new()).await);
    }
}

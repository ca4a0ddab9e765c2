//! What must hold when all faults have ended and the nodes had time to recover.
//!
//! In: the ledger of what really happened, and what the nodes say. Out: sentences about what does not hold.

mod calls;
mod effects;
mod events;
mod probes;
mod runs;

use std::collections::BTreeMap;

use toolhub::{CallQuery, CallRecord, ids::CallId, prelude::*, testing::EventRecorder};

use super::{Node, world::World};

pub(super) use events::last_event;

/// The records of all calls.
type Records = BTreeMap<CallId, CallRecord>;

pub(super) async fn check_all(
    world: &World,
    nodes: &[Node],
    recorders: &mut [EventRecorder],
    logged_before: u64,
) -> Vec<String> {
    let query = CallQuery { limit: 1_000, ..CallQuery::default() };
    let page = nodes[0].hub.calls(&Tenant::default(), &query).await.unwrap();
    assert!(page.next.is_none(), "all calls are on one page");
    let records: Records = page.calls.into_iter().map(|record| (record.id, record)).collect();
    let mut problems = calls::check(world, &records);
    problems.extend(effects::check(world, &records));
    problems.extend(effects::check_state(&nodes[1].hub, &records).await);
    problems.extend(probes::check(world));
    let ids: Vec<_> = nodes.iter().map(|node| node.hub.node_id()).collect();
    problems.extend(runs::check(world, &ids, &nodes[2].service).await);
    problems.extend(events::check(world, &ids, recorders, logged_before).await);
    problems
}

/// Whether records of this thread may be deleted.
fn is_gone(thread: Option<&str>) -> bool {
    thread.is_some_and(|thread| thread.starts_with("gone"))
}

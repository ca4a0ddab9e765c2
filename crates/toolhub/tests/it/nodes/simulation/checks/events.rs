//! Each stored event is stored once, and delivered once to the subscribers of every node, in the order of the numbers.
//!
//! A node whose store does not answer delivers its own events without numbers. They are stored later, and not delivered again. Of the change of
//! a status several nodes may tell their subscribers so, but one of them stores it.

use std::collections::BTreeMap;

use toolhub::{
    backend::{Backend, Partition, PartitionKind, Scan, Scope, Table},
    events::StoredEvent,
    prelude::*,
    testing::EventRecorder,
};

use super::super::world::World;

/// A stored event and the node that has stored it.
struct Logged {
    event: StoredEvent,
    node: String,
}

impl Logged {
    /// What tells it from other events, without its number.
    fn identity(&self) -> String {
        let StoredEvent { event, timestamp, thread, data, .. } = &self.event;
        format!("{event} {timestamp} {thread:?} {}", Value::Object(data.clone()))
    }
}

async fn log(world: &World) -> Vec<Logged> {
    let partition = Partition { tenant: Tenant::default(), kind: PartitionKind::Events };
    let scan = Scan::new(Table::Events, Scope::Partition(partition)).limit(10_000);
    let rows = world.memory().scan(scan, Default::default()).await.unwrap().rows;
    let events = rows.iter().filter_map(|(key, row)| {
        let (number, node) = key.id.split_once('-')?;
        u64::from_str_radix(number, 16).ok()?;
        Some(Logged { event: serde_json::from_slice(&row.value).unwrap(), node: node.to_owned() })
    });
    events.collect()
}

/// The number of the last stored event.
pub(in super::super) async fn last_event(world: &World) -> u64 {
    log(world).await.last().map_or(0, |logged| logged.event.id)
}

pub(super) async fn check(world: &World, nodes: &[&str], recorders: &mut [EventRecorder], after: u64) -> Vec<String> {
    let log: Vec<Logged> = log(world).await.into_iter().filter(|logged| logged.event.id > after).collect();
    let mut problems = stored_twice(&log);
    for (node, recorder) in nodes.iter().zip(recorders) {
        problems.extend(check_deliveries(node, &log, recorder));
    }
    problems
}

fn stored_twice(log: &[Logged]) -> Vec<String> {
    let mut problems = Vec::new();
    let mut seen: BTreeMap<String, u64> = BTreeMap::new();
    let mut statuses: BTreeMap<String, &Value> = BTreeMap::new();
    for logged in log {
        let StoredEvent { id, event, data, thread, .. } = &logged.event;
        let identity = match &**event {
            "approval.requested" | "approval.resolved" => format!("{event} {}", data["approvalId"]),
            _ => format!("{} {}", logged.node, logged.identity()),
        };
        if let Some(earlier) = seen.insert(identity.clone(), *id) {
            problems.push(format!("an event is stored as {earlier} and as {id}: {identity}"));
        }
        if event == "tool.status.changed" {
            let record = format!("{} {thread:?}", data["toolName"]);
            if statuses.insert(record.clone(), &data["newStatus"]) == Some(&data["newStatus"]) {
                problems.push(format!("the change of {record} to {} is stored twice, as {id} too", data["newStatus"]));
            }
        }
    }
    problems
}

fn check_deliveries(node: &str, log: &[Logged], recorder: &mut EventRecorder) -> Vec<String> {
    let (mut problems, mut last, mut numbered) = (Vec::new(), 0, Vec::new());
    let mut unnumbered: BTreeMap<String, usize> = BTreeMap::new();
    for event in recorder.events() {
        if event.name() == "stream.reset" {
            return Vec::new();
        }
        match event.id {
            Some(id) => {
                if id <= last {
                    problems.push(format!("node {node} delivered event {id} after {last}"));
                }
                last = id;
                numbered.push(id);
            }
            None if event.kind.is_persisted() => {
                let mut data = serde_json::to_value(&**event).unwrap();
                let fields = data.as_object_mut().unwrap();
                for common in ["event", "timestamp", "tenant", "threadId"] {
                    fields.remove(common);
                }
                let identity = format!("{} {} {:?} {data}", event.name(), event.timestamp, event.thread);
                *unnumbered.entry(identity).or_default() += 1;
            }
            None => {}
        }
    }
    for logged in log {
        let (id, count) = (logged.event.id, numbered.iter().filter(|number| **number == logged.event.id).count());
        let unnumbered = if logged.node == node { unnumbered.remove(&logged.identity()).unwrap_or(0) } else { 0 };
        if count + unnumbered != 1 {
            let identity = logged.identity();
            problems.push(format!("node {node} delivered event {id} {count} + {unnumbered} times: {identity}"));
        }
    }
    let known: Vec<u64> = log.iter().map(|logged| logged.event.id).collect();
    for id in numbered.iter().filter(|id| known.first().is_some_and(|first| *id >= first) && !known.contains(id)) {
        problems.push(format!("node {node} delivered event {id}, which is not stored"));
    }
    for identity in unnumbered.into_keys().filter(|identity| !identity.starts_with("tool.status.changed")) {
        problems.push(format!("node {node} delivered an event that was never stored: {identity}"));
    }
    problems
}

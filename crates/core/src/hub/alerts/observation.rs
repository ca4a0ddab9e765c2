//! Observes the conditions that a hub can see at a moment: tools, servers, nodes, approvals, and what each node says of itself.
//!
//! In: the engine, and the rows of other nodes. Out: what holds now, per condition. Nothing is decided here.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use smol_str::SmolStr;

use super::super::{ToolHub, sources::SourceConnection};
use crate::{
    alerts::{self, Condition, NODE_PREFIX, Signal},
    engine::Engine,
    registry::Tools,
    statuses::StatusKey,
};
use toolhub_storage::backend::{StoreError, read_all};
use toolhub_types::{status::Readiness, timestamp::Timestamp, tool::ToolName};

/// What holds at a moment.
pub(super) struct Observation {
    pub(super) at: Timestamp,
    /// All registered tools.
    pub(super) registered: Arc<Tools>,
    /// The tools that have a status record or are not connected; the others are available.
    pub(super) tools: HashMap<ToolName, ToolObservation>,
    /// MCP servers that are not connected.
    pub(super) servers_down: HashSet<SmolStr>,
    /// MCP servers of which nothing is known yet: this node has just started.
    pub(super) servers_starting: HashSet<SmolStr>,
    /// Nodes that are alive; a node that is in no list may be gone for long.
    pub(super) nodes_alive: HashSet<SmolStr>,
    /// What holds of the other lasting conditions that were looked at.
    pub(super) levels: HashMap<Condition, Vec<Signal>>,
}

/// The shared status of a tool.
pub(super) struct ToolObservation {
    pub(super) signal: Signal,
    pub(super) version: u64,
}

/// Conditions of which each node says whether they hold.
const OF_NODES: [Condition; 7] = [
    Condition::StoreSlow,
    Condition::ErrorsHigh,
    Condition::QueueFull,
    Condition::RecordsDropped,
    Condition::KeyExpiring,
    Condition::BackupOld,
    Condition::ReloadRefused,
];

/// Looks at everything.
pub(super) async fn observe(hub: &ToolHub) -> Result<Observation, StoreError> {
    let engine = &*hub.engine;
    let now = engine.services.clock.now();
    let mut observation = Observation {
        at: now,
        registered: engine.registry.snapshot(),
        tools: HashMap::new(),
        servers_down: HashSet::new(),
        servers_starting: HashSet::new(),
        nodes_alive: HashSet::new(),
        levels: HashMap::new(),
    };
    let mut down = Vec::new();
    for source in hub.sources() {
        let status = source.info().status;
        let name = SmolStr::new(&status.name);
        match status.connection {
            SourceConnection::Connected | SourceConnection::Disabled => {}
            _ if status.is_starting() => _ = observation.servers_starting.insert(name),
            _ => {
                observation.servers_down.insert(name.clone());
                // The error may name addresses and output of programs; it is on the page of the servers.
                down.push(Signal::active(
                    Condition::ServerDown,
                    name,
                    status.since,
                    "the connection was lost or cannot be made",
                ));
            }
        }
    }
    observation.levels.insert(Condition::ServerDown, down);
    for tool in observation.registered.clone().iter().filter(|tool| !tool.unlisted) {
        let key = StatusKey::shared(&tool.definition.name);
        if tool.is_present() && engine.statuses.facts(&key).is_none() {
            continue;
        }
        let readiness = tool.presence_override().unwrap_or(Readiness::Ready);
        let (signal, version) = engine.statuses.current_alert_signal(&tool.definition.name, &readiness, now);
        let signal = Signal { server: tool.source.clone(), ..signal };
        observation.tools.insert(tool.definition.name.clone(), ToolObservation { signal, version });
    }
    observation.levels.insert(Condition::ApprovalWaiting, engine.approvals.waiting_signals());
    let mut gone = Vec::new();
    for (name, is_alive) in engine.nodes.sighted() {
        match is_alive {
            true => _ = observation.nodes_alive.insert(name),
            false => gone.push(Signal::active(Condition::NodeGone, name, now, "it did not renew its row in the store")),
        }
    }
    gone.retain(|signal| !observation.nodes_alive.contains(&signal.thing));
    observation.nodes_alive.insert(engine.nodes.own_name().clone());
    observation.levels.insert(Condition::NodeGone, gone);
    observe_nodes(engine, &mut observation).await?;
    Ok(observation)
}

/// What the nodes say of themselves, this one from memory.
async fn observe_nodes(engine: &Engine, observation: &mut Observation) -> Result<(), StoreError> {
    for condition in OF_NODES {
        observation.levels.insert(condition, Vec::new());
    }
    let mut signals = engine.services.alerts.local();
    if !engine.nodes.is_exclusive() {
        let rows = read_all(&*engine.services.store, alerts::scan(NODE_PREFIX), observation.at).await?;
        for (key, row) in rows {
            let node = key.id.trim_start_matches(NODE_PREFIX);
            if node != engine.journal.node && engine.nodes.was_alive(node) {
                signals.extend(alerts::read::<Vec<Signal>>(&key, &row).unwrap_or_default());
            }
        }
    }
    for signal in signals {
        if let Some(level) = observation.levels.get_mut(&signal.condition) {
            level.push(signal);
        }
    }
    Ok(())
}

/// The name under which a thing of this node is known to people.
pub(in crate::hub) fn own_node_name(engine: &Engine) -> SmolStr {
    match engine.nodes.is_exclusive() {
        true => SmolStr::new_static("this node"),
        false => engine.nodes.own_name().clone(),
    }
}

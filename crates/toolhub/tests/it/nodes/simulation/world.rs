//! What really happens in a simulation, whoever knows it: commits that were applied, tools that worked, answers that callers got.
//!
//! In: reports of the connections, the tools, the models and the callers. Out: the ledger, for the checks.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use fastrand::Rng;
use tokio::time::Instant;
use toolhub::{
    Outcome, ReportError,
    backend::{Backend, Batch, Change, Memory, Partition, PartitionKind, Row, RowKey, Table},
    ids::CallId,
    prelude::Value,
    status::StatusRecord,
};
use toolhub_agent::AgentError;

use super::{
    NODES,
    faults::{NodeFaults, refusal_times},
};
use crate::shared_memory::SharedMemory;

/// The tool whose status is checked.
pub(super) const PROBED_TOOL: &str = "flaky";

/// The time that the nodes have to start, without faults.
const SETUP_TIME: Duration = Duration::from_secs(2);

pub(super) struct World {
    store: SharedMemory,
    /// By node.
    pub(super) faults: Vec<Arc<NodeFaults>>,
    started: Instant,
    ledger: Mutex<Ledger>,
}

#[derive(Default)]
pub(super) struct Ledger {
    /// How often each call was closed in the store.
    pub(super) closings: BTreeMap<CallId, usize>,
    /// The changes of the shared status of the probed tool, in their order.
    pub(super) statuses: Vec<StatusChange>,
    /// The version of that status that each node knows.
    known_statuses: [u64; NODES],
    pub(super) executions: Vec<Execution>,
    /// What callers were told.
    pub(super) ends: Vec<CallEnd>,
    /// The version of the status that its node knew when a call arrived.
    pub(super) known_at_arrival: BTreeMap<CallId, u64>,
    pub(super) reports: Vec<(CallId, Value, Result<(), ReportError>)>,
    /// What a person decided about a call; `None` if the answer to the decision was lost.
    pub(super) decisions: BTreeMap<CallId, Option<bool>>,
    pub(super) questions: Vec<Question>,
    /// The open run of each thread, with the id of the node that drives it.
    drivers: BTreeMap<String, (String, String)>,
    pub(super) takeovers: Vec<Takeover>,
    /// Messages to agents, by their text.
    pub(super) messages: Vec<(String, Result<toolhub::ids::RunId, AgentError>)>,
    /// Until when the probed tool fails.
    broken_until: Duration,
    pub(super) problems: Vec<String>,
}

/// A change of a status in the store.
pub(super) struct StatusChange {
    pub(super) version: u64,
    pub(super) record: StatusRecord,
}

/// One execution of a tool.
#[derive(Debug)]
pub(super) struct Execution {
    pub(super) tool: String,
    pub(super) call: CallId,
    pub(super) node: usize,
    pub(super) arguments: Value,
    pub(super) key: Option<String>,
    pub(super) began: Duration,
    /// When it had its effect.
    pub(super) ended: Option<Duration>,
    pub(super) has_failed: bool,
    /// How many changes of the probed status there were when it began.
    pub(super) statuses: usize,
}

/// The end of a call, as its caller was told.
#[derive(Debug)]
pub(super) struct CallEnd {
    /// The call that was made. A replayed outcome is that of another one.
    pub(super) call: CallId,
    pub(super) thread: Option<String>,
    pub(super) key: Option<String>,
    pub(super) outcome: Outcome,
}

/// A request to a model.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) node: usize,
    /// The user's message, and how many replies of the model followed it.
    pub(super) turn: (String, usize),
    pub(super) asked: Duration,
}

/// A node drives a run that another one had driven.
pub(super) struct Takeover {
    pub(super) run: String,
    /// The ids of the nodes.
    pub(super) from: String,
    pub(super) to: String,
    pub(super) at: Duration,
}

impl World {
    pub(super) fn new(random: &mut Rng) -> Arc<Self> {
        let started = Instant::now() + SETUP_TIME;
        // From a copy, so that each seed determines the same faults of single nodes with it.
        let refused = refusal_times(&mut random.clone());
        let faults = (0..NODES).map(|_| Arc::new(NodeFaults::new(random, refused.clone(), started))).collect();
        Arc::new(Self { store: SharedMemory::default(), faults, started, ledger: Mutex::default() })
    }

    /// The store without faults.
    pub(super) fn memory(&self) -> &Arc<Memory> {
        &self.store.memory
    }

    /// Records the operations of a connection.
    pub(super) fn record(&self, connection: Arc<dyn Backend>) -> Arc<dyn Backend> {
        self.store.record(connection)
    }

    /// When the nodes are ready, and operations and faults begin.
    pub(super) fn started(&self) -> Instant {
        self.started
    }

    /// The time since the start.
    pub(super) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn report_problem(&self, problem: String) {
        self.ledger().problems.push(problem);
    }

    /// Which write of a batch changes the status of the probed tool.
    pub(super) fn probed_status_in(&self, batch: &Batch) -> Option<usize> {
        batch.writes.iter().position(|write| is_probed_status(&batch.partition, write.table))
    }

    /// Notes a batch that was applied.
    pub(super) fn note_applied(&self, batch: &Batch, versions: &[u64]) {
        let mut ledger = self.ledger();
        for (write, version) in batch.writes.iter().zip(versions) {
            let Change::Put { value, .. } = &write.change else { continue };
            if write.table == Table::Calls {
                *ledger.closings.entry(write.id.parse().unwrap()).or_default() += 1;
            } else if is_probed_status(&batch.partition, write.table) {
                let record = serde_json::from_slice(value).unwrap();
                ledger.statuses.push(StatusChange { version: *version, record });
            } else if write.table == Table::Runs && write.id == Table::OPEN_RUN {
                let open_run = serde_json::from_slice(value).unwrap();
                ledger.note_driver(format!("{:?}", batch.partition), &open_run, self.now());
            }
        }
    }

    /// Notes a row that a node has read.
    pub(super) fn note_read(&self, node: usize, key: &RowKey, row: Option<&Row>) {
        if let Some(row) = row.filter(|_| is_probed_status(&key.partition, key.table)) {
            self.note_known(node, row.version.number);
        }
    }

    /// Notes that a node knows this version of the probed status.
    pub(super) fn note_known(&self, node: usize, version: u64) {
        let known = &mut self.ledger().known_statuses[node];
        *known = version.max(*known);
    }

    pub(super) fn note_arrival(&self, node: usize, call: CallId) {
        let mut ledger = self.ledger();
        let known = ledger.known_statuses[node];
        ledger.known_at_arrival.insert(call, known);
    }

    /// Lets the probed tool fail for this long.
    pub(super) fn break_tool(&self, time: Duration) {
        let until = self.now() + time;
        let broken_until = &mut self.ledger().broken_until;
        *broken_until = until.max(*broken_until);
    }

    pub(super) fn is_broken(&self) -> bool {
        self.now() < self.ledger().broken_until
    }
}

impl Ledger {
    /// Notes the node that drives the open run of a thread.
    fn note_driver(&mut self, thread: String, open_run: &Value, at: Duration) {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let (run, to) = (text(&open_run["run"]["id"]), text(&open_run["node"]));
        if let Some((earlier, from)) = self.drivers.insert(thread, (run.clone(), to.clone()))
            && earlier == run
            && from != to
        {
            self.takeovers.push(Takeover { run, from, to, at });
        }
    }
}

fn is_probed_status(partition: &Partition, table: Table) -> bool {
    table == Table::Statuses && matches!(&partition.kind, PartitionKind::Tool(tool) if tool.as_str() == PROBED_TOOL)
}

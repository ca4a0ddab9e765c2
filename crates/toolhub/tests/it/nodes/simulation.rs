//! Three nodes on one store, each behind a faulty connection, in simulated time: random operations while faults come and go; then all
//! faults end, and the nodes must have kept their promises.
//!
//! A seed determines the operations, the faults and their times. It does not determine the seeds of hash maps, so a seed might fail only
//! sometimes if the order of a map's entries matters. `TOOLHUB_SEED=7` runs seed 7 alone and, with `--nocapture`, prints what it did; with
//! `TOOLHUB_SOAK`, many more seeds run.

mod checks;
mod clients;
mod connection;
mod faults;
mod model;
mod tools;
mod workload;
mod world;

use std::{
    env,
    hash::{DefaultHasher, Hash, Hasher},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
    time::Duration,
};

use fastrand::Rng;
use tokio::{task::JoinSet, time::Instant};
use toolhub::{
    NodeInfo,
    backend::{Backend, Scan, Scope, Table},
    prelude::*,
    status::StatusSettings,
    testing::{EventRecorder, TestClock},
};
use toolhub_agent::{AgentDefinition, AgentService};
use toolhub_testkit::soak;

use self::{
    clients::Clients,
    connection::Connection,
    faults::FAULT_TIME,
    model::SimulatedModel,
    workload::random_workload,
    world::{Execution, World},
};

const NODES: usize = 3;
const SECOND: Duration = Duration::from_secs(1);
/// How long a node may be silent before it is dead.
const NODE_TIMEOUT: Duration = Duration::from_secs(4);
/// By when every call and run must have ended after the faults: open calls are looked for every ten minutes.
const QUIET_WITHIN: u32 = 1_500;

/// A node with its agents.
struct Node {
    hub: ToolHub,
    service: AgentService,
}

impl Node {
    async fn start(world: &Arc<World>, index: usize, clock: &TestClock) -> Self {
        let connection = world.record(Arc::new(Connection::new(world, index)));
        let status = StatusSettings {
            failure_threshold: 2,
            failure_duration: 2 * SECOND,
            max_failure_duration: 4 * SECOND,
            ..StatusSettings::default()
        };
        let builder = ToolHub::builder().shared_store(connection).clock(clock.clone()).status(status);
        let builder = builder.node(NodeInfo::new(["a", "b", "c"][index])).node_timeout(NODE_TIMEOUT);
        let hub = builder.tools(tools::tools(world, index)).build().await.unwrap();
        let service = AgentService::new(&hub);
        service.define("default", AgentDefinition::new(SimulatedModel::new(world, index)));
        service.resume().await.unwrap();
        Self { hub, service }
    }
}

/// Everything that a seed determines, and what came of it.
struct Report {
    description: String,
    problems: Vec<String>,
    digest: u64,
}

/// How many seeds run, in `./test` and in a soak run. Each of the tests runs a part of them, so that they use several cores.
const SEEDS: (u64, u64) = (500, 20_000);
const PARTS: u64 = 4;
/// Seeds of soak runs that have found a defect.
const FOUND_DEFECTS: [u64; 18] = [
    501, 1016, 1866, 2714, 6165, 7326, 8513, 9278, 10577, 11015, 11669, 13275, 13706, 14647, 15235, 15322, 17836, 18997,
];

/// Runs the seeds of one part; the first part runs `TOOLHUB_SEED` if there is one.
fn run_part(part: u64) {
    if let Ok(seed) = env::var("TOOLHUB_SEED") {
        if part == 0 {
            let seed = seed.parse().expect("`TOOLHUB_SEED` is a number");
            let report = run(seed);
            println!("{}\ndigest {:016x}", report.description, report.digest);
            assert!(report.problems.is_empty(), "{}", report.describe_problems(seed));
        }
        return;
    }
    let seeds = (0..soak(SEEDS.0, SEEDS.1)).chain(FOUND_DEFECTS);
    let mut failed = Vec::new();
    for seed in seeds.filter(|seed| seed % PARTS == part) {
        let report = run(seed);
        if !report.problems.is_empty() {
            println!("{}", report.describe_problems(seed));
            failed.push(seed);
        }
    }
    assert!(failed.is_empty(), "these seeds failed: {failed:?}");
}

#[test]
fn nodes_keep_their_promises_while_their_connections_fail_and_they_freeze() {
    run_part(0);
}

#[test]
fn nodes_keep_their_promises_in_the_second_quarter_of_the_seeds() {
    run_part(1);
}

#[test]
fn nodes_keep_their_promises_in_the_third_quarter_of_the_seeds() {
    run_part(2);
}

#[test]
fn nodes_keep_their_promises_in_the_fourth_quarter_of_the_seeds() {
    run_part(3);
}

impl Report {
    fn describe_problems(&self, seed: u64) -> String {
        let Self { description, problems, .. } = self;
        format!("seed {seed}; run it alone with TOOLHUB_SEED={seed}\n{description}\n{}", problems.join("\n"))
    }
}

/// Runs one seed. A panic is reported with the seed.
fn run(seed: u64) -> Report {
    // Ids and the stamps of batches.
    fastrand::seed(seed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    catch_unwind(AssertUnwindSafe(|| runtime.block_on(simulate(seed)))).unwrap_or_else(|panic| {
        eprintln!("seed {seed} panicked; run it alone with TOOLHUB_SEED={seed}");
        resume_unwind(panic)
    })
}

async fn simulate(seed: u64) -> Report {
    let mut random = Rng::with_seed(seed);
    let world = World::new(&mut random);
    let workload = random_workload(&mut random);
    let faults: Vec<_> = world.faults.iter().map(|faults| faults.describe()).collect();
    let operations: Vec<_> = workload.iter().map(|(at, operation)| format!("{at:?} {operation:?}")).collect();
    let description = format!("{}\n{}", faults.join("\n"), operations.join("\n"));

    let clock = TestClock::new();
    let mut nodes = Vec::new();
    for index in 0..NODES {
        nodes.push(Node::start(&world, index, &clock).await);
    }
    tokio::time::sleep_until(world.started() - SECOND / 2).await;
    let mut recorders: Vec<_> = nodes.iter().map(|node| EventRecorder::new(&node.hub)).collect();
    let logged_before = checks::last_event(&world).await;
    let clients = Arc::new(Clients { world: world.clone(), nodes });
    let mut running = JoinSet::new();
    for (at, operation) in workload {
        let clients = clients.clone();
        let begins_at = world.started() + at;
        running.spawn(async move {
            tokio::time::sleep_until(begins_at).await;
            clients.carry_out(operation).await;
        });
    }
    tokio::time::sleep_until(world.started() + FAULT_TIME).await;
    while !running.is_empty() {
        clients.approve_all(0).await;
        let _ =
            tokio::time::timeout(SECOND, async { while running.join_next().await.transpose().unwrap().is_some() {} })
                .await;
    }
    let quiet = wait_until_quiet(&world).await;
    // Events, records of read-only calls, and records of calls that may have been opened.
    tokio::time::sleep(10 * SECOND).await;
    let mut problems = std::mem::take(&mut world.ledger().problems);
    problems.extend(quiet);
    problems.extend(checks::check_all(&world, &clients.nodes, &mut recorders, logged_before).await);
    let digest = digest(&world);
    Report { description, problems, digest }
}

/// Waits until no call and no run is open; says which are if that takes too long.
async fn wait_until_quiet(world: &World) -> Option<String> {
    let deadline = Instant::now() + QUIET_WITHIN * SECOND;
    loop {
        let mut open = Vec::new();
        for (table, prefix) in [(Table::OpenCalls, ""), (Table::Runs, Table::OPEN_RUN)] {
            let scan = Scan::new(table, Scope::All).prefix(prefix);
            let page = world.memory().scan(scan, Default::default()).await.unwrap();
            open.extend(page.rows.into_iter().map(|(key, row)| {
                format!("{table} `{}` of {}: {}", key.id, key.partition, String::from_utf8_lossy(&row.value))
            }));
        }
        if open.is_empty() {
            return None;
        }
        if Instant::now() >= deadline {
            return Some(format!("still open: {}", open.join("; ")));
        }
        tokio::time::sleep(SECOND).await;
    }
}

/// A number that is equal for equal histories.
fn digest(world: &World) -> u64 {
    let (ledger, mut hasher) = (world.ledger(), DefaultHasher::new());
    let executions = ledger.executions.iter();
    let executions = executions.map(|Execution { tool, node, began, ended, .. }| (tool, node, began, ended));
    format!("{:?}", executions.collect::<Vec<_>>()).hash(&mut hasher);
    let ends = ledger.ends.iter().map(|end| (&end.outcome.tool, end.outcome.status, end.outcome.error_kind()));
    format!("{:?}", ends.collect::<Vec<_>>()).hash(&mut hasher);
    hasher.finish()
}

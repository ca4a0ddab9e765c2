//! Tools that must not run beside themselves on any node: `max_concurrency_shared`.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use futures_util::future::join_all;
use tokio::time::Instant;
use toolhub::{
    CallRequest, HubBuilder, HubChange,
    backend::Memory,
    prelude::*,
    testing::{AssertOutcome, TestClock},
};

use crate::{faulty_store::FaultyStore, log_capture};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// Every run of the tool on any node: who ran, when it began and ended; and how many ran at once at most.
#[derive(Default)]
struct Ledger {
    running: AtomicUsize,
    most: AtomicUsize,
    runs: Mutex<Vec<(String, Instant)>>,
}

/// Counts a run as ended also if it is dropped.
struct Run<'a>(&'a Ledger);

impl Ledger {
    fn begin(&self, who: &str) -> Run<'_> {
        self.most.fetch_max(self.running.fetch_add(1, SeqCst) + 1, SeqCst);
        self.runs.lock().unwrap().push((who.to_owned(), Instant::now()));
        Run(self)
    }

    fn most(&self) -> usize {
        self.most.load(SeqCst)
    }

    fn runs(&self) -> Vec<String> {
        self.runs.lock().unwrap().iter().map(|(who, _)| who.clone()).collect()
    }

    /// When the last run began.
    fn last_began(&self) -> Instant {
        self.runs.lock().unwrap().last().expect("a run").1
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, SeqCst);
    }
}

/// Nodes on one store, and what their tools did.
struct Cluster {
    memory: Arc<Memory>,
    clock: TestClock,
    ledger: Arc<Ledger>,
    limit: usize,
}

impl Cluster {
    fn new(limit: usize) -> Self {
        Self { memory: Arc::default(), clock: TestClock::new(), ledger: Arc::default(), limit }
    }

    /// A tool that works for the given number of milliseconds, and notes it in the ledger.
    fn tool(&self, node: &str) -> ToolBuilder {
        let (ledger, node) = (self.ledger.clone(), node.to_owned());
        let work = move |arguments: Value, _: CallContext| {
            let (ledger, node) = (ledger.clone(), node.clone());
            async move {
                let run = ledger.begin(&node);
                tokio::time::sleep(Duration::from_millis(arguments["ms"].as_u64().unwrap())).await;
                drop(run);
                Ok::<_, ToolError>(json!(node))
            }
        };
        let tool = dynamic("work", json!({"type": "object"}), work).timeout(60 * MINUTE).queue_timeout(10 * MINUTE);
        // Calls with effects would be closed by the other nodes when their own node counts as dead.
        tool.read_only().no_retry().max_concurrency_shared(self.limit)
    }

    async fn node_with(
        &self,
        name: &str,
        change: impl FnOnce(HubBuilder) -> HubBuilder,
    ) -> (ToolHub, Arc<FaultyStore>) {
        let store = Arc::new(FaultyStore { memory: self.memory.clone(), ..FaultyStore::default() });
        let builder = ToolHub::builder().shared_store(store.clone()).clock(self.clock.clone());
        (change(builder.tool(self.tool(name))).build().await.unwrap(), store)
    }

    async fn node(&self, name: &str) -> (ToolHub, Arc<FaultyStore>) {
        self.node_with(name, |builder| builder).await
    }
}

fn call(hub: &ToolHub, ms: u64) -> CallRequest<'_> {
    hub.call("work", json!({"ms": ms}))
}

#[tokio::test(start_paused = true)]
async fn hubs_together_never_run_more_calls_at_once_than_the_shared_limit() {
    for (hubs, limit) in [(1, 1), (2, 1), (3, 1), (2, 2), (3, 2), (3, 5)] {
        let cluster = Cluster::new(limit);
        let mut nodes = Vec::new();
        for number in 0..hubs {
            nodes.push(cluster.node(&number.to_string()).await.0);
        }
        let random = fastrand::Rng::with_seed(limit as u64);
        let calls = (0..90).map(|number| {
            let (hub, mut random) = (&nodes[number % hubs], random.clone());
            random.seed(number as u64);
            async move {
                tokio::time::sleep(Duration::from_millis(random.u64(..3_000))).await;
                call(hub, random.u64(..400)).await.assert_success();
            }
        });
        join_all(calls).await;
        assert_eq!((cluster.ledger.most(), cluster.ledger.runs().len()), (limit, 90), "{hubs} hubs");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_is_alone_keeps_the_limit_too() {
    let cluster = Cluster::new(2);
    let hub = ToolHub::builder().store(cluster.memory.clone()).tool(cluster.tool("alone").max_concurrency(5));
    let hub = hub.build().await.unwrap();
    join_all((0..20).map(|_| async { call(&hub, 10).await.assert_success().clone() })).await;
    assert_eq!(cluster.ledger.most(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_is_given_back_on_one_node_is_used_on_another_at_once() {
    let cluster = Cluster::new(1);
    let ((first, _), (second, _)) = (cluster.node("a").await, cluster.node("b").await);
    let running = call(&first, 30_000).start();
    tokio::time::sleep(SECOND).await;
    let waiting = call(&second, 1).start();
    running.await.assert_success();
    let ended = Instant::now();
    waiting.await.assert_success();
    let pause = cluster.ledger.last_began() - ended;
    assert!(pause < Duration::from_millis(40), "it heard of it: {pause:?}");
}

#[tokio::test(start_paused = true)]
async fn a_busy_node_does_not_keep_the_permit_from_others_for_long() {
    let cluster = Cluster::new(1);
    let ((busy, _), (other, _)) = (cluster.node("a").await, cluster.node("b").await);
    let many: Vec<_> = (0..500).map(|_| call(&busy, 100).start()).collect();
    tokio::time::sleep(SECOND).await;
    let began = Instant::now();
    call(&other, 1).await.assert_success();
    assert!(began.elapsed() < 10 * SECOND, "{:?}", began.elapsed());
    drop(many);
}

#[tokio::test(start_paused = true)]
async fn a_permit_holds_while_its_node_lives_and_ends_with_the_node_timeout() {
    let cluster = Cluster::new(1);
    let ((first, connection), (second, _)) = (cluster.node("a").await, cluster.node("b").await);
    let frozen = call(&first, 1_000_000).start();
    tokio::time::sleep(SECOND).await;
    let mut waiting = call(&second, 1).start();
    let early = tokio::time::timeout(5 * MINUTE, waiting.outcome()).await;
    assert!(early.is_err() && cluster.ledger.runs() == ["a"], "the node renews its permit: {early:?}");

    connection.unavailable.store(true, SeqCst);
    let cut = Instant::now();
    waiting.await.assert_success();
    let after = cluster.ledger.last_began() - cut;
    assert!((9 * SECOND..=17 * SECOND).contains(&after), "{after:?}");
    drop(frozen);
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_permit_expired_while_its_node_was_cut_off_counts_again_when_it_is_back() {
    let cluster = Cluster::new(1);
    let ((first, connection), (second, _)) = (cluster.node("a").await, cluster.node("b").await);
    let long = call(&first, 120_000).start();
    tokio::time::sleep(SECOND).await;
    connection.unavailable.store(true, SeqCst);
    tokio::time::sleep(20 * SECOND).await;
    call(&second, 1).await.assert_success();
    connection.unavailable.store(false, SeqCst);
    tokio::time::sleep(10 * SECOND).await;
    let next = call(&second, 1).start();
    long.await.assert_success();
    let ended = Instant::now();
    next.await.assert_success();
    assert!(cluster.ledger.last_began() >= ended, "the long call still runs, so no other may");
}

#[tokio::test(start_paused = true)]
async fn a_waiting_call_can_be_cancelled_and_holds_nothing() {
    let cluster = Cluster::new(1);
    let (first, _) = cluster.node("a").await;
    let other = |builder: HubBuilder| {
        let quick = dynamic("quick", json!({"type": "object"}), |_: Value, _: CallContext| async {
            Ok::<_, ToolError>(json!(1))
        });
        builder.max_concurrency(1).tool(quick)
    };
    let (second, _) = cluster.node_with("b", other).await;
    let running = call(&first, 60_000).start();
    tokio::time::sleep(SECOND).await;
    let waiting = call(&second, 1).start();
    let late = call(&second, 1).start();
    tokio::time::sleep(3 * SECOND).await;
    second.call("quick", json!({})).await.assert_success();
    let began = Instant::now();
    waiting.cancel();
    waiting.await.assert_error(ErrorKind::Cancelled);
    assert!(began.elapsed() < Duration::from_millis(50), "{:?}", began.elapsed());
    running.await.assert_success();
    late.await.assert_success();
    assert_eq!((cluster.ledger.runs(), cluster.ledger.most()), (vec!["a".to_owned(), "b".to_owned()], 1));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_too_long_is_refused_and_a_full_queue_too() {
    let cluster = Cluster::new(1);
    let (first, _) = cluster.node("a").await;
    let short = |builder: HubBuilder| {
        let policy = Policy { queue_timeout: Some(5 * SECOND), ..Policy::default() };
        builder.max_queued_per_tool(1).policy("work", policy)
    };
    let tool = cluster.tool("b").policy(|policy| policy.queue_timeout = None);
    let store = cluster.memory.clone();
    let builder = ToolHub::builder().shared_store(store).clock(cluster.clock.clone()).tool(tool);
    let second = short(builder).build().await.unwrap();
    let running = call(&first, 60_000).start();
    tokio::time::sleep(SECOND).await;
    let (began, waiting) = (Instant::now(), call(&second, 1).start());
    tokio::time::sleep(SECOND).await;
    call(&second, 1).await.assert_error(ErrorKind::Overloaded);
    assert!(began.elapsed() < 2 * SECOND, "the queue is full");
    waiting.await.assert_error(ErrorKind::Overloaded);
    assert!((5 * SECOND..6 * SECOND).contains(&began.elapsed()), "{:?}", began.elapsed());
    running.await.assert_success();
    assert_eq!(cluster.ledger.runs(), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn while_the_store_is_away_calls_are_refused_at_once() {
    let cluster = Cluster::new(1);
    let ((first, _), (second, connection)) = (cluster.node("a").await, cluster.node("b").await);
    let running = call(&first, 60_000).start();
    tokio::time::sleep(SECOND).await;
    let waiting = call(&second, 1).start();
    tokio::time::sleep(SECOND).await;
    connection.unavailable.store(true, SeqCst);
    let cut = Instant::now();
    waiting.await.assert_error(ErrorKind::StoreUnavailable);
    assert!(cut.elapsed() <= 2 * SECOND, "{:?}", cut.elapsed());
    let began = Instant::now();
    call(&second, 1).await.assert_error(ErrorKind::StoreUnavailable);
    assert!(began.elapsed() <= SECOND, "{:?}", began.elapsed());
    connection.unavailable.store(false, SeqCst);
    running.await.assert_success();
    call(&second, 1).await.assert_success();
    assert_eq!(cluster.ledger.most(), 1);
}

#[tokio::test(start_paused = true)]
async fn lost_answers_of_the_store_never_let_more_calls_run() {
    let cluster = Cluster::new(2);
    let mut nodes = Vec::new();
    for name in ["a", "b", "c"] {
        nodes.push(cluster.node(name).await);
    }
    let mut random = fastrand::Rng::with_seed(7);
    let mut calls = Vec::new();
    for _ in 0..300 {
        let (hub, connection) = &nodes[random.usize(..3)];
        connection.loses_acks.store(random.u8(..3) == 0, SeqCst);
        calls.push(call(hub, random.u64(..300)).start());
        tokio::time::sleep(Duration::from_millis(random.u64(..100))).await;
    }
    nodes.iter().for_each(|(_, connection)| connection.loses_acks.store(false, SeqCst));
    let ended = join_all(calls.into_iter().map(IntoFuture::into_future)).await;
    assert!(ended.iter().any(toolhub::Outcome::is_success) && cluster.ledger.most() == 2, "{}", cluster.ledger.most());
    // What the lost answers left behind expires at the latest.
    tokio::time::sleep(MINUTE).await;
    for (hub, _) in &nodes {
        join_all((0..4).map(|_| async { call(hub, 10).await.assert_success().clone() })).await;
    }
    assert_eq!(cluster.ledger.most(), 2);
}

#[tokio::test(start_paused = true)]
async fn another_limit_applies_at_once_to_waiting_calls() {
    let cluster = Cluster::new(1);
    let ((first, _), (second, _)) = (cluster.node("a").await, cluster.node("b").await);
    let running = call(&first, 600_000).start();
    tokio::time::sleep(SECOND).await;
    let waiting = call(&second, 1).start();
    tokio::time::sleep(SECOND).await;
    let wider = cluster.tool("b").max_concurrency_shared(2);
    second.apply(HubChange::tools_only().put(wider)).await.unwrap();
    let began = Instant::now();
    call(&second, 1).await.assert_success();
    waiting.await.assert_success();
    assert!(began.elapsed() < 2 * SECOND, "{:?}", began.elapsed());
    running.cancel();
    running.await.assert_error(ErrorKind::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn a_start_warns_of_single_calls_per_node_and_explain_says_what_is_per_node() {
    let lines = log_capture::start();
    let warnings = || lines().into_iter().filter(|line| line.contains("max_concurrency_shared")).collect::<Vec<_>>();
    let cluster = Cluster::new(1);
    let single = || {
        dynamic("single", json!({"type": "object"}), |_: Value, _: CallContext| async { Ok::<_, ToolError>(json!(1)) })
    };
    let (hub, _) = cluster.node_with("a", |builder| builder.tool(single().max_concurrency(1))).await;
    let warned = warnings();
    assert!(warned.len() == 1 && warned[0].contains("single") && !warned[0].contains("work"), "{warned:?}");
    let _other = cluster.node("b").await;
    let alone = ToolHub::builder().tool(single().max_concurrency(1)).build().await.unwrap();
    assert_eq!(warnings(), Vec::<String>::new(), "not on a store of its own");

    hub.nodes().await.unwrap();
    let text = async |hub: &ToolHub, tool: &str| {
        hub.explain(tool, &Tenant::default(), None).await.unwrap().text(toolhub::status::Language::English)
    };
    let (per_node, shared) = (text(&hub, "single").await, text(&hub, "work").await);
    assert!(
        per_node.contains("at most 1 concurrent") && per_node.contains("Nodes: 2. Concurrency, queue"),
        "{per_node}"
    );
    assert!(shared.contains("at most 1 concurrent on all nodes together"), "{shared}");
    assert!(!text(&alone, "single").await.contains("Nodes"));
}

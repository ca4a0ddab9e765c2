//! One round trip with a typed document of about 1 KiB: read, change, compare-and-set.
//!
//! In: nothing. Out: the time of each path, and of a plain map that does the same. Each path is one function; to add a path, add a
//! function here and a line in `measure_all`.

use std::{hint::black_box, time::Duration};

use dashmap::DashMap;
use serde_json::{Value, json};
use toolhub::{BusinessStateConfig, StateKind, StateManager, StateManagerConfig, ids::Tenant, prelude::*};

use crate::{
    document::{Document, context, thread},
    measure::{RandomIndices, TimedPath, measure_interleaved, runtime},
};

/// The updates are spread over several threads, so that none gets an unrealistically long history.
const THREADS: usize = 64;

/// The path that all others are compared with.
pub(crate) const BASELINE: &str = "map: parse, change, write, compare, replace";

/// The baseline with untyped JSON values.
const BASELINE_VALUES: &str = "map: the same with JSON values";
const STATELESS_CALL: &str = "a call of a tool with effects";
const STATEFUL_CALL: &str = "a call of a stateful tool";
/// The difference of the two.
const STATE_OVERHEAD: &str = "overhead of the state in a call";

/// The paths with a target: the minimum ratio to the rate of the baseline.
pub(crate) const TARGETS: [(&str, f64); 1] = [(STATE_OVERHEAD, 0.8)];

/// The median nanoseconds of one round trip on each path.
pub(crate) fn measure_all() -> Vec<(String, f64)> {
    let runtime = runtime();
    let map = baseline_map();
    let (full, minimal) = (runtime.block_on(HubFixture::new(true)), runtime.block_on(HubFixture::new(false)));
    let paths: Vec<(&str, TimedPath<'_>)> = vec![
        (BASELINE, Box::new(|| Box::pin(baseline_update(&map)))),
        (BASELINE_VALUES, Box::new(|| Box::pin(baseline_update_values(&map)))),
        ("compare_and_set", Box::new(|| Box::pin(full.compare_and_set()))),
        ("compare_and_set, without snapshots and history", Box::new(|| Box::pin(minimal.compare_and_set()))),
        ("update_state", Box::new(|| Box::pin(full.update()))),
        ("update_state, without snapshots and history", Box::new(|| Box::pin(minimal.update()))),
        (STATELESS_CALL, Box::new(|| Box::pin(full.call("work")))),
        (STATEFUL_CALL, Box::new(|| Box::pin(full.call("count_on")))),
        ("a call of a stateful tool, without snapshots and history", Box::new(|| Box::pin(minimal.call("count_on")))),
    ];
    let paths: Vec<_> = paths.into_iter().map(|(name, path)| (name.to_owned(), path)).collect();
    let mut numbers = measure_interleaved(&runtime, &paths);
    let nanos_of = |path: &str| numbers.iter().find(|(name, _)| name == path).map_or(f64::NAN, |(_, nanos)| *nanos);
    numbers.push((STATE_OVERHEAD.into(), nanos_of(STATEFUL_CALL) - nanos_of(STATELESS_CALL)));
    for (name, nanos) in &numbers {
        println!("{}", json!({"name": name, "ns": nanos.round()}));
    }
    numbers
}

struct BaselineMap {
    map: DashMap<String, (String, u64)>,
    keys: Vec<String>,
    numbers: RandomIndices,
}

fn baseline_map() -> BaselineMap {
    let keys: Vec<String> = (0..THREADS).map(|number| context(number).to_string()).collect();
    let text = serde_json::to_string(&Document::default()).unwrap();
    let map = keys.iter().map(|key| (key.clone(), (text.clone(), 1))).collect();
    BaselineMap { map, keys, numbers: RandomIndices::below(THREADS) }
}

/// The simplest implementation. The lock is not held while the document is parsed and serialized.
async fn baseline_update(baseline: &BaselineMap) {
    let key = &baseline.keys[baseline.numbers.next()];
    let (text, version) = baseline.map.get(key).unwrap().clone();
    let mut document: Document = serde_json::from_str(&text).unwrap();
    document.count += 1;
    let text = serde_json::to_string(&document).unwrap();
    let mut entry = baseline.map.get_mut(key).unwrap();
    assert_eq!(entry.1, version);
    *entry = (text, version + 1);
}

/// The same with an untyped document.
async fn baseline_update_values(baseline: &BaselineMap) {
    let key = &baseline.keys[baseline.numbers.next()];
    let (text, version) = baseline.map.get(key).unwrap().clone();
    let mut document: Value = serde_json::from_str(&text).unwrap();
    document["count"] = json!(document["count"].as_u64().unwrap() + 1);
    let text = document.to_string();
    let mut entry = baseline.map.get_mut(key).unwrap();
    assert_eq!(entry.1, version);
    *entry = (text, version + 1);
}

/// Count one more.
#[derive(Deserialize, JsonSchema)]
struct CountOn {}

async fn count_on(_: CountOn, mut document: State<Document>) -> Result<u64, ToolError> {
    document.count += 1;
    Ok(document.count)
}

async fn work(_: CountOn) -> Result<u64, ToolError> {
    Ok(1)
}

struct HubFixture {
    hub: ToolHub,
    state: StateManager,
    tenant: Tenant,
    numbers: RandomIndices,
}

impl HubFixture {
    async fn new(with_history: bool) -> Self {
        let max_history_size = if with_history { BusinessStateConfig::default().max_history_size } else { 0 };
        let business =
            BusinessStateConfig { versioning: with_history, max_history_size, ..BusinessStateConfig::default() };
        // No retention of completed calls and a short cleanup interval, or their records would fill the memory.
        let manager =
            StateManagerConfig { cleanup_interval: Duration::from_millis(200), ..StateManagerConfig::default() };
        let hub = ToolHub::builder()
            .tool(tool("count_on", count_on))
            .tool(tool("work", work))
            .business_state(business)
            .state_manager(manager)
            .call_retention(Duration::ZERO)
            .build()
            .await
            .unwrap();
        let (state, tenant) = (hub.state(), Tenant::default());
        let document = serde_json::to_value(Document::default()).unwrap();
        for number in 0..THREADS {
            let context = context(number);
            state.set_state(&tenant, &context, StateKind::Business, document.clone(), None).await.unwrap();
        }
        Self { hub, state, tenant, numbers: RandomIndices::below(THREADS) }
    }

    /// Like the baseline, through the state manager, which takes JSON values: the document is converted once more.
    async fn compare_and_set(&self) {
        let context = context(self.numbers.next());
        let entry = self.state.get_state(&self.tenant, &context, StateKind::Business).await.unwrap().unwrap();
        let mut document: Document = serde_json::from_value(entry.data).unwrap();
        document.count += 1;
        let data = serde_json::to_value(&document).unwrap();
        let (kind, version) = (StateKind::Business, entry.version);
        black_box(self.state.compare_and_set(&self.tenant, &context, kind, data, version).await.unwrap());
    }

    /// A patch of the same member; the state manager does the compare-and-set.
    async fn update(&self) {
        let (context, patch): (_, Value) = (context(self.numbers.next()), json!({"count": 2}));
        black_box(self.state.update_state(&self.tenant, &context, StateKind::Business, patch).await.unwrap());
    }

    /// One complete call, with its task and its two records.
    async fn call(&self, tool: &str) {
        let outcome = self.hub.call(tool, json!({})).thread(thread(self.numbers.next())).await;
        assert!(outcome.is_success(), "{outcome:?}");
        black_box(outcome);
    }
}

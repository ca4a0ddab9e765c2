//! Latency of state operations by number of contexts, from ten to a million.
//!
//! In: numbers of contexts. Out: the time of each operation on a random context. Snapshots and history are off: with few contexts they
//! would be full and with many contexts empty, which would distort the comparison. A plain map is measured too, because a million
//! entries of any kind do not fit into the CPU caches.

use std::hint::black_box;

use dashmap::DashMap;
use serde_json::json;
use toolhub::{BusinessStateConfig, ContextId, StateKind, StateManager, ids::Tenant, prelude::ToolHub};

use crate::{
    document::{context, object_of_size},
    measure::{RandomIndices, TimedPath, measure_interleaved, runtime},
};

/// The numbers of contexts.
pub(crate) const COUNTS: [usize; 4] = [10, 1_000, 100_000, 1_000_000];

/// The timed operations. To add one: a name here, and an arm in `timed_path`.
pub(crate) const REQUESTS: [&str; 4] = ["map: get, parsed", "get_state", "update_state", "compare_and_set"];

/// The median nanoseconds of each operation, in the order of [`COUNTS`].
pub(crate) fn measure_all() -> Vec<(&'static str, Vec<f64>)> {
    let runtime = runtime();
    let sets: Vec<ContextSet> = COUNTS.map(|count| runtime.block_on(ContextSet::new(count))).into();
    let timed = |request: &'static str| {
        let paths: Vec<(String, TimedPath<'_>)> =
            sets.iter().map(|set| (format!("{request}, {} contexts", set.count), set.timed_path(request))).collect();
        let numbers = measure_interleaved(&runtime, &paths);
        for (name, nanos) in &numbers {
            println!("{}", json!({"name": name, "ns": nanos.round()}));
        }
        (request, numbers.into_iter().map(|(_, nanos)| nanos).collect())
    };
    REQUESTS.map(timed).into()
}

/// A number of contexts, in the state manager and in a plain map.
struct ContextSet {
    count: usize,
    numbers: RandomIndices,
    map: DashMap<String, (String, u64)>,
    state: StateManager,
    tenant: Tenant,
    _hub: ToolHub,
}

impl ContextSet {
    async fn new(count: usize) -> Self {
        let config = BusinessStateConfig { versioning: false, max_history_size: 0, ..BusinessStateConfig::default() };
        let hub = ToolHub::builder().business_state(config).build().await.unwrap();
        let (state, tenant, map) = (hub.state(), Tenant::default(), DashMap::new());
        for context in (0..count).map(context) {
            state.set_state(&tenant, &context, StateKind::Business, object_of_size(64), None).await.unwrap();
            map.insert(context.to_string(), (object_of_size(64).to_string(), 1));
        }
        Self { count, numbers: RandomIndices::below(count), map, state, tenant, _hub: hub }
    }

    fn timed_path<'a>(&'a self, request: &str) -> TimedPath<'a> {
        match request {
            "map: get, parsed" => Box::new(|| Box::pin(self.get_baseline())),
            "get_state" => Box::new(|| Box::pin(self.get())),
            "update_state" => Box::new(|| Box::pin(self.update())),
            "compare_and_set" => Box::new(|| Box::pin(self.compare_and_set())),
            other => panic!("unknown operation `{other}`"),
        }
    }

    /// Built for each operation, as for a real request: a list of all contexts would be one more access outside the caches.
    fn random_context(&self) -> ContextId {
        context(self.numbers.next())
    }

    async fn get_baseline(&self) {
        let entry = self.map.get(&self.random_context().to_string()).unwrap();
        black_box(serde_json::from_str::<serde_json::Value>(&entry.0).unwrap());
    }

    async fn get(&self) {
        black_box(self.state.get_state(&self.tenant, &self.random_context(), StateKind::Business).await.unwrap());
    }

    async fn update(&self) {
        let patch = json!({"count": 2});
        black_box(
            self.state.update_state(&self.tenant, &self.random_context(), StateKind::Business, patch).await.unwrap(),
        );
    }

    /// A read and a write.
    async fn compare_and_set(&self) {
        let context = self.random_context();
        let entry = self.state.get_state(&self.tenant, &context, StateKind::Business).await.unwrap().unwrap();
        let (kind, version) = (StateKind::Business, entry.version);
        black_box(self.state.compare_and_set(&self.tenant, &context, kind, entry.data, version).await.unwrap());
    }
}

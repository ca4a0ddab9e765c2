//! The manager against a naive model: random programs of writes, deletions, time, sweeps and new hubs, with the same
//! results after every step.
//!
//! With `TOOLHUB_SOAK`, twenty times as many programs are run.

use std::{cell::RefCell, collections::BTreeMap, sync::Arc, time::Duration};

use proptest::{
    prelude::*,
    sample::select,
    test_runner::{Config, TestRunner},
};
use serde_json::Map;
use toolhub::{
    BusinessStateConfig, ContextFilter, ContextId, ErrorKind, HistoryEvent, StateError, StateKind, StateManager,
    backend::{Backend, Memory},
    clock::{Clock, Timestamp},
    prelude::{Tenant, ToolHub, Value},
    testing::TestClock,
};
use toolhub_testkit::soak;

const MAX_VERSIONS: usize = 3;
const MAX_HISTORY_ENTRIES: usize = 5;
const MAX_STATE_SIZE: usize = 40;

#[derive(Debug, Clone)]
enum Step {
    Set(usize, StateKind, Value, Option<u64>),
    Update(usize, StateKind, Value),
    Delete(usize, StateKind),
    Cleanup(usize),
    /// Expects the current version, plus this.
    CompareAndSet(usize, StateKind, Value, i64),
    /// Rolls back by this many versions.
    Rollback(usize, u64),
    Wait(u64),
    Sweep,
    NewHub,
    ExportAndImport,
}

/// One state in the model.
#[derive(Debug, Clone)]
struct ModelState {
    data: Value,
    version: u64,
    expires: Option<u64>,
    snapshots: BTreeMap<u64, (Value, Option<u64>)>,
}

#[derive(Debug, Default)]
struct Model {
    /// By context and kind.
    states: BTreeMap<(usize, StateKind), ModelState>,
    /// By context: the history entries, and when they expire.
    history: BTreeMap<usize, Vec<(Value, u64, Option<u64>)>>,
    now: u64,
}

impl Model {
    /// Removes everything that has expired.
    fn advance(&mut self, time: u64) {
        self.now += time;
        let now = self.now;
        let lives = |expires: Option<u64>| expires.is_none_or(|at| at > now);
        self.states.retain(|_, stored| lives(stored.expires));
        self.states.values_mut().for_each(|stored| stored.snapshots.retain(|_, (_, expires)| lives(*expires)));
        self.history.values_mut().for_each(|entries| entries.retain(|(_, _, expires)| lives(*expires)));
    }

    fn write(
        &mut self,
        context: usize,
        kind: StateKind,
        data: Value,
        expires: Option<u64>,
        to_kind: Value,
    ) -> Result<u64, ErrorKind> {
        if data.to_string().len() > MAX_STATE_SIZE {
            return Err(ErrorKind::StateTooLarge);
        }
        let before = self.states.remove(&(context, kind));
        let (version, mut snapshots) =
            before.map_or_else(Default::default, |stored| (stored.version, stored.snapshots));
        let version = version + 1;
        snapshots.insert(version, (data.clone(), expires));
        snapshots.retain(|old, _| *old + MAX_VERSIONS as u64 > version);
        self.states.insert((context, kind), ModelState { data, version, expires, snapshots });
        if kind == StateKind::Business {
            let entries = self.history.entry(context).or_default();
            entries.push((to_kind, version, expires));
            if entries.len() > MAX_HISTORY_ENTRIES {
                entries.remove(0);
            }
        }
        Ok(if kind == StateKind::Cache { 0 } else { version })
    }

    fn set(&mut self, context: usize, kind: StateKind, data: Value, ttl: Option<u64>) -> Result<u64, ErrorKind> {
        if kind == StateKind::Cache && ttl.is_none() {
            return Err(ErrorKind::ArgumentsInvalid);
        }
        let expires = ttl.map(|ttl| self.now + ttl);
        self.write(context, kind, data.clone(), expires, data)
    }

    fn update(&mut self, context: usize, kind: StateKind, patch: Value) -> Result<u64, ErrorKind> {
        let Some(stored) = self.states.get(&(context, kind)) else { return Err(ErrorKind::StateNotFound) };
        let (data, expires) = (merge_patch(Some(&stored.data), &patch), stored.expires);
        self.write(context, kind, data, expires, patch)
    }

    fn version(&self, context: usize, kind: StateKind) -> u64 {
        self.states.get(&(context, kind)).map_or(0, |stored| stored.version)
    }

    fn compare_and_set(
        &mut self,
        context: usize,
        kind: StateKind,
        data: Value,
        expected: u64,
    ) -> Result<u64, ErrorKind> {
        if kind == StateKind::Cache {
            return Err(ErrorKind::ArgumentsInvalid);
        }
        if self.version(context, kind) != expected {
            return Err(ErrorKind::StateConflict);
        }
        let expires = self.states.get(&(context, kind)).and_then(|stored| stored.expires);
        self.write(context, kind, data.clone(), expires, data)
    }

    fn rollback(&mut self, context: usize, version: u64) -> Result<u64, ErrorKind> {
        let stored = self.states.get(&(context, StateKind::Business)).ok_or(ErrorKind::StateNotFound)?;
        let (data, _) = stored.snapshots.get(&version).cloned().ok_or(ErrorKind::StateNotFound)?;
        let expires = stored.expires;
        self.write(context, StateKind::Business, data.clone(), expires, data)
    }
}

/// A merge patch, exactly as RFC 7396 defines it.
fn merge_patch(target: Option<&Value>, patch: &Value) -> Value {
    let Value::Object(changes) = patch else { return patch.clone() };
    let mut result = target.and_then(Value::as_object).cloned().unwrap_or_default();
    for (name, change) in changes {
        if change.is_null() {
            result.remove(name);
        } else {
            let merged = merge_patch(result.get(name), change);
            result.insert(name.clone(), merged);
        }
    }
    Value::Object(result)
}

fn object() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        3 => (0..9i64).prop_map(Value::from),
        1 => Just(Value::Null),
        1 => "[a-c]{0,20}".prop_map(Value::from),
    ];
    let value = leaf.prop_recursive(2, 6, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            proptest::collection::btree_map("[a-c]", inner, 0..3).prop_map(into_object),
        ]
    });
    proptest::collection::btree_map("[a-c]", value, 0..3).prop_map(into_object)
}

fn into_object(map: BTreeMap<String, Value>) -> Value {
    Value::Object(map.into_iter().collect::<Map<_, _>>())
}

fn step() -> impl Strategy<Value = Step> {
    let context = 0..3usize;
    let kind = || prop_oneof![4 => Just(StateKind::Business), 1 => Just(StateKind::Cache)];
    let ttl = || prop_oneof![2 => Just(None), 1 => select(vec![1, 5, 20]).prop_map(Some)];
    prop_oneof![
        6 => (context.clone(), kind(), object(), ttl()).prop_map(|(c, k, d, t)| Step::Set(c, k, d, t)),
        6 => (context.clone(), kind(), object()).prop_map(|(c, k, d)| Step::Update(c, k, d)),
        2 => (context.clone(), kind()).prop_map(|(c, k)| Step::Delete(c, k)),
        1 => context.clone().prop_map(Step::Cleanup),
        4 => (context.clone(), kind(), object(), -1..2i64).prop_map(|(c, k, d, e)| Step::CompareAndSet(c, k, d, e)),
        3 => (context, 0..5u64).prop_map(|(c, back)| Step::Rollback(c, back)),
        4 => select(vec![1, 4, 10]).prop_map(Step::Wait),
        1 => Just(Step::Sweep),
        1 => Just(Step::NewHub),
        1 => Just(Step::ExportAndImport),
    ]
}

/// The real implementation.
struct SystemUnderTest {
    store: Arc<Memory>,
    clock: TestClock,
    began: Timestamp,
    state: StateManager,
    tenant: Tenant,
}

impl SystemUnderTest {
    async fn new() -> Self {
        let (store, clock) = (Arc::new(Memory::new()), TestClock::new());
        let state = Self::open_manager(&store, &clock).await;
        Self { store, began: clock.now(), clock, state, tenant: Tenant::default() }
    }

    /// Entries of different hubs in the same millisecond have no order.
    fn advance_one_millisecond(&self, model: &mut Model) {
        self.clock.jump(1);
        model.advance(1);
    }

    async fn open_manager(store: &Arc<Memory>, clock: &TestClock) -> StateManager {
        let config = BusinessStateConfig {
            max_versions: MAX_VERSIONS,
            max_history_size: MAX_HISTORY_ENTRIES,
            max_state_size: MAX_STATE_SIZE,
            ..Default::default()
        };
        let hub = ToolHub::builder().shared_store(store.clone()).clock(clock.clone()).business_state(config);
        hub.build().await.unwrap().state()
    }

    async fn apply(&mut self, model: &mut Model, step: &Step) -> (Result<u64, ErrorKind>, Result<u64, ErrorKind>) {
        let to_kind = |got: Result<u64, StateError>| got.map_err(|error| error.kind());
        let (state, tenant) = (self.state.clone(), self.tenant.clone());
        match step.clone() {
            Step::Set(context, kind, data, ttl) => {
                let time = ttl.map(Duration::from_millis);
                let got = state.set_state(&tenant, &id(context), kind, data.clone(), time).await;
                (to_kind(got), model.set(context, kind, data, ttl))
            }
            Step::Update(context, kind, patch) => {
                let got = state.update_state(&tenant, &id(context), kind, patch.clone()).await;
                (to_kind(got), model.update(context, kind, patch))
            }
            Step::Delete(context, kind) => {
                let got = state.delete_state(&tenant, &id(context), kind).await;
                let expected = model.states.remove(&(context, kind)).is_some();
                (to_kind(got.map(u64::from)), Ok(expected.into()))
            }
            Step::Cleanup(context) => {
                let got = state.cleanup_context(&tenant, &id(context)).await;
                let before = model.states.len();
                model.states.retain(|(of, _), _| *of != context);
                model.history.remove(&context);
                (to_kind(got.map(u64::from)), Ok((model.states.len() < before).into()))
            }
            Step::CompareAndSet(context, kind, data, off) => {
                let expected = model.version(context, kind).saturating_add_signed(off);
                let got = state.compare_and_set(&tenant, &id(context), kind, data.clone(), expected).await;
                (to_kind(got), model.compare_and_set(context, kind, data, expected))
            }
            Step::Rollback(context, back) => {
                let version = model.version(context, StateKind::Business).saturating_sub(back);
                let got = state.rollback(&tenant, &id(context), version).await;
                (to_kind(got), model.rollback(context, version))
            }
            Step::Wait(time) => {
                self.clock.jump(i64::try_from(time).unwrap());
                model.advance(time);
                (Ok(0), Ok(0))
            }
            Step::Sweep => {
                self.store.sweep(3, self.clock.now()).await.unwrap();
                (Ok(0), Ok(0))
            }
            Step::NewHub => {
                self.advance_one_millisecond(model);
                self.state = Self::open_manager(&self.store, &self.clock).await;
                (Ok(0), Ok(0))
            }
            Step::ExportAndImport => {
                self.advance_one_millisecond(model);
                let text = state.export(&tenant, None).await.unwrap();
                self.store = Arc::new(Memory::new());
                self.state = Self::open_manager(&self.store, &self.clock).await;
                let got = self.state.import(&tenant, &text).await;
                model.states.retain(|(_, kind), _| *kind == StateKind::Business);
                (to_kind(got.map(|_| 0)), Ok(0))
            }
        }
    }

    /// Compares everything that can be read with the model.
    async fn assert_matches(&self, model: &Model, met: &mut BTreeMap<&'static str, usize>) {
        let time = |at: Timestamp| u64::try_from(at.millis() - self.began.millis()).unwrap();
        let mut contexts = 0;
        for context in 0..3 {
            let mut any = false;
            for kind in [StateKind::Business, StateKind::Cache] {
                let got = self.state.get_state(&self.tenant, &id(context), kind).await.unwrap();
                let got = got.map(|it| (it.data, it.version, it.expires.map(time)));
                let stored = model.states.get(&(context, kind));
                let version = |stored: &ModelState| if kind == StateKind::Cache { 0 } else { stored.version };
                let expected = stored.map(|stored| (stored.data.clone(), version(stored), stored.expires));
                assert_eq!(got, expected, "{kind} of context {context}");
                any |= got.is_some();
            }
            contexts += usize::from(any);
            let got = self.state.versions(&self.tenant, &id(context)).await.unwrap();
            let got: Vec<_> = got.into_iter().map(|old| (old.version, old.data)).collect();
            let stored = model.states.get(&(context, StateKind::Business));
            let expected: Option<Vec<_>> =
                stored.map(|stored| stored.snapshots.iter().map(|(v, (data, _))| (*v, data.clone())).collect());
            assert_eq!(got, expected.unwrap_or_default(), "versions of context {context}");
            *met.entry("several snapshots").or_default() += usize::from(got.len() > 1);
            let got = self.state.history(&self.tenant, &id(context), 99).await.unwrap();
            let got: Vec<_> = got.into_iter().map(|entry| entry.event).collect();
            let update = |(updates, version, _): &(Value, u64, _)| HistoryEvent::Update {
                updates: updates.clone(),
                version: *version,
            };
            let expected: Vec<_> = model.history.get(&context).into_iter().flatten().map(update).collect();
            assert_eq!(got, expected, "history of context {context}");
        }
        let listed = self.state.list_contexts(&self.tenant, &ContextFilter::default(), None).await.unwrap();
        assert_eq!(listed.contexts.len(), contexts);
        let stats = self.state.stats(&self.tenant).await.unwrap();
        let bytes: usize = model.states.values().map(|stored| stored.data.to_string().len()).sum();
        assert_eq!((stats.contexts, stats.bytes), (contexts, bytes));
    }
}

/// Two contexts in one thread, and one that all threads share.
fn id(context: usize) -> ContextId {
    ["t1/cart", "t1/cart2", "~/cart"][context].parse().unwrap()
}

#[test]
fn the_manager_agrees_with_a_naive_model_on_every_program() {
    let cases = soak(1_000, 20_000);
    let config = Config { failure_persistence: None, ..Config::with_cases(cases) };
    let met = RefCell::new(BTreeMap::<&str, usize>::new());
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let result = TestRunner::new(config).run(&proptest::collection::vec(step(), 1..30), |steps| {
        runtime().block_on(async {
            let (mut world, mut model, mut seen) = (SystemUnderTest::new().await, Model::default(), BTreeMap::new());
            for step in &steps {
                let lives = model.states.len();
                let (got, expected) = world.apply(&mut model, step).await;
                assert_eq!(got, expected, "{step:?}");
                *seen.entry(outcome_label(step, &got)).or_default() += 1;
                *seen.entry("expired").or_default() +=
                    usize::from(matches!(step, Step::Wait(_)) && model.states.len() < lives);
                world.assert_matches(&model, &mut seen).await;
            }
            for (what, times) in seen {
                *met.borrow_mut().entry(what).or_default() += times;
            }
        });
        Ok(())
    });
    if let Err(problem) = result {
        panic!("{problem}");
    }
    let met = met.into_inner();
    println!("{cases} programs met {met:?}");
    // Programs that never reach the interesting cases would prove nothing.
    for expected_case in
        ["set", "updated", "nothing to update", "compared and set", "conflict", "rolled back", "no such version"]
            .iter()
            .chain(&["too large", "deleted", "expired", "several snapshots", "refused", "other"])
    {
        assert!(met.get(*expected_case).is_some_and(|times| *times > 20), "rarely reached: {expected_case} in {met:?}");
    }
}

fn outcome_label(step: &Step, got: &Result<u64, ErrorKind>) -> &'static str {
    match (step, got) {
        (_, Err(ErrorKind::StateTooLarge)) => "too large",
        (_, Err(ErrorKind::ArgumentsInvalid)) => "refused",
        (_, Err(ErrorKind::StateConflict)) => "conflict",
        (Step::Rollback(..), Err(_)) => "no such version",
        (_, Err(_)) => "nothing to update",
        (Step::Set(..), _) => "set",
        (Step::Update(..), _) => "updated",
        (Step::CompareAndSet(..), _) => "compared and set",
        (Step::Rollback(..), _) => "rolled back",
        (Step::Delete(..) | Step::Cleanup(_), Ok(1)) => "deleted",
        _ => "other",
    }
}

//! Calls that a dead process left open: closed once as interrupted, or rerun if the owner asked for it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use toolhub::{
    CallHandle, CallRecord, ContextId, HistoryEvent, HubBuilder, RegistryError, Sqlite, Status,
    backend::Memory,
    ids::CallId,
    prelude::*,
    sqlite::Options,
    testing::{AssertOutcome, EventRecorder, ScriptStep, ScriptedTool, scripted},
};

use toolhub_testkit::TempFolder;

/// A store that several hubs use one after the other.
#[derive(Clone)]
pub(crate) enum RestartableStore {
    Memory(Arc<Memory>),
    File(Arc<TempFolder>),
}

impl RestartableStore {
    pub(crate) fn all_kinds() -> [Self; 2] {
        [Self::Memory(Arc::default()), Self::File(Arc::new(TempFolder::new()))]
    }

    /// The next hub. The background tasks of the previous one end a moment after it, and only then is the file free.
    pub(crate) async fn hub_builder(&self) -> HubBuilder {
        match self {
            // The store outlives its hub, and no other hub uses it at the same time.
            Self::Memory(memory) => ToolHub::builder().store(memory.clone()),
            Self::File(folder) => {
                let path = folder.path().join("store.db");
                let free = async {
                    loop {
                        match Sqlite::open(&path, Options::default()) {
                            Ok(store) => return store,
                            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
                        }
                    }
                };
                let store = tokio::time::timeout(Duration::from_secs(10), free).await;
                ToolHub::builder().store(store.expect("the store is still in use"))
            }
        }
    }
}

/// A hub that dies, with its whole runtime, when its tools have started this many calls.
pub(crate) fn run_and_crash<T>(
    build: impl AsyncFnOnce() -> ToolHub + Send + 'static,
    calls: impl FnOnce(&ToolHub) -> (Vec<CallHandle>, T) + Send + 'static,
    begun: impl Fn() -> bool + Send + 'static,
) -> T
where
    T: Send + 'static,
{
    let life = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let ids = runtime.block_on(async {
            let hub = build().await;
            let (running, ids) = calls(&hub);
            while !begun() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            // Neither is dropped before the runtime: a dropped call would be cancelled in an orderly way.
            std::mem::forget(running);
            (ids, hub)
        });
        let (ids, hub) = ids;
        drop(runtime);
        drop(hub);
        ids
    });
    life.join().unwrap()
}

fn default_tenant() -> Tenant {
    Tenant::default()
}

async fn record(hub: &ToolHub, call: CallId) -> CallRecord {
    hub.call_record(&default_tenant(), call).await.unwrap().expect("the call has a record")
}

fn calls_started(scripts: &[&ScriptedTool], many: usize) -> impl Fn() -> bool + Send + 'static {
    let scripts: Vec<ScriptedTool> = scripts.iter().map(|script| (*script).clone()).collect();
    move || scripts.iter().map(|script| script.recorded_arguments().len()).sum::<usize>() >= many
}

#[tokio::test]
async fn what_a_dead_hub_left_open_is_closed_once_before_the_next_is_ready() {
    for store in RestartableStore::all_kinds() {
        let ((pay, paying), (look, looking)) =
            (scripted("pay", [ScriptStep::Hang, ScriptStep::Hang]), scripted("look", [ScriptStep::Hang]));
        let first = store.clone();
        let calls = run_and_crash(
            async move || first.hub_builder().await.tool(pay).tool(look.read_only()).build().await.unwrap(),
            |hub| {
                let calls = vec![
                    hub.call("pay", json!({"n": 1})).thread("t").idempotency_key("k").model_call("m1").start(),
                    hub.call("pay", json!({"n": 2})).start(),
                    hub.call("look", json!({"n": 3})).idempotency_key("k").start(),
                ];
                let ids: Vec<CallId> = calls.iter().map(CallHandle::id).collect();
                (calls, ids)
            },
            calls_started(&[&paying, &looking], 3),
        );

        let ((pay, paying), (look, looking)) = (scripted("pay", []), scripted("look", []));
        let builder = store.hub_builder().await.tool(pay).tool(look.read_only());
        let mut recorder = EventRecorder::from(builder.subscribe());
        let hub = builder.build().await.unwrap();
        for (id, effect) in calls.iter().zip([Effect::Unknown, Effect::Unknown, Effect::None]) {
            assert_eq!(recorder.end_count(*id), 1);
            let record = record(&hub, *id).await;
            let outcome = record.outcome.unwrap();
            outcome.assert_effect(effect).assert_error(ErrorKind::Interrupted);
            assert_eq!((record.status, outcome.id), (Status::Error, *id));
        }
        // One key, one effect: whether there was one is unknown, so the call is not repeated.
        let repeated = hub.call("pay", json!({"n": 1})).thread("t").idempotency_key("k").model_call("m2").await;
        repeated.assert_effect(Effect::Unknown).assert_error(ErrorKind::Interrupted);
        assert!(repeated.replayed && repeated.id == calls[0] && paying.recorded_arguments().is_empty());
        // A read-only call that was never answered is made again.
        let repeated = hub.call("look", json!({"n": 3})).idempotency_key("k").await;
        repeated.assert_success();
        assert!(!repeated.replayed);
        assert!(hub.call("look", json!({"n": 3})).idempotency_key("k").await.replayed);
        assert_eq!(looking.recorded_arguments().len(), 1);
        hub.shutdown(Duration::ZERO).await;
        drop(hub);

        let builder = store.hub_builder().await.tool(scripted("pay", []).0);
        let mut recorder = EventRecorder::from(builder.subscribe());
        let hub = builder.build().await.unwrap();
        assert!(calls.iter().all(|id| recorder.end_count(*id) == 0), "they were closed before");
        record(&hub, calls[1]).await.outcome.unwrap().assert_error(ErrorKind::Interrupted);
    }
}

#[derive(Default, Serialize, Deserialize)]
struct Cart {
    lines: Vec<String>,
}
impl ToolState for Cart {
    const NAME: &'static str = "cart";
}

async fn add_and_hang(_: NoArguments, mut cart: State<Cart>, begun: Shared<Arc<AtomicUsize>>) -> Result<(), ToolError> {
    cart.lines.push("tea".into());
    begun.fetch_add(1, Ordering::Release);
    std::future::pending().await
}

async fn add(_: NoArguments, mut cart: State<Cart>) -> Result<usize, ToolError> {
    cart.lines.push("tea".into());
    Ok(cart.lines.len())
}

#[tokio::test]
async fn the_history_of_a_state_is_told_of_a_call_that_was_interrupted() {
    for store in RestartableStore::all_kinds() {
        let (first, started) = (store.clone(), Arc::new(AtomicUsize::new(0)));
        let counter = started.clone();
        run_and_crash(
            async move || {
                first.hub_builder().await.resource(counter).tool(tool("add", add_and_hang)).build().await.unwrap()
            },
            |hub| (vec![hub.call("add", json!({})).thread("t").start()], ()),
            move || started.load(Ordering::Acquire) == 1,
        );
        let hub = store.hub_builder().await.tool(tool("add", add)).build().await.unwrap();
        let cart: ContextId = "t/cart".parse().unwrap();
        let history = hub.state().history(&default_tenant(), &cart, 10).await.unwrap();
        let what: Vec<_> = history.into_iter().map(|entry| entry.event).collect();
        assert!(matches!(&what[0], HistoryEvent::ExecutionStart { .. }), "{what:?}");
        assert!(matches!(&what[1], HistoryEvent::ExecutionError { error_type, .. } if error_type == "interrupted"));
        assert_eq!(hub.call("add", json!({})).thread("t").await.assert_success(), &json!(1), "nothing was committed");
    }
}

/// A payment that is rerun, and dies with its hub.
fn rerunnable_tool(steps: impl IntoIterator<Item = ScriptStep>) -> (ToolBuilder, ScriptedTool) {
    let (tool, script) = scripted("pay", steps);
    (tool.idempotent().rerun_interrupted(), script)
}

/// Waits until a call has ended.
async fn wait_for_end(hub: &ToolHub, call: CallId) -> Outcome {
    let ended = async {
        loop {
            if let Some(outcome) = record(hub, call).await.outcome {
                return outcome;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), ended).await.expect("the call ends")
}

#[tokio::test]
async fn a_call_is_run_again_under_its_own_id_where_the_owner_asked_for_it() {
    for store in RestartableStore::all_kinds() {
        let ((pay, paying), first) = (rerunnable_tool([ScriptStep::Hang]), store.clone());
        let id = run_and_crash(
            async move || first.hub_builder().await.tool(pay).build().await.unwrap(),
            |hub| {
                let call = hub.call("pay", json!({"n": 1})).thread("t").idempotency_key("k").model_call("m").start();
                let id = call.id();
                (vec![call], id)
            },
            calls_started(&[&paying], 1),
        );
        let (pay, paying) = rerunnable_tool([ScriptStep::Return(json!("paid"))]);
        let builder = store.hub_builder().await.tool(pay);
        let mut recorder = EventRecorder::from(builder.subscribe());
        let hub = builder.build().await.unwrap();
        let outcome = wait_for_end(&hub, id).await;
        assert_eq!(outcome.assert_success(), &json!("paid"));
        assert_eq!((outcome.id, outcome.model_call.as_deref()), (id, Some("m")));
        let repeated = hub.call("pay", json!({"n": 1})).thread("t").idempotency_key("k").await;
        assert!(repeated.replayed && repeated.output == "paid");
        assert_eq!(paying.recorded_arguments(), [json!({"n": 1})]);
        hub.shutdown(Duration::from_secs(5)).await;
        assert_eq!(recorder.end_count(id), 1);
    }
}

#[tokio::test]
async fn a_call_that_kills_its_process_is_started_three_times_and_no_more() {
    for store in RestartableStore::all_kinds() {
        let mut id = None;
        for life in 0..3 {
            let ((pay, paying), next) = (rerunnable_tool([ScriptStep::Hang]), store.clone());
            let begun_here = calls_started(&[&paying], 1);
            let ids = run_and_crash(
                async move || next.hub_builder().await.tool(pay).build().await.unwrap(),
                move |hub| {
                    let calls: Vec<_> = (life == 0).then(|| hub.call("pay", json!({})).start()).into_iter().collect();
                    let id = calls.first().map(CallHandle::id);
                    (calls, id)
                },
                begun_here,
            );
            id = id.or(ids);
        }
        let (pay, paying) = rerunnable_tool([]);
        let hub = store.hub_builder().await.tool(pay).build().await.unwrap();
        let outcome = record(&hub, id.unwrap()).await.outcome.unwrap();
        outcome.assert_effect(Effect::Unknown).assert_error(ErrorKind::Interrupted);
        assert_eq!((outcome.attempts, paying.recorded_arguments().len()), (3, 0));
    }
}

#[tokio::test]
async fn a_call_that_cannot_be_run_again_is_closed() {
    let changes: [fn(HubBuilder, ToolBuilder) -> HubBuilder; 2] = [
        // The tool has another schema by now.
        |hub, pay| hub.tool(pay.parameters(json!({"type": "object", "properties": {"n": {"type": "string"}}}))),
        // A rule denies it by now.
        |hub, pay| hub.tool(pay).rule(Rule::deny("pay")),
    ];
    for change in changes {
        let [store, _] = RestartableStore::all_kinds();
        let ((pay, paying), first) = (rerunnable_tool([ScriptStep::Hang]), store.clone());
        let id = run_and_crash(
            async move || first.hub_builder().await.tool(pay).build().await.unwrap(),
            |hub| {
                let call = hub.call("pay", json!({"n": 1})).start();
                let id = call.id();
                (vec![call], id)
            },
            calls_started(&[&paying], 1),
        );
        let (pay, paying) = rerunnable_tool([]);
        let builder = change(store.hub_builder().await, pay);
        let mut recorder = EventRecorder::from(builder.subscribe());
        let hub = builder.build().await.unwrap();
        wait_for_end(&hub, id).await.assert_effect(Effect::Unknown).assert_error(ErrorKind::Interrupted);
        hub.shutdown(Duration::from_secs(5)).await;
        assert_eq!((recorder.end_count(id), paying.recorded_arguments().len()), (1, 0));
    }
}

/// Counts the calls it sees.
struct CountingHook(Arc<AtomicUsize>);

impl Hook for CountingHook {
    fn before<'a>(&'a self, _: &'a HookedCall<'a>) -> BoxFuture<'a, Result<BeforeDecision, ToolError>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Box::pin(async { Ok(BeforeDecision::Pass) })
    }
}

#[tokio::test]
async fn nobody_is_asked_twice_about_a_call_that_is_run_again() {
    let [store, _] = RestartableStore::all_kinds();
    let ((pay, paying), first) = (rerunnable_tool([ScriptStep::Hang]), store.clone());
    let id = run_and_crash(
        async move || first.hub_builder().await.tool(pay).build().await.unwrap(),
        |hub| {
            let call = hub.call("pay", json!({"n": 1})).start();
            let id = call.id();
            (vec![call], id)
        },
        calls_started(&[&paying], 1),
    );
    let seen: Arc<AtomicUsize> = Arc::default();
    let hub = store
        .hub_builder()
        .await
        .tool(rerunnable_tool([]).0.confirm())
        .hook("*", CountingHook(seen.clone()))
        .build()
        .await
        .unwrap();
    wait_for_end(&hub, id).await.assert_success();
    assert_eq!(seen.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn only_an_idempotent_tool_can_be_run_again() {
    let built = ToolHub::builder().tool(scripted("pay", []).0.rerun_interrupted()).build().await;
    let error = built.expect_err("it is refused").to_string();
    assert!(error.contains("`pay`") && error.contains("idempotent"), "{error}");
    let hub = ToolHub::builder().build().await.unwrap();
    let refused = hub.register(scripted("pay", []).0.rerun_interrupted()).unwrap_err();
    assert!(matches!(refused, RegistryError::Refused { .. }));
    hub.register(scripted("pay", []).0.rerun_interrupted().idempotent()).unwrap();
}

//! Lifecycle of instances: idle, over the caps, crashed, replaced, and requested directly.

use std::{
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use toolhub::{
    HubBuilder, SharedInstance,
    events::EventKind,
    prelude::*,
    shared_instance,
    testing::{AssertOutcome, EventRecorder, TestClock},
};

const MINUTE: Duration = Duration::from_secs(60);

/// What happened to pages, in order.
#[derive(Default, Clone)]
struct InstanceLog(Arc<Mutex<Vec<String>>>);

impl InstanceLog {
    fn add(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// A browser page.
struct Page {
    name: String,
    log: InstanceLog,
}

#[derive(Deserialize, JsonSchema)]
struct Visit {
    #[serde(default)]
    minutes: u32,
    #[serde(default)]
    crash: bool,
}

impl Instance for Page {
    type Arguments = Visit;
    type Output = String;

    async fn call(&mut self, visit: Visit, _: &CallContext) -> Result<String, ToolError> {
        if visit.minutes > 0 {
            tokio::time::sleep(visit.minutes * MINUTE).await;
        }
        if visit.crash {
            return Err(ToolError::with_kind(ErrorKind::Crashed, "the page is gone"));
        }
        Ok(self.name.clone())
    }

    async fn close(self) {
        self.log.add(format!("closed {}", self.name));
    }
}

/// A tool with pages, named after the tool and the thread.
fn page_tool(tool: &str, log: &InstanceLog) -> ToolBuilder {
    let (log, tool_name) = (log.clone(), tool.to_owned());
    instance(tool, move |cx: CallContext| {
        let name = format!("{tool_name}@{}", cx.thread().unwrap());
        log.add(format!("made {name}"));
        std::future::ready(Ok(Page { name, log: log.clone() }))
    })
    .timeout(600 * MINUTE)
}

async fn visit(hub: &ToolHub, tool: &str, thread: &str) -> Outcome {
    hub.call(tool, json!({})).thread(thread).await
}

fn tenant_and_thread(id: &str) -> (Tenant, ThreadId) {
    (Tenant::default(), ThreadId::new(id).unwrap())
}

/// Why instances were closed, in order.
fn cleanup_reasons(recorder: &mut EventRecorder) -> Vec<&'static str> {
    let reason =
        |news: &EventKind| if let EventKind::ExecutorCleaned { reason, .. } = news { Some(*reason) } else { None };
    recorder.events().iter().filter_map(|event| reason(&event.kind)).collect()
}

fn paused_builder() -> HubBuilder {
    ToolHub::builder().clock(TestClock::new())
}

#[tokio::test(start_paused = true)]
async fn an_idle_instance_is_closed_after_half_an_hour_and_one_in_use_is_not() {
    let log = InstanceLog::default();
    let hub = paused_builder().tool(page_tool("page", &log)).build().await.unwrap();
    let mut recorder = EventRecorder::new(&hub);
    visit(&hub, "page", "quiet").await.assert_success();
    visit(&hub, "page", "busy").await.assert_success();
    let long = hub.call("page", json!({"minutes": 55})).thread("long").start();
    tokio::time::sleep(20 * MINUTE).await;
    assert_eq!(log.take(), ["made page@quiet", "made page@busy", "made page@long"]);
    visit(&hub, "page", "busy").await.assert_success();
    tokio::time::sleep(10 * MINUTE + MINUTE / 60).await;
    assert_eq!(log.take(), ["closed page@quiet"]);
    assert_eq!(cleanup_reasons(&mut recorder), ["it was idle"]);
    tokio::time::sleep(20 * MINUTE).await;
    assert_eq!(log.take(), ["closed page@busy"]);
    assert_eq!(long.await.assert_success(), &json!("page@long"));
    tokio::time::sleep(29 * MINUTE).await;
    assert!(log.take().is_empty(), "it is idle since its call ended, not since it began");
    tokio::time::sleep(2 * MINUTE).await;
    assert_eq!(log.take(), ["closed page@long"]);
    assert_eq!(hub.thread_contexts().instances(), 0);
    visit(&hub, "page", "quiet").await.assert_success();
    assert_eq!(log.take(), ["made page@quiet"]);
}

#[tokio::test(start_paused = true)]
async fn beyond_the_cap_of_a_thread_the_least_recently_used_goes() {
    let log = InstanceLog::default();
    let tools = ["a", "b", "c", "d"].map(|name| page_tool(name, &log));
    let hub = paused_builder().max_instances_per_thread(2).max_instances(100).tools(tools).build().await.unwrap();
    let mut recorder = EventRecorder::new(&hub);
    for tool in ["a", "b", "a", "c"] {
        visit(&hub, tool, "t1").await.assert_success();
    }
    visit(&hub, "a", "t2").await.assert_success();
    tokio::time::sleep(MINUTE).await;
    assert_eq!(log.take(), ["made a@t1", "made b@t1", "made c@t1", "closed b@t1", "made a@t2"]);
    assert_eq!(cleanup_reasons(&mut recorder), ["the thread has too many instances"]);

    // Instances in use stay; the cap applies once they are idle.
    let running: Vec<_> =
        ["a", "c", "d"].map(|tool| hub.call(tool, json!({"minutes": 1})).thread("t1").start()).into_iter().collect();
    tokio::time::sleep(MINUTE / 2).await;
    assert_eq!(log.take(), ["made d@t1"]);
    for call in running {
        call.await.assert_success();
    }
    tokio::time::sleep(MINUTE).await;
    assert_eq!(log.take().len(), 1, "one was closed");
    assert_eq!(hub.thread_contexts().instances(), 3);
}

#[tokio::test(start_paused = true)]
async fn however_many_threads_there_are_no_more_instances_are_kept_than_the_cap() {
    let log = InstanceLog::default();
    let hub = paused_builder()
        .max_instances_per_thread(32)
        .max_instances(50)
        .tool(page_tool("page", &log))
        .build()
        .await
        .unwrap();
    for n in 0..500 {
        visit(&hub, "page", &format!("t{n}")).await.assert_success();
        assert!(hub.thread_contexts().instances() <= 50);
    }
    tokio::time::sleep(MINUTE).await;
    let closed = log.take().iter().filter(|line| line.starts_with("closed")).count();
    assert_eq!(closed, 450, "each was closed");
    let (tenant, newest) = tenant_and_thread("t499");
    assert!(hub.thread_context(&tenant, &newest).info("page").is_some());
    assert!(hub.thread_context(&tenant, &tenant_and_thread("t0").1).info("page").is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_storm_of_first_calls_makes_one_instance_alone_or_shared() {
    struct NoopInstance;
    impl SharedInstance for NoopInstance {
        type Arguments = NoArguments;
        type Output = ();
        async fn call(&self, _: NoArguments, _: &CallContext) -> Result<(), ToolError> {
            tokio::task::yield_now().await;
            Ok(())
        }
    }
    impl Instance for NoopInstance {
        type Arguments = NoArguments;
        type Output = ();
        async fn call(&mut self, _: NoArguments, _: &CallContext) -> Result<(), ToolError> {
            tokio::task::yield_now().await;
            Ok(())
        }
    }
    let created = Arc::new(AtomicUsize::new(0));
    let factory = |created: &Arc<AtomicUsize>| {
        let created = created.clone();
        move |_: CallContext| {
            created.fetch_add(1, Ordering::AcqRel);
            async {
                tokio::task::yield_now().await;
                Ok(NoopInstance)
            }
        }
    };
    let tools = [instance("alone", factory(&created)), shared_instance("shared", factory(&created))];
    let hub = ToolHub::builder().tools(tools).build().await.unwrap();
    for round in 0..20 {
        let call = |n: usize| {
            let tool = if n.is_multiple_of(2) { "alone" } else { "shared" };
            hub.call(tool, json!({})).thread(format!("t{}", n / 2 % 5 + 10 * round)).start()
        };
        let calls: Vec<_> = (0..200).map(call).collect();
        for call in calls {
            call.await.assert_success();
        }
        assert_eq!(created.load(Ordering::Acquire), (round + 1) * 10);
    }
}

#[tokio::test(start_paused = true)]
async fn a_shared_instance_serves_many_calls_at_once_and_goes_when_the_last_has_left() {
    struct Pool(usize, InstanceLog);
    impl SharedInstance for Pool {
        type Arguments = Visit;
        type Output = usize;
        async fn call(&self, visit: Visit, _: &CallContext) -> Result<usize, ToolError> {
            tokio::time::sleep(visit.minutes * MINUTE).await;
            assert!(!visit.crash, "the pool {} is drained", self.0);
            Ok(self.0)
        }
        async fn close(self) {
            self.1.add(format!("closed {}", self.0));
        }
    }
    let log = InstanceLog::default();
    let (created, pools) = (AtomicUsize::new(0), log.clone());
    let open = move |_| std::future::ready(Ok(Pool(created.fetch_add(1, Ordering::AcqRel), pools.clone())));
    let hub = paused_builder().tool(shared_instance("pool", open).timeout(60 * MINUTE)).build().await.unwrap();
    let mut recorder = EventRecorder::new(&hub);
    let call =
        |minutes: u32, crash: bool| hub.call("pool", json!({"minutes": minutes, "crash": crash})).thread("t1").start();
    let began = tokio::time::Instant::now();
    let (long, crashing, short) = (call(3, false), call(1, true), call(1, false));
    assert_eq!(short.await.assert_success(), &json!(0));
    crashing.await.assert_error(ErrorKind::Crashed);
    assert_eq!(call(0, false).await.assert_success(), &json!(1), "a crashed instance is replaced");
    assert_eq!(began.elapsed(), MINUTE, "the calls did not wait for each other");
    assert_eq!(long.await.assert_success(), &json!(0), "a call that uses the old instance continues");
    assert!(log.take().is_empty(), "a crashed instance is not closed");

    let running = call(1, false);
    tokio::task::yield_now().await;
    let (tenant, thread) = tenant_and_thread("t1");
    let context = hub.thread_context(&tenant, &thread);
    tokio::time::sleep(MINUTE - MINUTE / 60).await;
    assert!(context.cleanup("pool").await);
    assert_eq!(log.take(), ["closed 1"]);
    running.await.assert_success();
    assert_eq!(cleanup_reasons(&mut recorder), ["it crashed", "the thread was cleaned up"]);
}

#[tokio::test(start_paused = true)]
async fn a_crash_and_a_cut_off_call_cost_the_instance_and_listeners_hear_why() {
    let log = InstanceLog::default();
    let hub = paused_builder().tool(page_tool("page", &log)).build().await.unwrap();
    let mut recorder = EventRecorder::new(&hub);
    hub.call("page", json!({"crash": true})).thread("t1").await.assert_error(ErrorKind::Crashed);
    let late = hub.call("page", json!({"minutes": 5})).thread("t1").timeout(MINUTE).await;
    late.assert_error(ErrorKind::Timeout);
    visit(&hub, "page", "t1").await.assert_success();
    assert_eq!(log.take(), ["made page@t1", "made page@t1", "made page@t1"]);
    assert_eq!(cleanup_reasons(&mut recorder), ["it crashed", "its call was aborted"]);
    assert_eq!(hub.thread_contexts().instances(), 1);
}

/// A tool that calls the hub while it holds its instance.
struct NestedCaller(Arc<OnceLock<ToolHub>>, &'static str);

impl Instance for NestedCaller {
    type Arguments = NoArguments;
    type Output = Value;
    async fn call(&mut self, _: NoArguments, cx: &CallContext) -> Result<Value, ToolError> {
        let hub = self.0.get().unwrap();
        let inner = hub.call(self.1, json!({})).thread(cx.thread().unwrap().as_str()).await;
        Ok(json!([inner.error_kind().map(ErrorKind::name), inner.model_text()]))
    }
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_calls_itself_is_told_so_at_once() {
    let hub_slot = Arc::new(OnceLock::new());
    let caller = |name: &str, calls: &'static str| {
        let hub_slot = hub_slot.clone();
        instance(name, move |_| std::future::ready(Ok(NestedCaller(hub_slot.clone(), calls))))
    };
    let between = hub_slot.clone();
    let relay = move |_: NoArguments, cx: CallContext| {
        let hub = between.get().unwrap().clone();
        async move {
            let inner = hub.call("round", json!({})).thread(cx.thread().unwrap().as_str()).await;
            Ok::<_, ToolError>(inner.model_text().into_owned())
        }
    };
    let making = hub_slot.clone();
    let born = instance("born", move |cx: CallContext| {
        let hub_slot = making.clone();
        async move {
            let hub = hub_slot.get().unwrap().clone();
            let inner = hub.call("born", json!({})).thread(cx.thread().unwrap().as_str()).await;
            assert!(inner.model_text().contains("called itself"), "{}", inner.model_text());
            Ok(NestedCaller(hub_slot, "leaf"))
        }
    });
    let leaf = tool("leaf", |_: NoArguments| async { Ok::<_, ToolError>(7) }).read_only();
    let hub = paused_builder()
        .tools([caller("itself", "itself"), caller("round", "relay"), caller("other", "itself"), born, leaf])
        .tool(tool("relay", relay))
        .build()
        .await
        .unwrap();
    hub_slot.set(hub.clone()).unwrap();
    let began = tokio::time::Instant::now();
    for tool in ["itself", "round", "other", "born"] {
        let outcome = hub.call(tool, json!({})).thread("t1").await;
        let output = outcome.assert_success().to_string();
        assert!(tool == "born" || output.contains("called itself"), "{tool}: {output}");
    }
    assert_eq!(began.elapsed(), Duration::ZERO, "no call waited");
    let status = hub.tool_status("itself", toolhub::StatusScope::Shared).await.unwrap();
    assert_eq!(status.consecutive_failures, 0, "it does not count against the tool");
}

#[tokio::test(start_paused = true)]
async fn a_call_from_an_old_offer_leaves_no_instance_to_a_later_registration() {
    let log = InstanceLog::default();
    let hub = paused_builder().tool(page_tool("page", &log)).build().await.unwrap();
    let old = hub.tools();
    visit(&hub, "page", "t1").await.assert_success();
    hub.unregister("page").await.unwrap();
    let repeated = hub.call("page", json!({})).thread("t1").from_offer(&old).await;
    assert_eq!(repeated.assert_success(), &json!("page@t1"));
    assert_eq!(log.take(), ["made page@t1", "closed page@t1", "made page@t1"]);

    let newer = log.clone();
    let open = move |_: CallContext| std::future::ready(Ok(Page { name: "new".into(), log: newer.clone() }));
    hub.register(instance("page", open)).unwrap();
    assert_eq!(visit(&hub, "page", "t1").await.assert_success(), &json!("new"));
    assert_eq!(hub.call("page", json!({})).thread("t1").from_offer(&old).await.assert_success(), &json!("page@t1"));
    tokio::time::sleep(31 * MINUTE).await;
    let mut closed = log.take();
    closed.sort();
    assert_eq!(closed, ["closed new", "closed page@t1"], "all instances were closed");
}

#[tokio::test(start_paused = true)]
async fn a_threads_context_shows_its_instances_and_closes_them_and_no_others() {
    let log = InstanceLog::default();
    let hub = paused_builder().tools(["a", "b"].map(|name| page_tool(name, &log))).build().await.unwrap();
    let (tenant, thread) = tenant_and_thread("t1");
    let stranger = Tenant::new("stranger").unwrap();
    for tool in ["a", "b"] {
        visit(&hub, tool, "t1").await.assert_success();
        hub.call(tool, json!({})).thread("t1").tenant(stranger.clone()).await.assert_success();
    }
    let context = hub.thread_contexts().get_or_create(&tenant, &thread);
    assert!(context.info("a").is_some_and(|page| !page.in_use && page.tool.as_str() == "a"));
    assert!(context.info("c").is_none());
    log.take();
    assert!(context.cleanup("a").await);
    assert!(!context.cleanup("a").await, "there is no instance");
    assert!(context.info("a").is_none() && context.info("b").is_some());
    assert_eq!(context.cleanup_all().await.len(), 1);
    assert_eq!(log.take(), ["closed a@t1", "closed b@t1"]);
    assert_eq!(hub.thread_contexts().instances(), 2, "the other tenant's thread of the same name is a different one");
    assert_eq!(hub.thread_contexts().cleanup(&stranger, &thread).await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_threads_context_makes_an_instance_once_and_lends_it_while_calls_wait() {
    struct Tally(u32);
    impl Instance for Tally {
        type Arguments = NoArguments;
        type Output = u32;
        async fn call(&mut self, _: NoArguments, _: &CallContext) -> Result<u32, ToolError> {
            self.0 += 1;
            Ok(self.0)
        }
    }
    let log = InstanceLog::default();
    let made = Arc::new(AtomicUsize::new(0));
    let counted = made.clone();
    let open = move |_: CallContext| {
        counted.fetch_add(1, Ordering::SeqCst);
        async { Ok(Tally(10)) }
    };
    let asks_itself = tool("plain", async |_: NoArguments| Ok::<_, ToolError>(0));
    let builder = paused_builder().tool(instance("tally", open).timeout(MINUTE)).tool(page_tool("page", &log));
    let hub = builder.tool(asks_itself).build().await.unwrap();
    let (tenant, thread) = tenant_and_thread("t1");
    let context = hub.thread_context(&tenant, &thread);
    // Two at once: one instance, lent to one after the other.
    let (first, second) = tokio::join!(context.get::<Tally>("tally"), async {
        tokio::time::timeout(MINUTE / 2, context.get::<Tally>("tally")).await
    });
    let mut first = first.unwrap();
    assert!(second.is_err(), "the first one has it");
    assert_eq!((first.0, made.load(Ordering::SeqCst)), (10, 1));
    first.0 = 20;
    let waiting = hub.call("tally", json!({})).thread("t1").start();
    tokio::time::sleep(MINUTE / 60).await;
    assert!(context.info("tally").unwrap().in_use);
    drop(first);
    assert_eq!(waiting.await.assert_success(), &json!(21));
    // A user that keeps it longer than the tool's timeout does not block others forever.
    let kept = context.get::<Tally>("tally").await.unwrap();
    assert_eq!(context.get::<Tally>("tally").await.unwrap_err().kind, ErrorKind::Timeout);
    drop(kept);
    // Wrong types, tools without instances and unknown tools are refused.
    assert!(context.get::<Page>("tally").await.unwrap_err().operator.contains("another type"));
    assert!(context.get::<Tally>("plain").await.unwrap_err().operator.contains("has no instances"));
    assert_eq!(context.get::<Tally>("nothing").await.unwrap_err().kind, ErrorKind::ToolNotFound);
    assert_eq!(hub.call("tally", json!({})).thread("t1").await.assert_success(), &json!(22));
    assert_eq!(made.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_is_cleaned_up_while_it_works_is_closed_when_its_call_ends() {
    let log = InstanceLog::default();
    let hub = paused_builder().tool(page_tool("page", &log)).build().await.unwrap();
    let (tenant, thread) = tenant_and_thread("t1");
    let context = hub.thread_context(&tenant, &thread);
    let long = hub.call("page", json!({"minutes": 5})).thread("t1").start();
    tokio::time::sleep(MINUTE).await;
    assert!(context.info("page").is_some_and(|page| page.in_use));
    assert!(context.cleanup("page").await, "it waits, but not forever");
    assert_eq!(log.take(), ["made page@t1"]);
    visit(&hub, "page", "t1").await.assert_success();
    assert_eq!(log.take(), ["made page@t1"], "a concurrent call gets a new instance");
    long.await.assert_success();
    tokio::time::sleep(MINUTE / 60).await;
    assert_eq!(log.take(), ["closed page@t1"]);
    assert!(context.info("page").is_some_and(|page| !page.in_use));
}

#[tokio::test(start_paused = true)]
async fn the_instances_of_a_swept_thread_are_closed() {
    let log = InstanceLog::default();
    let builder = paused_builder().instance_idle_timeout(Duration::MAX).idle_thread_retention(60 * MINUTE);
    let hub = builder.tool(page_tool("page", &log)).build().await.unwrap();
    let mut recorder = EventRecorder::new(&hub);
    visit(&hub, "page", "t1").await.assert_success();
    tokio::time::sleep(70 * MINUTE).await;
    assert_eq!(log.take(), ["made page@t1", "closed page@t1"]);
    assert_eq!(cleanup_reasons(&mut recorder), ["the thread was swept"]);
    assert!(recorder.names().contains(&"thread.swept"));
}

#[tokio::test(start_paused = true)]
async fn a_session_is_opened_before_the_first_call_and_its_failure_is_a_calls_failure() {
    let log = InstanceLog::default();
    let broken = instance("broken", |_| std::future::ready(Err::<Page, _>(ToolError::new("no browser"))));
    let plain = tool("plain", |_: NoArguments| async { Ok::<_, ToolError>(1) });
    let tools = [page_tool("page", &log), page_tool("secret", &log), broken, plain];
    let hub = paused_builder().tools(tools).rule(Rule::deny("secret")).build().await.unwrap();
    let mut recorder = EventRecorder::new(&hub);
    let (tenant, thread) = tenant_and_thread("t1");
    hub.open_session("page", &tenant, &thread).await.unwrap();
    hub.open_session("page", &tenant, &thread).await.unwrap();
    hub.open_session("plain", &tenant, &thread).await.unwrap();
    assert_eq!(log.take(), ["made page@t1"]);
    assert!(recorder.names().is_empty(), "nothing was executed");
    visit(&hub, "page", "t1").await.assert_success();
    assert!(log.take().is_empty());

    let denied = hub.open_session("secret", &tenant, &thread).await.unwrap_err();
    assert_eq!(denied.kind, ErrorKind::Forbidden);
    let missing = hub.open_session("pag", &tenant, &thread).await.unwrap_err();
    assert_eq!(missing.kind, ErrorKind::ToolNotFound);
    for _ in 0..3 {
        let error = hub.open_session("broken", &tenant, &thread).await.unwrap_err();
        assert_eq!((error.kind, error.model.as_str()), (ErrorKind::ToolError, "no browser"));
    }
    let withheld = hub.open_session("broken", &tenant, &thread).await.unwrap_err();
    assert_eq!(withheld.kind, ErrorKind::ToolFailedStatus, "three failures in a row withhold a tool");
    visit(&hub, "broken", "t1").await.assert_error(ErrorKind::ToolFailedStatus);
    assert!(recorder.names().contains(&"tool.failed"));
}

/// How many instances were created, closed and dropped.
#[derive(Default)]
struct LifecycleCounts {
    created: AtomicUsize,
    closed: AtomicUsize,
    dropped: AtomicUsize,
    dropped_in_call: AtomicUsize,
}

struct TrackedInstance {
    counts: Arc<LifecycleCounts>,
    in_call: bool,
}

impl Instance for TrackedInstance {
    type Arguments = Visit;
    type Output = ();

    async fn call(&mut self, visit: Visit, _: &CallContext) -> Result<(), ToolError> {
        assert!(!std::mem::replace(&mut self.in_call, true), "two concurrent calls, or a call after an aborted one");
        for _ in 0..visit.minutes {
            tokio::task::yield_now().await;
        }
        assert!(!visit.crash, "scripted");
        self.in_call = false;
        Ok(())
    }

    async fn close(self) {
        tokio::task::yield_now().await;
        self.counts.closed.fetch_add(1, Ordering::AcqRel);
    }
}

impl Drop for TrackedInstance {
    fn drop(&mut self) {
        self.counts.dropped.fetch_add(1, Ordering::AcqRel);
        self.counts.dropped_in_call.fetch_add(usize::from(self.in_call), Ordering::AcqRel);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whatever_happens_each_instance_is_closed_or_lost_in_a_call_and_none_is_left() {
    let census = Arc::new(LifecycleCounts::default());
    let tools = ["a", "b", "c"].map(|name| {
        let census = census.clone();
        instance(name, move |_| {
            let census = census.clone();
            async {
                tokio::task::yield_now().await;
                census.created.fetch_add(1, Ordering::AcqRel);
                Ok(TrackedInstance { counts: census, in_call: false })
            }
        })
    });
    let settings = toolhub::status::StatusSettings { enabled: false, ..Default::default() };
    let builder = ToolHub::builder()
        .status(settings)
        .max_instances_per_thread(2)
        .max_instances(6)
        .instance_idle_timeout(Duration::from_millis(2));
    let hub = builder.tools(tools).build().await.unwrap();
    let workers = (0..4).map(|seed| {
        let hub = hub.clone();
        tokio::spawn(async move {
            // Deterministic, so that a failure can be reproduced.
            for n in (seed * 1_000..seed * 1_000 + 600).map(|n: usize| n.wrapping_mul(2_654_435_761) >> 7) {
                let (tool, thread) = (["a", "b", "c"][n % 3], format!("t{}", n / 3 % 5));
                let id = ThreadId::new(thread.clone()).unwrap();
                let context = hub.thread_context(&Tenant::default(), &id);
                match n / 15 % 16 {
                    0 => drop(context.cleanup(tool).await),
                    1 => drop(context.cleanup_all().await),
                    2 => drop(hub.call(tool, json!({"crash": true})).thread(thread).await),
                    3 => {
                        let call = hub.call(tool, json!({"minutes": 50})).thread(thread).start();
                        tokio::task::yield_now().await;
                        drop(call);
                    }
                    4 => drop(hub.open_session(tool, &Tenant::default(), &id).await),
                    5 => tokio::time::sleep(Duration::from_millis(1)).await,
                    _ => drop(hub.call(tool, json!({"minutes": n % 4})).thread(thread).await),
                }
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.unwrap();
    }
    hub.shutdown(Duration::from_secs(5)).await;
    assert_eq!(hub.thread_contexts().instances(), 0);
    let count = |counter: &AtomicUsize| counter.load(Ordering::Acquire);
    let (created, closed, lost) = (count(&census.created), count(&census.closed), count(&census.dropped_in_call));
    assert!(created > 100 && lost > 10, "{created} made, {lost} lost");
    assert_eq!(count(&census.dropped), created);
    assert_eq!(closed + lost, created, "{closed} closed, {lost} lost");
}

//! Instances: live objects, one per thread.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use toolhub::{
    HubChange,
    ids::{Tenant, ThreadId},
    prelude::*,
    testing::{AssertOutcome, EventRecorder},
};

#[derive(Default)]
struct InstanceCounters {
    created: AtomicUsize,
    active_calls: AtomicUsize,
    closed: Mutex<Vec<usize>>,
}

struct NumberedInstance {
    number: usize,
    log: Arc<InstanceCounters>,
}

#[derive(Deserialize, JsonSchema)]
struct CrashArguments {
    #[serde(default)]
    crash: bool,
}

impl Instance for NumberedInstance {
    type Arguments = CrashArguments;
    type Output = usize;

    async fn call(&mut self, say: CrashArguments, _: &CallContext) -> Result<usize, ToolError> {
        assert_eq!(self.log.active_calls.fetch_add(1, Ordering::AcqRel), 0, "two calls used one instance concurrently");
        tokio::task::yield_now().await;
        self.log.active_calls.fetch_sub(1, Ordering::AcqRel);
        assert!(!say.crash, "connection {} crashed", self.number);
        Ok(self.number)
    }

    async fn close(self) {
        self.log.closed.lock().unwrap().push(self.number);
    }
}

async fn instance_hub() -> (ToolHub, Arc<InstanceCounters>) {
    let log = Arc::new(InstanceCounters::default());
    let lines = log.clone();
    let open = move |_: CallContext| {
        let log = lines.clone();
        async move {
            tokio::task::yield_now().await;
            Ok(NumberedInstance { number: log.created.fetch_add(1, Ordering::AcqRel), log })
        }
    };
    let hub = ToolHub::builder().tool(instance("line", open).description("A telephone line.")).build().await.unwrap();
    (hub, log)
}

async fn call_line(hub: &ToolHub, thread: &str) -> Outcome {
    hub.call("line", json!({})).thread(thread).await
}

#[tokio::test]
async fn an_instance_is_made_once_per_thread_and_used_by_one_call_at_a_time() {
    let (hub, log) = instance_hub().await;
    let calls: Vec<_> = (0..20).map(|_| hub.call("line", json!({})).thread("t1").start()).collect();
    for call in calls {
        assert_eq!(call.await.assert_success(), &json!(0));
    }
    assert_eq!(call_line(&hub, "t2").await.assert_success(), &json!(1));
    assert_eq!(log.created.load(Ordering::Acquire), 2);
}

#[tokio::test]
async fn a_crashed_instance_is_made_anew() {
    let (hub, log) = instance_hub().await;
    call_line(&hub, "t1").await.assert_success();
    hub.call("line", json!({"crash": true})).thread("t1").await.assert_error(ErrorKind::Crashed);
    assert_eq!(call_line(&hub, "t1").await.assert_success(), &json!(1));
    assert!(log.closed.lock().unwrap().is_empty(), "a crashed instance is not closed");
}

#[tokio::test]
async fn instances_are_closed_with_their_thread_with_their_tool_and_with_the_hub() {
    let (hub, log) = instance_hub().await;
    let mut recorder = EventRecorder::new(&hub);
    for thread in ["t1", "t2", "t3"] {
        call_line(&hub, thread).await.assert_success();
    }
    hub.cleanup_thread(&Tenant::default(), &ThreadId::new("t2").unwrap()).await;
    assert_eq!(*log.closed.lock().unwrap(), [1]);
    hub.unregister("line").await.unwrap();
    assert_eq!(log.closed.lock().unwrap().len(), 3);
    assert_eq!(recorder.names().iter().filter(|name| **name == "tool.executor.cleaned").count(), 3);

    let (hub, log) = instance_hub().await;
    call_line(&hub, "t1").await.assert_success();
    hub.shutdown(std::time::Duration::from_secs(1)).await;
    assert_eq!(*log.closed.lock().unwrap(), [0]);
}

#[tokio::test]
async fn a_factory_that_fails_is_asked_again_by_the_next_call() {
    struct UnreachableInstance;
    impl Instance for UnreachableInstance {
        type Arguments = NoArguments;
        type Output = ();
        async fn call(&mut self, _: NoArguments, _: &CallContext) -> Result<(), ToolError> {
            Ok(())
        }
    }
    let tries = Arc::new(AtomicUsize::new(0));
    let seen = tries.clone();
    let open = move |_| {
        let first = seen.fetch_add(1, Ordering::AcqRel) == 0;
        async move { if first { Err(ToolError::new("no dial tone")) } else { Ok(UnreachableInstance) } }
    };
    let hub = ToolHub::builder().tool(instance("line", open)).build().await.unwrap();
    let first = hub.call("line", json!({})).thread("t1").await;
    first.assert_effect(Effect::None).assert_error(ErrorKind::ToolError);
    hub.call("line", json!({})).thread("t1").await.assert_success();
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_fails_to_close_does_not_keep_the_others_from_closing() {
    struct FailingCloseInstance(u32, Arc<Mutex<Vec<u32>>>);
    impl Instance for FailingCloseInstance {
        type Arguments = NoArguments;
        type Output = ();
        async fn call(&mut self, _: NoArguments, _: &CallContext) -> Result<(), ToolError> {
            Ok(())
        }
        async fn close(self) {
            match self.0 {
                0 => panic!("scripted {}", "goodbye"),
                1 => std::future::pending().await,
                n => self.1.lock().unwrap().push(n),
            }
        }
    }
    let closed = Arc::new(Mutex::new(Vec::new()));
    let rude = |n: u32| {
        let closed = closed.clone();
        instance(&format!("rude_{n}"), move |_| std::future::ready(Ok(FailingCloseInstance(n, closed.clone()))))
    };
    let hub = ToolHub::builder().tools((0..4).map(rude)).build().await.unwrap();
    let mut recorder = EventRecorder::new(&hub);
    for n in 0..4 {
        hub.call(format!("rude_{n}"), json!({})).thread("t1").await.assert_success();
    }
    hub.shutdown(std::time::Duration::from_secs(1)).await;
    closed.lock().unwrap().sort_unstable();
    assert_eq!(*closed.lock().unwrap(), [2, 3]);
    assert_eq!(recorder.names().iter().filter(|name| **name == "tool.executor.cleaned").count(), 4);
}

#[tokio::test]
async fn a_tool_that_takes_anothers_place_does_not_inherit_its_instances() {
    let (hub, log) = instance_hub().await;
    assert_eq!(call_line(&hub, "t1").await.assert_success(), &json!(0));
    let lines = log.clone();
    let open = move |_| std::future::ready(Ok(NumberedInstance { number: 77, log: lines.clone() }));
    hub.apply(HubChange::tools_only().put(instance("line", open))).await.unwrap();
    assert_eq!(*log.closed.lock().unwrap(), [0]);
    assert_eq!(call_line(&hub, "t1").await.assert_success(), &json!(77));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_never_got_the_instance_has_done_nothing_and_says_nothing_about_the_tool() {
    struct SlowInstance;
    impl Instance for SlowInstance {
        type Arguments = NoArguments;
        type Output = ();
        async fn call(&mut self, _: NoArguments, _: &CallContext) -> Result<(), ToolError> {
            tokio::time::sleep(std::time::Duration::from_secs(8)).await;
            Ok(())
        }
    }
    let hub = ToolHub::builder().tool(instance("slow", |_| async { Ok(SlowInstance) })).build().await.unwrap();
    let first = hub.call("slow", json!({})).thread("t").start();
    tokio::task::yield_now().await;
    for _ in 0..4 {
        let outcome = hub.call("slow", json!({})).thread("t").timeout(std::time::Duration::from_secs(1)).await;
        outcome.assert_effect(Effect::None).assert_error(ErrorKind::Timeout);
    }
    first.await.assert_success();
    hub.call("slow", json!({})).thread("t").await.assert_success();
}

//! Tools of one group use one instance in each thread.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use toolhub::{
    ConnectionState, HubBuilder, HubChange, InstanceGroup, SharedInstance,
    prelude::*,
    shared_instance,
    testing::{AssertOutcome, EventRecorder, TestClock, TestSource},
};

const MINUTE: Duration = Duration::from_secs(60);

/// The connections of a server: how many were made, and which were closed.
#[derive(Default)]
struct Server {
    group: InstanceGroup,
    made: AtomicUsize,
    closed: Mutex<Vec<usize>>,
}

struct Connection(usize, Arc<Server>);

#[derive(Deserialize, JsonSchema)]
struct Request {
    #[serde(default)]
    minutes: u32,
}

impl SharedInstance for Connection {
    type Arguments = Request;
    type Output = usize;

    async fn call(&self, request: Request, _: &CallContext) -> Result<usize, ToolError> {
        tokio::time::sleep(request.minutes * MINUTE).await;
        Ok(self.0)
    }

    async fn close(self) {
        self.1.closed.lock().unwrap().push(self.0);
    }
}

impl Server {
    fn tool(self: &Arc<Self>, name: &str) -> ToolBuilder {
        let server = self.clone();
        let open = move |_| {
            let id = server.made.fetch_add(1, Ordering::AcqRel);
            std::future::ready(Ok(Connection(id, server.clone())))
        };
        shared_instance(name, open).instance_group(&self.group).timeout(60 * MINUTE)
    }

    fn closed(&self) -> Vec<usize> {
        let mut closed = std::mem::take(&mut *self.closed.lock().unwrap());
        closed.sort_unstable();
        closed
    }
}

fn builder() -> HubBuilder {
    ToolHub::builder().clock(TestClock::new())
}

async fn call(hub: &ToolHub, tool: &str, thread: &str) -> usize {
    let outcome = hub.call(tool, json!({})).thread(thread).await;
    usize::try_from(outcome.assert_success().as_u64().unwrap()).unwrap()
}

fn thread(id: &str) -> (Tenant, ThreadId) {
    (Tenant::default(), ThreadId::new(id).unwrap())
}

#[tokio::test(start_paused = true)]
async fn the_tools_of_a_group_use_one_instance_in_each_thread() {
    let (server, other) = (Arc::new(Server::default()), Arc::new(Server::default()));
    let hub = builder().tools(["read", "write"].map(|name| server.tool(name))).tool(other.tool("other"));
    let hub = hub.build().await.unwrap();
    let calls = ["read", "write", "read"].map(|tool| hub.call(tool, json!({"minutes": 1})).thread("t1").start());
    for outcome in calls {
        assert_eq!(outcome.await.assert_success(), &json!(0));
    }
    assert_eq!((call(&hub, "write", "t2").await, call(&hub, "read", "t2").await), (1, 1));
    let stranger = hub.call("read", json!({})).thread("t1").tenant(Tenant::new("stranger").unwrap()).await;
    assert_eq!(stranger.assert_success(), &json!(2));
    assert_eq!(call(&hub, "other", "t1").await, 0);
    assert_eq!((server.made.load(Ordering::Acquire), other.made.load(Ordering::Acquire)), (3, 1));
    assert_eq!(hub.thread_contexts().instances(), 4);
}

#[tokio::test(start_paused = true)]
async fn replacing_a_tool_of_a_group_closes_nothing_and_the_last_to_go_closes_the_instances() {
    let server = Arc::new(Server::default());
    let (source, mut control) = TestSource::new("fs");
    let hub = builder().source(source).build().await.unwrap();
    let fs = control.handle().await;
    let tools = || ["fs__a", "fs__b"].map(|name| server.tool(name));
    fs.replace_tools(tools().into()).await;
    fs.connected().await;
    for thread in ["t1", "t2"] {
        call(&hub, "fs__a", thread).await;
    }
    let mut recorder = EventRecorder::new(&hub);
    // Unchanged, changed, and removed: the instance was made by the tool that is removed.
    fs.replace_tools(tools().into()).await;
    let [first, second] = tools();
    fs.replace_tools(vec![first.description("changed"), second]).await;
    fs.replace_tools(vec![server.tool("fs__b"), server.tool("fs__c")]).await;
    assert_eq!((call(&hub, "fs__b", "t1").await, call(&hub, "fs__c", "t2").await), (0, 1));
    assert!(server.closed().is_empty());
    let removed = hub.call("fs__b", json!({"minutes": 1})).thread("t1").start();
    tokio::task::yield_now().await;
    fs.replace_tools(vec![server.tool("fs__c")]).await;
    assert_eq!(removed.await.assert_success(), &json!(0));
    assert!(server.closed().is_empty(), "another tool uses it");
    // In use: closed when the call has ended.
    let last = hub.call("fs__c", json!({"minutes": 1})).thread("t1").start();
    tokio::task::yield_now().await;
    let removing = hub.remove_source("fs");
    let (removed, last) = tokio::join!(removing, last);
    assert!(removed.is_some());
    assert_eq!(last.assert_success(), &json!(0));
    tokio::time::sleep(MINUTE).await;
    assert_eq!(server.closed(), [0, 1]);
    assert_eq!(recorder.names().iter().filter(|name| **name == "tool.executor.cleaned").count(), 2);
    assert_eq!(hub.thread_contexts().instances(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_group_whose_tools_come_back_keeps_its_instances_again() {
    let server = Arc::new(Server::default());
    let hub = builder().tool(server.tool("read")).build().await.unwrap();
    assert_eq!(call(&hub, "read", "t1").await, 0);
    hub.unregister("read").await.unwrap();
    assert_eq!(server.closed(), [0]);
    hub.register(server.tool("write")).unwrap();
    assert_eq!((call(&hub, "write", "t1").await, call(&hub, "write", "t1").await), (1, 1));
    // A tool that cannot be registered does not count.
    hub.register(server.tool("write")).unwrap_err();
    hub.apply(HubChange::tools_only().remove("write")).await.unwrap();
    assert_eq!(server.closed(), [1]);
}

#[tokio::test(start_paused = true)]
async fn an_instance_of_a_group_is_found_and_closed_by_the_name_of_each_of_its_tools() {
    let server = Arc::new(Server::default());
    let tools = || ["read", "write"].map(|name| server.tool(name));
    let hub = builder().tools(tools()).build().await.unwrap();
    let (tenant, id) = thread("t1");
    let context = hub.thread_context(&tenant, &id);
    call(&hub, "read", "t1").await;
    for tool in ["read", "write"] {
        assert!(context.info(tool).is_some_and(|info| !info.in_use), "{tool}");
        assert_eq!(context.get_shared::<Connection>(tool).await.unwrap().0, 0);
    }
    assert!(context.cleanup("write").await);
    assert!(!context.cleanup("read").await);
    assert_eq!(server.closed(), [0]);
    assert_eq!((call(&hub, "write", "t1").await, call(&hub, "read", "t1").await), (1, 1));
    assert_eq!(context.cleanup_all().await.len(), 1);
    assert_eq!(server.closed(), [1]);
    call(&hub, "read", "t1").await;
    tokio::time::sleep(20 * MINUTE).await;
    call(&hub, "write", "t1").await;
    tokio::time::sleep(20 * MINUTE).await;
    assert!(server.closed().is_empty(), "a call of each tool is a use");
    tokio::time::sleep(11 * MINUTE).await;
    assert_eq!(server.closed(), [2], "it was idle");
    call(&hub, "write", "t1").await;
    hub.delete_thread(&tenant, &id).await.unwrap();
    assert_eq!(server.closed(), [3]);
    call(&hub, "write", "t2").await;
    hub.shutdown(Duration::from_secs(1)).await;
    assert_eq!(server.closed(), [4]);
}

#[tokio::test(start_paused = true)]
async fn each_tool_of_a_group_that_has_used_the_instance_has_a_session() {
    let server = Arc::new(Server::default());
    let hub = builder().tools(["read", "write", "idle"].map(|name| server.tool(name))).build().await.unwrap();
    let connection = async |context: &str| {
        let context = context.parse().unwrap();
        let entry = hub.state().get_state(&Tenant::default(), &context, StateKind::Connection).await.unwrap();
        entry.map(|entry| serde_json::from_value::<ConnectionState>(entry.data).unwrap())
    };
    for tool in ["read", "write", "write"] {
        call(&hub, tool, "t1").await;
    }
    for tool in ["t1/read", "t1/write"] {
        let state = connection(tool).await.unwrap();
        assert!(state.active && state.session_active, "{tool}: {state:?}");
    }
    assert_eq!((connection("t1/idle").await, connection("t2/read").await), (None, None));
    let (tenant, id) = thread("t1");
    assert!(hub.thread_context(&tenant, &id).cleanup("write").await);
    for tool in ["t1/read", "t1/write"] {
        let state = connection(tool).await.unwrap();
        assert!(!state.active && !state.session_active, "{tool}: {state:?}");
    }
}

//! Sessions: cookies stored per thread.

use std::{io, net::IpAddr, sync::Arc};

use hyper::Response;
use serde_json::{Value, json};
use toolhub_connect::rest::{Resolve, Rest, Upstreams};
use toolhub_core::{BoxFuture, StateKind, ToolHub, backend::Memory, ids::Tenant, testing::AssertOutcome};

use super::support::{Server, any_object_schema, json_ok};

/// A service with a login; `/me` returns the cookies it got.
async fn login_service() -> Server {
    Server::new(|seen| {
        let path = seen.target.split('?').next().unwrap().to_owned();
        match path.as_str() {
            "/login" => Response::builder()
                .status(302)
                .header("location", "/me")
                .header("set-cookie", format!("user={}; Path=/; HttpOnly", seen.target.split('=').next_back().unwrap()))
                .header("set-cookie", "theme=dark; Path=/only")
                .body(Default::default())
                .unwrap(),
            "/logout" => {
                Response::builder().header("set-cookie", "user=; Path=/; Max-Age=0").body(Default::default()).unwrap()
            }
            _ => json_ok(json!(seen.header("cookie"))),
        }
    })
    .await
}

async fn hub(server: &Server, store: &Arc<Memory>, session: bool) -> ToolHub {
    let tool = |name: &str| {
        let rest = Rest::get(server.url(&format!("/{name}"))).allow_host("127.0.0.1").upstreams(&Upstreams::new());
        rest.session(session).tool_with(name, any_object_schema())
    };
    let builder = ToolHub::builder().shared_store(store.clone());
    ["login", "logout", "me"].iter().fold(builder, |builder, name| builder.tool(tool(name))).build().await.unwrap()
}

async fn call_in_thread(hub: &ToolHub, tool: &str, thread: &str, arguments: Value) -> Value {
    hub.call(tool, arguments).thread(thread).await.assert_success().clone()
}

#[tokio::test]
async fn each_thread_has_a_session_of_its_own_that_its_tools_share_and_a_restart_keeps() {
    let (server, store) = (login_service().await, Arc::new(Memory::new()));
    let first = hub(&server, &store, true).await;
    assert_eq!(
        call_in_thread(&first, "login", "t1", json!({"name": "ann"})).await,
        json!("user=ann"),
        "the cookie is sent with the redirected request"
    );
    assert_eq!(call_in_thread(&first, "login", "t2", json!({"name": "bob"})).await, json!("user=bob"));
    assert_eq!(call_in_thread(&first, "me", "t1", json!({})).await, json!("user=ann"));
    assert_eq!(call_in_thread(&first, "me", "t3", json!({})).await, json!(""));
    drop(first);
    let second = hub(&server, &store, true).await;
    assert_eq!(call_in_thread(&second, "me", "t2", json!({})).await, json!("user=bob"));
    call_in_thread(&second, "logout", "t2", json!({})).await;
    assert_eq!(call_in_thread(&second, "me", "t2", json!({})).await, json!(""));
    assert_eq!(call_in_thread(&second, "me", "t1", json!({})).await, json!("user=ann"));
}

#[tokio::test]
async fn a_call_without_a_thread_gets_one_and_without_sessions_nothing_is_kept() {
    let (server, store) = (login_service().await, Arc::new(Memory::new()));
    let with = hub(&server, &store, true).await;
    let outcome = with.call("login", json!({"name": "ann"})).await;
    outcome.assert_success();
    let thread = outcome.thread.unwrap();
    assert_eq!(call_in_thread(&with, "me", thread.as_str(), json!({})).await, json!("user=ann"));
    let without = hub(&server, &Arc::new(Memory::new()), false).await;
    assert_eq!(call_in_thread(&without, "login", "t1", json!({"name": "ann"})).await, json!(""));
    assert_eq!(call_in_thread(&without, "me", "t1", json!({})).await, json!(""));
}

#[tokio::test]
async fn what_is_known_of_the_connection_is_state_of_the_thread() {
    let (server, store) = (login_service().await, Arc::new(Memory::new()));
    let hub = hub(&server, &store, true).await;
    call_in_thread(&hub, "login", "t1", json!({"name": "ann"})).await;
    let stored = async |context: &str, kind| {
        hub.state().get_state(&Tenant::default(), &context.parse().unwrap(), kind).await.unwrap()
    };
    let connection = stored("t1/login", StateKind::Connection).await.unwrap().data;
    assert_eq!((&connection["sessionActive"], &connection["errorCount"]), (&json!(true), &json!(0)));
    assert_eq!(connection["active"], false);
    let cookies = stored(&format!("t1/cookies:{}", server.address), StateKind::Cache).await.unwrap();
    assert!(cookies.expires.is_some(), "stored cookies must expire");
    let sealed = cookies.data["cookies"].as_str().unwrap();
    assert!(sealed.starts_with("sealed:") && !sealed.contains("ann"), "{sealed}");
}

#[tokio::test]
async fn calls_of_one_thread_that_end_together_lose_no_cookie() {
    let server = Server::new(|seen| {
        let name = seen.target.split('=').next_back().unwrap().to_owned();
        let set = format!("c{name}=1; Path=/");
        Response::builder()
            .header("set-cookie", set)
            .header("content-type", "text/plain")
            .body(Default::default())
            .unwrap()
    })
    .await;
    let store = Arc::new(Memory::new());
    let hub = hub(&server, &store, true).await;
    let calls: Vec<_> = (0..20).map(|at| hub.call("me", json!({"n": at})).thread("t1").start()).collect();
    for call in calls {
        call.await.assert_success();
    }
    call_in_thread(&hub, "me", "t1", json!({"n": 0})).await;
    let sent = server.requests().pop().unwrap();
    assert_eq!(sent.header("cookie").split("; ").count(), 20, "{}", sent.header("cookie"));
}

/// Resolves every host to this machine.
struct LoopbackResolver;

impl Resolve for LoopbackResolver {
    fn resolve<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async { Ok(vec![IpAddr::from([127, 0, 0, 1])]) })
    }
}

#[tokio::test]
async fn hosts_whose_names_are_alike_have_sessions_of_their_own() {
    let server = login_service().await;
    let (port, long) = (server.address.port(), ["x"; 3].map(|x| x.repeat(50)).join("."));
    for (one, other) in [
        (format!("{long}.one.example"), format!("{long}.two.example")),
        ("a!b.example".into(), "a$b.example".into()),
        ("a!b.example".into(), "a_b.example".into()),
    ] {
        let tool = |name: &str, host: &str| {
            let rest = Rest::get(format!("http://{host}:{port}/{name}")).allow_host(host).session(true);
            rest.upstreams(&Upstreams::with_resolver(LoopbackResolver)).tool_with(name, any_object_schema())
        };
        let hub = ToolHub::builder().tool(tool("login", &one)).tool(tool("me", &other)).build().await.unwrap();
        assert_eq!(call_in_thread(&hub, "login", "t", json!({"name": "ann"})).await, json!("user=ann"), "{one}");
        assert_eq!(call_in_thread(&hub, "me", "t", json!({})).await, json!(""), "{other}");
    }
}

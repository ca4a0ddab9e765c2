//! The address guard (SSRF): no connection is ever made to a forbidden address. A listener that must get no connections proves it.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use hyper::Response;
use serde_json::json;
use tokio::net::TcpListener;
use toolhub_connect::rest::{Redirects, Resolve, Rest, Upstreams};
use toolhub_core::{BoxFuture, ConnectionStateConfig, Effect, ErrorKind, testing::AssertOutcome};

use super::support::{Server, call, hub, json_ok};

/// A public address, as far as the guard is concerned, that is unassigned and not routed.
const UNROUTABLE: &str = "3ffe::1";

/// A listener that counts connections.
struct Canary {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Canary {
    async fn new() -> Self {
        // On all addresses of both versions, where the machine has both.
        let listener = match TcpListener::bind("[::]:0").await {
            Ok(both) => both,
            Err(_) => TcpListener::bind("0.0.0.0:0").await.unwrap(),
        };
        let (address, connections) = (listener.local_addr().unwrap(), Arc::<AtomicUsize>::default());
        let count = connections.clone();
        tokio::spawn(async move {
            while listener.accept().await.is_ok() {
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self { address, connections }
    }

    #[track_caller]
    fn assert_no_connections(&self) {
        assert_eq!(self.connections.load(Ordering::Relaxed), 0, "a connection was made");
    }
}

/// A resolver that returns one result after the other, and then repeats the last one.
struct ScriptedResolver(Vec<Vec<&'static str>>, AtomicUsize);

impl Resolve for ScriptedResolver {
    fn resolve<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        let at = self.1.fetch_add(1, Ordering::Relaxed).min(self.0.len() - 1);
        let found = self.0[at].iter().map(|text| text.parse().unwrap()).collect();
        Box::pin(async move { Ok(found) })
    }
}

fn scripted_upstreams(answers: &[&[&'static str]]) -> Upstreams {
    Upstreams::with_resolver(ScriptedResolver(
        answers.iter().map(|answer| answer.to_vec()).collect(),
        AtomicUsize::new(0),
    ))
}

/// A short connect timeout, for attempts to reach the internet.
fn fast_fail_config() -> ConnectionStateConfig {
    ConnectionStateConfig { connect_timeout: Duration::from_millis(200), retry_attempts: 1, ..Default::default() }
}

async fn assert_refused(rest: Rest) {
    let hub = hub(rest.connection(fast_fail_config())).await;
    let outcome = call(&hub, json!({})).await;
    let text = outcome.assert_effect(Effect::None).assert_error(ErrorKind::ToolRefused);
    assert!(text.contains("may not be reached"), "{text}");
    let error = outcome.error.unwrap();
    assert!(error.operator.contains("allow_hosts"), "{}", error.operator);
    assert!(!error.counts, "a refusal counts against the service");
    assert!(
        !text.contains("127.0.0.1") && !text.contains("allow_hosts"),
        "the model text contains operator details: {text}"
    );
}

#[tokio::test]
async fn no_spelling_of_an_address_that_is_not_of_the_open_internet_is_connected_to() {
    let canary = Canary::new().await;
    let port = canary.address.port();
    for host in [
        "127.0.0.1",
        "127.1",
        "127.255.255.254",
        "2130706433",
        "017700000001",
        "0177.0.0.1",
        "0x7f000001",
        "0x7f.1",
        "0x7f.0.0.0x1",
        "0.0.0.0",
        "0",
        "localhost",
        "LOCALHOST.",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[64:ff9b::127.0.0.1]",
        "[64:ff9b:1::7f00:1]",
        "[2002:7f00:1::]",
        "[::ffff:0:127.0.0.1]",
        "%31%32%37.0.0.1",
        "①②⑦.0.0.1",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.0.1",
        "100.64.0.1",
        "169.254.169.254",
        "[fd00:ec2::254]",
        "[fe80::1]",
        "224.0.0.1",
        "255.255.255.255",
        "2852039166",
        "192.0.2.1",
    ] {
        let url = format!("http://{host}:{port}/x");
        assert_refused(Rest::get(&url).upstreams(&Upstreams::new())).await;
        assert_refused(Rest::post(&url).upstreams(&Upstreams::new())).await;
    }
    canary.assert_no_connections();
}

#[tokio::test]
async fn the_address_that_is_looked_at_is_the_one_that_is_connected_to() {
    let canary = Canary::new().await;
    let url = format!("http://names.example:{}/x", canary.address.port());
    for private in
        [&["127.0.0.1"][..], &["10.0.0.1", "127.0.0.1"], &["::ffff:127.0.0.1"], &["::1"], &["64:ff9b::7f00:1"]]
    {
        assert_refused(Rest::get(&url).upstreams(&scripted_upstreams(&[private]))).await;
    }
    // DNS rebinding: the name resolves to a public address first and to a private one next. The first attempt fails to connect.
    let config = fast_fail_config();
    let rebinding = Rest::get(&url).upstreams(&scripted_upstreams(&[&[UNROUTABLE], &["127.0.0.1"]])).connection(config);
    let hub = hub(rebinding).await;
    let first = call(&hub, json!({})).await;
    assert!(!first.is_success());
    let second = call(&hub, json!({})).await;
    second.assert_error(ErrorKind::ToolRefused);
    canary.assert_no_connections();
}

#[tokio::test]
async fn of_many_addresses_only_those_that_may_be_reached_are_tried() {
    let canary = Canary::new().await;
    let url = format!("http://mixed.example:{}/x", canary.address.port());
    let rest =
        Rest::get(&url).upstreams(&scripted_upstreams(&[&["127.0.0.1", UNROUTABLE]])).connection(fast_fail_config());
    let hub = hub(rest).await;
    let outcome = call(&hub, json!({})).await;
    assert!(matches!(outcome.error_kind(), Some(ErrorKind::UpstreamUnreachable | ErrorKind::Timeout)), "{outcome:?}");
    canary.assert_no_connections();
}

#[tokio::test]
async fn a_redirect_is_looked_at_like_the_first_address() {
    let canary = Canary::new().await;
    for (to, redirects) in [
        (format!("http://127.0.0.1:{}/", canary.address.port()), Redirects::To(vec!["127.0.0.1".into()])),
        (format!("http://2130706433:{}/", canary.address.port()), Redirects::To(vec!["127.0.0.1".into()])),
        (
            format!("http://[::ffff:127.0.0.1]:{}/", canary.address.port()),
            Redirects::To(vec!["::ffff:127.0.0.1".into()]),
        ),
        (format!("//127.0.0.1:{}/", canary.address.port()), Redirects::SameHost),
        (format!("http://other.example:{}/", canary.address.port()), Redirects::SameHost),
        ("file:///etc/passwd".to_owned(), Redirects::SameHost),
        ("gopher://front.example:1/".to_owned(), Redirects::SameHost),
    ] {
        let server = Server::new(move |_| {
            Response::builder().status(302).header("location", &to).body(Default::default()).unwrap()
        })
        .await;
        // Allowing the first host by name does not allow the target of its redirect.
        let rest = Rest::get(format!("http://front.example:{}/", server.address.port()))
            .allow_host("front.example")
            .upstreams(&scripted_upstreams(&[&["127.0.0.1"]]))
            .redirects(redirects)
            .connection(fast_fail_config());
        let hub = hub(rest).await;
        let outcome = call(&hub, json!({})).await;
        outcome.assert_error(ErrorKind::ToolRefused);
        assert_eq!(server.requests().len(), 1);
    }
    canary.assert_no_connections();
}

#[tokio::test]
async fn a_host_may_be_allowed_by_name_and_by_port() {
    let server = Server::new(|_| json_ok(json!("in"))).await;
    let url = format!("http://inside.example:{}/", server.address.port());
    let may = format!("inside.example:{}", server.address.port());
    let inside = || scripted_upstreams(&[&["127.0.0.1"]]);
    for allowed in ["inside.example", "INSIDE.example", may.as_str()] {
        let hub = hub(Rest::get(&url).allow_host(allowed).upstreams(&inside())).await;
        assert_eq!(call(&hub, json!({})).await.assert_success(), &json!("in"), "{allowed}");
    }
    for other in ["127.0.0.1", "example", "inside.example:1", "nside.example"] {
        assert_refused(Rest::get(&url).allow_host(other).upstreams(&inside())).await;
    }
}

#[tokio::test]
async fn a_tool_that_may_not_reach_a_host_does_not_use_the_connections_of_one_that_may() {
    let server = Server::new(|_| json_ok(json!("in"))).await;
    let shared = scripted_upstreams(&[&["127.0.0.1"]]);
    let url = format!("http://inside.example:{}/", server.address.port());
    let may = hub(Rest::get(&url).allow_host("inside.example").upstreams(&shared)).await;
    call(&may, json!({})).await.assert_success();
    assert_refused(Rest::get(&url).upstreams(&shared)).await;
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn no_proxy_of_the_environment_is_asked() {
    // A test cannot change the environment of its own process, so it runs itself in a child process.
    if std::env::var_os("REST_PROXY_CHILD").is_some() {
        let server = Server::new(|_| json_ok(json!("straight"))).await;
        let hub = hub(super::support::allow_local(Rest::get(server.url("/")))).await;
        assert_eq!(call(&hub, json!({})).await.assert_success(), &json!("straight"));
        return;
    }
    let canary = Canary::new().await;
    let proxy = format!("http://127.0.0.1:{}", canary.address.port());
    let child = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "rest::address_guard::no_proxy_of_the_environment_is_asked"])
        .env("REST_PROXY_CHILD", "1")
        .envs(["http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"].map(|name| (name, proxy.as_str())))
        .output()
        .await
        .unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
    assert!(String::from_utf8_lossy(&child.stdout).contains("1 passed"));
    canary.assert_no_connections();
}

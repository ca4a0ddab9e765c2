//! The effect of each field of `ConnectionStateConfig`.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::{Barrier, Semaphore},
};
use toolhub_connect::rest::{Body, Rest, Upstreams};
use toolhub_core::{ConnectionStateConfig, Effect, ErrorKind, Outcome, Policy, Retry, ToolHub, testing::AssertOutcome};

use super::support::{Server, allow_local, any_object_schema, call, hub, json_ok, raw_server, wait_until};

const SHORT_TIMEOUT: Duration = Duration::from_millis(100);

/// The default config without retries.
fn no_retry_config() -> ConnectionStateConfig {
    ConnectionStateConfig { retry_attempts: 1, ..Default::default() }
}

/// A server whose responses each wait for a permit of the semaphore.
async fn gated_server() -> (Server, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(0));
    let permits = gate.clone();
    let server = Server::with_async_handler(move |_| {
        let gate = gate.clone();
        Box::pin(async move {
            gate.acquire().await.unwrap().forget();
            json_ok(json!("done"))
        })
    })
    .await;
    (server, permits)
}

/// A server that responds only when this many requests are in flight.
async fn barrier_server(count: usize) -> Server {
    let barrier = Arc::new(Barrier::new(count));
    Server::with_async_handler(move |_| {
        let barrier = barrier.clone();
        Box::pin(async move {
            barrier.wait().await;
            json_ok(json!("done"))
        })
    })
    .await
}

async fn call_concurrently(hub: &ToolHub, count: usize) -> Vec<Outcome> {
    let calls: Vec<_> = (0..count).map(|_| call(hub, json!({})).start()).collect();
    let mut outcomes = Vec::new();
    for call in calls {
        outcomes.push(call.await);
    }
    outcomes
}

#[tokio::test]
async fn a_call_that_finds_no_connection_free_in_time_is_overloaded() {
    let (server, gate) = gated_server().await;
    let config =
        ConnectionStateConfig { pool_size: 1, max_overflow: 0, pool_timeout: SHORT_TIMEOUT, ..no_retry_config() };
    // Two tools of one service share a pool.
    let shared = Upstreams::new();
    let tool = |name: &str, path: &str| {
        let rest = Rest::post(server.url(path)).allow_host("127.0.0.1").upstreams(&shared);
        rest.connection(config.clone()).tool_with(name, any_object_schema())
    };
    let hub = ToolHub::builder().tool(tool("one", "/one")).tool(tool("two", "/two")).build().await.unwrap();
    let first = hub.call("one", json!({})).start();
    wait_until(|| server.requests().len() == 1).await;
    let second = hub.call("two", json!({})).await;
    second.assert_effect(Effect::None).assert_error(ErrorKind::Overloaded);
    assert!(second.error.unwrap().operator.contains("100ms"));
    gate.add_permits(2);
    first.await.assert_success();
    hub.call("two", json!({})).await.assert_success();
    assert_eq!((server.requests().len(), server.connections()), (2, 1));
}

#[tokio::test]
async fn as_many_requests_run_at_once_as_the_pool_and_its_overflow_hold_and_the_pool_is_kept() {
    let server = barrier_server(3).await;
    let config =
        ConnectionStateConfig { pool_size: 1, max_overflow: 2, pool_timeout: SHORT_TIMEOUT, ..no_retry_config() };
    let hub = hub(allow_local(Rest::get(server.url("/"))).connection(config)).await;
    for outcome in call_concurrently(&hub, 3).await {
        outcome.assert_success();
    }
    assert_eq!(server.connections(), 3);
    // The two overflow connections were closed; the next three calls need two new ones.
    wait_until(|| server.closed.load(Ordering::Relaxed) == 2).await;
    for outcome in call_concurrently(&hub, 3).await {
        outcome.assert_success();
    }
    assert_eq!(server.connections(), 5);
}

#[tokio::test]
async fn connections_are_used_again() {
    let server = Server::echo().await;
    let hub = hub(allow_local(Rest::get(server.url("/")))).await;
    for _ in 0..20 {
        call(&hub, json!({})).await.assert_success();
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn without_keep_alive_every_request_has_a_connection_of_its_own() {
    let server = Server::echo().await;
    let hub = hub(allow_local(Rest::get(server.url("/")))
        .connection(ConnectionStateConfig { keep_alive: false, ..no_retry_config() }))
    .await;
    for _ in 0..3 {
        call(&hub, json!({})).await.assert_success();
    }
    assert_eq!(server.connections(), 3);
    wait_until(|| server.closed.load(Ordering::Relaxed) == 3).await;
}

#[tokio::test]
async fn a_connection_that_nobody_uses_is_closed_after_its_time() {
    let server = Server::echo().await;
    let quick = ConnectionStateConfig { keep_alive_timeout: SHORT_TIMEOUT, ..no_retry_config() };
    let hub = hub(allow_local(Rest::get(server.url("/"))).connection(quick)).await;
    call(&hub, json!({})).await.assert_success();
    wait_until(|| server.closed.load(Ordering::Relaxed) == 1).await;
    call(&hub, json!({})).await.assert_success();
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn a_connection_that_is_too_old_is_made_anew() {
    let server = Server::echo().await;
    let recycled = ConnectionStateConfig { pool_recycle: Duration::ZERO, ..no_retry_config() };
    let hub = hub(allow_local(Rest::get(server.url("/"))).connection(recycled)).await;
    for _ in 0..3 {
        call(&hub, json!({})).await.assert_success();
    }
    assert_eq!(server.connections(), 3);
}

/// The kernel timers of this machine's connections to a port: kind, and remaining seconds.
#[cfg(target_os = "linux")]
fn kernel_timer(port: u16) -> Vec<(String, f64)> {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let to_port = rows.filter(|row| row[2].ends_with(&format!(":{port:04X}")) && row[3] == "01");
    to_port
        .map(|row| {
            let (kind, remaining) = row[5].split_once(':').unwrap();
            (kind.to_owned(), f64::from(u32::from_str_radix(remaining, 16).unwrap()) / 100.0)
        })
        .collect()
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_connection_that_is_kept_is_asked_at_the_interval_whether_it_still_works() {
    let call_once = async |keep_alive: bool, interval: u64| {
        let server = Server::echo().await;
        let keep_alive_interval = Duration::from_secs(interval);
        let config = ConnectionStateConfig { keep_alive, keep_alive_interval, ..no_retry_config() };
        let hub = hub(allow_local(Rest::get(server.url("/"))).connection(config)).await;
        call(&hub, json!({})).await.assert_success();
        (server, hub)
    };
    for (interval, from, to) in [(500, 100.0, 500.0), (60, 0.0, 60.0)] {
        let (server, _hub) = call_once(true, interval).await;
        // Another timer may be active briefly, and the kernel's table may miss a row while others change.
        wait_until(|| matches!(&kernel_timer(server.address.port())[..], [(kind, remaining)] if kind == "02" && *remaining > from && *remaining <= to)).await;
    }
    let (server, _hub) = call_once(false, 60).await;
    assert!(kernel_timer(server.address.port()).iter().all(|(kind, _)| kind != "02"));
}

/// Makes a call that must time out; returns its operator text.
async fn expect_timeout(rest: Rest, config: ConnectionStateConfig, arguments: Value, effect: Effect) -> String {
    let hub = hub(allow_local(rest).connection(config)).await;
    let outcome = call(&hub, arguments).await;
    outcome.assert_effect(effect).assert_error(ErrorKind::Timeout);
    outcome.error.unwrap().operator
}

#[tokio::test]
async fn a_service_that_does_not_connect_in_time_is_given_up() {
    // It accepts the connection, and never answers the TLS handshake.
    let address = raw_server(|stream| async move {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    let rest = Rest::post(format!("https://{address}/")).ca_file(&super::tls::test_ca().1);
    let config = ConnectionStateConfig { connect_timeout: SHORT_TIMEOUT, ..no_retry_config() };
    let error = expect_timeout(rest, config, json!({}), Effect::None).await;
    assert!(error.contains("connect timeout: no connection within 100ms"), "{error}");
}

#[tokio::test]
async fn a_service_that_takes_no_bytes_is_given_up() {
    let address = raw_server(|stream| async move {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    let rest = Rest::post(format!("http://{address}/")).body(Body::Text("{text}".into()));
    let config = ConnectionStateConfig { write_timeout: SHORT_TIMEOUT, ..no_retry_config() };
    let large = json!({"text": "x".repeat(16 * 1024 * 1024)});
    let error = expect_timeout(rest, config, large, Effect::Unknown).await;
    assert!(error.contains("write timeout: the service accepted no bytes for 100ms"), "{error}");
}

#[tokio::test]
async fn a_service_that_falls_silent_is_given_up() {
    let heads = ["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"];
    for head in heads {
        let address = raw_server(move |mut stream| async move {
            let _ = stream.read(&mut [0; 1024]).await;
            let _ = stream.write_all(head.as_bytes()).await;
            std::future::pending::<()>().await;
        })
        .await;
        let config = ConnectionStateConfig { read_timeout: SHORT_TIMEOUT, ..no_retry_config() };
        let error = expect_timeout(Rest::post(format!("http://{address}/")), config, json!({}), Effect::Unknown).await;
        assert!(error.contains("read timeout: the service sent no bytes for 100ms"), "{error}");
    }
}

#[tokio::test]
async fn a_service_that_goes_on_and_on_is_given_up() {
    let address = raw_server(|mut stream| async move {
        let _ = stream.read(&mut [0; 1024]).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 999999\r\n\r\n").await;
        while stream.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let config = ConnectionStateConfig { timeout: Duration::from_millis(300), ..no_retry_config() };
    let error = expect_timeout(Rest::post(format!("http://{address}/")), config, json!({}), Effect::Unknown).await;
    assert!(error.contains("request timeout: not completed within 300ms"), "{error}");
}

#[tokio::test]
async fn a_request_is_tried_as_often_as_its_connection_says_where_that_is_safe() {
    let attempts_made = async |method: &str, attempts: u32| {
        let count = Arc::new(AtomicUsize::new(0));
        let counts = count.clone();
        let server = Server::new(move |_| {
            counts.fetch_add(1, Ordering::Relaxed);
            super::support::http_response(503, "text/plain", "down")
        })
        .await;
        let retry_delay = Duration::from_millis(1);
        let config = ConnectionStateConfig { retry_attempts: attempts, retry_delay, ..Default::default() };
        let hub = hub(allow_local(Rest::new(method, server.url("/"))).connection(config)).await;
        call(&hub, json!({})).await.assert_error(ErrorKind::UpstreamError);
        count.load(Ordering::Relaxed)
    };
    assert_eq!(
        (attempts_made("GET", 3).await, attempts_made("GET", 2).await, attempts_made("PUT", 3).await),
        (3, 2, 3)
    );
    assert_eq!(attempts_made("POST", 3).await, 1, "the effect of a POST is unknown");
    // A policy that matches the tool by name applies if the connection sets no retries.
    let server = Server::new(|_| super::support::http_response(503, "text/plain", "down")).await;
    let once = Policy { retry: Some(Retry { attempts: 1, ..Retry::default() }), ..Policy::default() };
    let tool = allow_local(Rest::get(server.url("/"))).tool_with("it", any_object_schema());
    let hub = ToolHub::builder().policy("it", once).tool(tool).build().await.unwrap();
    call(&hub, json!({})).await.assert_error(ErrorKind::UpstreamError);
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_request_whose_time_is_up_is_tried_again_within_the_time_of_the_call() {
    let count = Arc::new(AtomicUsize::new(0));
    let counts = count.clone();
    let server = Server::with_async_handler(move |_| {
        // No response to the first two requests.
        let silent = counts.fetch_add(1, Ordering::Relaxed) < 2;
        Box::pin(async move {
            if silent {
                std::future::pending::<()>().await;
            }
            json_ok(json!("at last"))
        })
    })
    .await;
    let retry_delay = Duration::from_millis(1);
    let config = ConnectionStateConfig { read_timeout: Duration::from_secs(1), retry_delay, ..Default::default() };
    let hub = hub(allow_local(Rest::get(server.url("/"))).connection(config)).await;
    assert_eq!(call(&hub, json!({})).await.assert_success(), &json!("at last"));
    assert_eq!(count.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn a_longer_time_for_requests_is_a_longer_time_for_calls() {
    let server = Server::echo().await;
    let limits = |timeout: u64| {
        let config = ConnectionStateConfig { timeout: Duration::from_secs(timeout), ..no_retry_config() };
        let rest = allow_local(Rest::get(server.url("/"))).connection(config);
        async move { hub(rest).await.get("it").unwrap().limits().clone() }
    };
    assert_eq!(limits(120).await.timeout, Duration::from_secs(120));
    assert_eq!(limits(5).await.timeout, Duration::from_secs(30));
}

#[tokio::test]
async fn an_answer_nobody_asked_for_is_nobodys_answer() {
    let address = raw_server(|mut stream| async move {
        let mut request = [0; 4096];
        let answer = |text: &str| format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{text}", text.len());
        let mut first = answer("mine");
        while let Ok(1..) = stream.read(&mut request).await {
            // An unsolicited response, to be taken for that to the next request.
            first += &answer("poison");
            if stream.write_all(first.as_bytes()).await.is_err() {
                return;
            }
            first = answer("mine");
        }
    })
    .await;
    let hub = hub(allow_local(Rest::get(format!("http://{address}/")))).await;
    for _ in 0..20 {
        assert_eq!(call(&hub, json!({})).await.assert_success(), &json!("mine"));
    }
}

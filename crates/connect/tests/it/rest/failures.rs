//! The error kind, effect and texts of each failure.

use std::time::Duration;

use hyper::Response;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use toolhub_connect::rest::{Auth, Resolve, Rest, Secret, Upstreams};
use toolhub_core::{
    BoxFuture, CallError, ConnectionStateConfig, Effect, ErrorKind, TraceContext, ids::Caller, testing::AssertOutcome,
};

use super::support::{Server, allow_local, call, http_response, hub, json_ok, raw_server};

fn no_retry_config() -> ConnectionStateConfig {
    ConnectionStateConfig { retry_attempts: 1, ..Default::default() }
}

async fn error_for_status(code: u16, body: &'static str, kind: ErrorKind, effect: Effect) -> CallError {
    let server = Server::new(move |_| http_response(code, "application/json", body)).await;
    let hub = hub(allow_local(Rest::post(server.url("/"))).connection(no_retry_config())).await;
    let outcome = call(&hub, json!({})).await;
    outcome.assert_effect(effect).assert_error(kind);
    outcome.error.unwrap()
}

#[tokio::test]
async fn each_status_has_its_row_in_the_table() {
    for code in [400, 401, 403, 404, 409, 410, 422, 451] {
        let error =
            error_for_status(code, r#"{"detail": "the city is unknown"}"#, ErrorKind::ToolRefused, Effect::None).await;
        assert!(!error.counts && !error.retryable && error.refused, "{code}");
        assert!(
            error.model.contains(&code.to_string()) && error.model.contains("the city is unknown"),
            "{}",
            error.model
        );
    }
    for code in [408, 429] {
        let error = error_for_status(code, "", ErrorKind::ToolError, Effect::None).await;
        assert!(!error.counts && error.retryable, "{code}");
    }
    for code in [500, 501, 502, 503, 504, 599] {
        let error =
            error_for_status(code, r#"{"trace": "line 7 of secret.py"}"#, ErrorKind::UpstreamError, Effect::Unknown)
                .await;
        assert!(error.counts && error.retryable, "{code}");
        assert!(
            error.operator.contains("secret.py") && error.operator.contains(&code.to_string()),
            "{}",
            error.operator
        );
        assert!(!error.model.contains("secret.py"), "the body of a 5xx is for operators only");
    }
    for code in [300, 304, 305] {
        error_for_status(code, "", ErrorKind::ToolRefused, Effect::None).await;
    }
    for code in [301, 302, 303] {
        error_for_status(code, "", ErrorKind::ToolRefused, Effect::Unknown).await;
    }
}

#[tokio::test]
async fn a_service_that_asks_for_time_gets_it() {
    let server =
        Server::new(|_| Response::builder().status(429).header("retry-after", "7").body(Default::default()).unwrap())
            .await;
    let hub = hub(allow_local(Rest::get(server.url("/"))).connection(no_retry_config())).await;
    let error = call(&hub, json!({})).await.error.unwrap();
    assert_eq!(error.retry_after, Some(Duration::from_secs(7)));
    let server = Server::new(|_| {
        Response::builder().status(503).header("retry-after", "3600").body(Default::default()).unwrap()
    })
    .await;
    let hub = super::support::hub(allow_local(Rest::get(server.url("/")))).await;
    let error = call(&hub, json!({})).await.error.unwrap();
    assert_eq!(error.retry_after, Some(Duration::from_secs(3600)));
    assert_eq!(server.requests().len(), 1, "no retry within the call, since the service asked for an hour");
}

/// A resolver that finds no host.
struct FailingResolver;

impl Resolve for FailingResolver {
    fn resolve<'a>(&'a self, _: &'a str) -> BoxFuture<'a, std::io::Result<Vec<std::net::IpAddr>>> {
        Box::pin(async { Err(std::io::Error::other("unknown host")) })
    }
}

#[tokio::test]
async fn a_request_that_never_left_has_done_nothing() {
    let closed_port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for url in [format!("http://{closed_port}/"), "http://no-such-host.invalid/".to_owned()] {
        let rest = allow_local(Rest::post(url))
            .upstreams(&Upstreams::with_resolver(FailingResolver))
            .connection(no_retry_config());
        let hub = hub(rest).await;
        let outcome = call(&hub, json!({})).await;
        outcome.assert_effect(Effect::None).assert_error(ErrorKind::UpstreamUnreachable);
        let error = outcome.error.unwrap();
        assert!(error.counts && error.retryable);
        assert!(!error.model.contains("127.0.0.1") && !error.model.contains("no-such-host"), "{}", error.model);
    }
}

#[tokio::test]
async fn a_caller_in_a_hurry_who_leaves_before_anything_was_sent_has_done_nothing() {
    let address = raw_server(|stream| async move {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    let hub = hub(allow_local(Rest::post(format!("https://{address}/")).ca_file(&super::tls::test_ca().1))).await;
    let outcome = call(&hub, json!({})).timeout(Duration::from_millis(50)).await;
    outcome.assert_effect(Effect::None).assert_error(ErrorKind::Timeout);
    assert!(!outcome.error.unwrap().counts);
}

#[tokio::test]
async fn a_service_that_breaks_off_or_talks_nonsense_has_perhaps_done_it() {
    for response in [
        "",
        "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        "SSH-2.0-OpenSSH_9.6\r\n",
        "HTTP/1.1 999999 ?\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nx",
    ] {
        let address = raw_server(move |mut stream| async move {
            let _ = stream.read(&mut [0; 1024]).await;
            let _ = stream.write_all(response.as_bytes()).await;
        })
        .await;
        let hub = hub(allow_local(Rest::post(format!("http://{address}/"))).connection(no_retry_config())).await;
        let outcome = call(&hub, json!({})).await;
        outcome.assert_effect(Effect::Unknown).assert_error(ErrorKind::UpstreamError);
    }
}

#[tokio::test]
async fn a_head_that_never_ends_is_not_read_for_ever() {
    let address = raw_server(|mut stream| async move {
        let _ = stream.read(&mut [0; 1024]).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n").await;
        while stream.write_all(format!("x-more: {}\r\n", "y".repeat(1000)).as_bytes()).await.is_ok() {}
    })
    .await;
    let hub = hub(allow_local(Rest::get(format!("http://{address}/"))).connection(no_retry_config())).await;
    call(&hub, json!({})).await.assert_error(ErrorKind::UpstreamError);
}

#[tokio::test]
async fn a_connection_that_was_closed_while_it_was_kept_is_no_failure() {
    // Each connection serves one request, and is closed without a response when it is used again.
    let address = raw_server(|mut stream| async move {
        let _ = stream.read(&mut [0; 1024]).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n42").await;
        let _ = stream.read(&mut [0; 1024]).await;
    })
    .await;
    let hub = hub(allow_local(Rest::get(format!("http://{address}/"))).connection(no_retry_config())).await;
    for _ in 0..5 {
        assert_eq!(call(&hub, json!({})).await.assert_success(), &json!("42"));
    }
}

#[tokio::test]
async fn a_call_that_is_cancelled_closes_its_connection() {
    let server = Server::with_async_handler(|_| Box::pin(std::future::pending())).await;
    let hub = hub(allow_local(Rest::post(server.url("/")))).await;
    let running = call(&hub, json!({})).start();
    super::support::wait_until(|| server.requests().len() == 1).await;
    running.cancel();
    running.await.assert_error(ErrorKind::Cancelled);
    super::support::wait_until(|| server.closed.load(std::sync::atomic::Ordering::Relaxed) == 1).await;
}

#[tokio::test]
async fn secrets_are_in_no_error_and_in_no_description() {
    const SECRET: &str = "hunter2&canary";
    // Verbatim, in a header of basic authentication, and in a query.
    const SENT: [&str; 3] = [SECRET, "dTpodW50ZXIyJmNhbmFyeQ==", "hunter2%26canary"];
    for code in [200, 400, 401, 429, 500] {
        // A server that echoes all secrets.
        let server = Server::new(move |seen| {
            let echo = format!("{} {} {}", seen.target, seen.header("authorization"), seen.header("x-key"));
            http_response(
                code,
                "application/json",
                json!({"error": echo, "access_token": SECRET, SECRET: 1}).to_string(),
            )
        })
        .await;
        let secret = || Secret::literal(SECRET);
        for auth in [Auth::bearer(secret()), Auth::query_key("key", secret()), Auth::basic("u", secret())] {
            let rest = allow_local(Rest::get(server.url("/")))
                .auth(auth)
                .secret_header("X-Key", secret())
                .connection(no_retry_config());
            let debug = format!("{rest:?}");
            let hub = hub(rest).await;
            let outcome = call(&hub, json!({})).await;
            let serialized = serde_json::to_string(&outcome).unwrap();
            let texts = format!("{debug} {outcome:?} {serialized} {:?}", hub.get("it").unwrap().definition);
            assert!(SENT.iter().all(|sent| !texts.contains(sent)), "{texts}");
            assert!(code == 401 || code == 400 || texts.contains("••••"), "the excerpt is missing: {texts}");
        }
    }
}

#[tokio::test]
async fn the_key_and_the_trace_of_a_call_go_along_and_nothing_of_its_caller() {
    let server = Server::new(|_| json_ok(json!(1))).await;
    let hub = hub(allow_local(Rest::post(server.url("/")))).await;
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let context = TraceContext::parse(trace).unwrap().with_state("vendor=1");
    let request =
        call(&hub, json!({})).idempotency_key("pay-7").caller(Caller::new("canary-caller").unwrap()).trace(context);
    request.await.assert_success();
    let seen = server.single_request();
    let headers = (seen.header("idempotency-key"), seen.header("traceparent"), seen.header("tracestate"));
    assert_eq!(headers, ("pay-7", trace, "vendor=1"));
    assert!(!format!("{seen:?}").contains("canary-caller"));
    let names: Vec<&str> = seen.headers.keys().map(hyper::header::HeaderName::as_str).collect();
    assert!(!names.contains(&"authorization") && !names.contains(&"cookie"), "{names:?}");
}

#[tokio::test]
async fn arguments_too_long_for_an_address_say_nothing_against_the_service() {
    let server = Server::echo().await;
    let hub = hub(allow_local(Rest::get(server.url("/{id}")))).await;
    let long = "x".repeat(70_000);
    for arguments in [json!({"id": long}), json!({"id": 1, "q": long}), json!({"id": 2, "q": long, "r": 1})] {
        let outcome = call(&hub, arguments).await;
        outcome.assert_effect(Effect::None).assert_error(ErrorKind::ToolRefused);
        let error = outcome.error.unwrap();
        assert!(!error.counts && error.model.contains("too long"), "{error:?}");
    }
    call(&hub, json!({"id": 1})).await.assert_success();
}

#[tokio::test]
async fn a_secret_is_hidden_however_a_service_writes_it() {
    for (auth, body) in [
        (Auth::bearer(Secret::literal(r#"back\slash"quote"#)), json!({"error": r#"no such key: back\slash"quote"#})),
        (Auth::basic("me", Secret::literal("hunter2")), json!({"error": "wrong word hunter2 of me"})),
        (Auth::query_key("k", Secret::literal("a b+c/d")), json!({"error": "bad query k=a+b%2Bc%2Fd"})),
    ] {
        let server = Server::new(move |_| http_response(400, "application/json", body.to_string())).await;
        let hub = hub(allow_local(Rest::get(server.url("/"))).auth(auth)).await;
        let error = call(&hub, json!({})).await.error.unwrap();
        let text = format!("{error:?}");
        assert!(text.contains("••••"), "{text}");
        assert!(!text.contains("slash") && !text.contains("hunter2") && !text.contains("c%2Fd"), "{text}");
    }
}

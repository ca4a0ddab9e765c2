//! Authentication of requests.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use serde_json::json;
use tokio::sync::Semaphore;
use toolhub_connect::rest::{Auth, Rest, Secret, Upstreams};
use toolhub_core::{ConnectionStateConfig, Effect, ErrorKind, ToolHub, testing::AssertOutcome};
use toolhub_testkit::TempFolder;

use super::support::{
    RecordedRequest, Server, allow_local, any_object_schema, call, http_response, hub, json_ok, wait_until,
};

async fn request_with(change: impl FnOnce(Rest) -> Rest) -> RecordedRequest {
    let server = Server::echo().await;
    let hub = hub(change(allow_local(Rest::get(server.url("/x?a=1"))))).await;
    call(&hub, json!({})).await.assert_success();
    server.single_request()
}

#[tokio::test]
async fn each_sort_of_credentials_goes_to_its_place() {
    let secret = || Secret::literal("s3cr3t&?");
    let request = request_with(|rest| rest.auth(Auth::bearer(secret()))).await;
    assert_eq!(request.header("authorization"), "Bearer s3cr3t&?");
    let request = request_with(|rest| rest.auth(Auth::basic("Aladdin", Secret::literal("open sesame")))).await;
    assert_eq!(request.header("authorization"), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
    let request = request_with(|rest| rest.auth(Auth::header_key("X-Api-Key", secret()))).await;
    assert_eq!(request.header("x-api-key"), "s3cr3t&?");
    let request = request_with(|rest| rest.auth(Auth::query_key("key", secret()))).await;
    assert_eq!(request.target, "/x?a=1&key=s3cr3t%26%3F");
    let request =
        request_with(|rest| rest.secret_header("X-One", secret()).secret_header("X-Two", Secret::literal("2"))).await;
    assert_eq!((request.header("x-one"), request.header("x-two")), ("s3cr3t&?", "2"));
    // A variable that is always set.
    let request = request_with(|rest| rest.auth(Auth::bearer(Secret::env("PATH")))).await;
    assert_eq!(request.header("authorization"), format!("Bearer {}", std::env::var("PATH").unwrap()));
}

#[tokio::test]
async fn a_secret_in_a_file_is_read_again_when_it_has_changed() {
    let folder = TempFolder::new();
    let path = folder.join("token");
    std::fs::write(&path, "first\n").unwrap();
    let server = Server::echo().await;
    let hub = hub(allow_local(Rest::get(server.url("/"))).auth(Auth::bearer(Secret::file(&path)))).await;
    call(&hub, json!({})).await.assert_success();
    // Secrets are usually rotated by replacing the file.
    std::fs::write(folder.join("new"), "the second one\n").unwrap();
    std::fs::rename(folder.join("new"), &path).unwrap();
    call(&hub, json!({})).await.assert_success();
    drop(folder);
    let outcome = call(&hub, json!({})).await;
    outcome.assert_error(ErrorKind::UpstreamError);
    assert!(outcome.error.unwrap().operator.contains("cannot be read"));
    let sent: Vec<String> = server.requests().iter().map(|seen| seen.header("authorization").to_owned()).collect();
    assert_eq!(sent, ["Bearer first", "Bearer the second one"]);
}

/// A service that accepts only tokens that are not revoked, and its token endpoint.
struct TokenService {
    api: Server,
    tokens: Server,
    /// Tokens up to this number are revoked.
    revoked: Arc<AtomicUsize>,
}

impl TokenService {
    async fn new(expires: serde_json::Value) -> Self {
        let (issued, revoked) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let tokens = Server::new(move |_| {
            let number = issued.fetch_add(1, Ordering::Relaxed) + 1;
            json_ok(json!({"access_token": format!("t{number}"), "token_type": "Bearer", "expires_in": expires}))
        })
        .await;
        let last_revoked = revoked.clone();
        let api = Server::new(move |seen| {
            let number: usize = seen.header("authorization").trim_start_matches("Bearer t").parse().unwrap();
            if number > last_revoked.load(Ordering::Relaxed) {
                json_ok(json!("in"))
            } else {
                http_response(401, "text/plain", "expired")
            }
        })
        .await;
        Self { api, tokens, revoked }
    }

    fn rest(&self, upstreams: &Upstreams) -> Rest {
        let auth = Auth::ClientCredentials {
            token_url: self.tokens.url("/token"),
            client_id: "me:x".into(),
            client_secret: Secret::literal("my secret"),
            scopes: vec!["read".into(), "write".into()],
            extra_fields: vec![("audience".into(), "api&1".into())],
        };
        Rest::post(self.api.url("/")).allow_host("127.0.0.1").upstreams(upstreams).auth(auth)
    }
}

#[tokio::test]
async fn a_token_is_fetched_once_for_all_tools_and_callers() {
    let service = TokenService::new(json!(3600)).await;
    let upstreams = Upstreams::new();
    let tool = |name| service.rest(&upstreams).tool_with(name, any_object_schema());
    let hub = ToolHub::builder().tool(tool("a")).tool(tool("b")).build().await.unwrap();
    let calls: Vec<_> = (0..20).map(|at| hub.call(if at % 2 == 0 { "a" } else { "b" }, json!({})).start()).collect();
    for call in calls {
        call.await.assert_success();
    }
    let request = service.tokens.single_request();
    assert_eq!(request.header("authorization"), "Basic bWUlM0F4Om15JTIwc2VjcmV0");
    assert_eq!(request.body, "grant_type=client_credentials&scope=read%20write&audience=api%261");
    assert_eq!(service.api.requests().len(), 20);
}

#[tokio::test]
async fn a_token_that_is_over_is_fetched_anew() {
    let service = TokenService::new(json!(0)).await;
    let hub = hub(service.rest(&Upstreams::new())).await;
    for _ in 0..3 {
        call(&hub, json!({})).await.assert_success();
    }
    assert_eq!(service.tokens.requests().len(), 3);
}

#[tokio::test]
async fn whoever_waits_for_a_token_takes_no_turn_from_others() {
    let gate = Arc::new(Semaphore::new(0));
    let (permits, issued) = (gate.clone(), Arc::new(AtomicUsize::new(0)));
    let tokens = Server::with_async_handler(move |_| {
        let (gate, number) = (gate.clone(), issued.fetch_add(1, Ordering::Relaxed) + 1);
        Box::pin(async move {
            gate.acquire().await.unwrap().forget();
            json_ok(json!({"access_token": format!("t{number}"), "token_type": "Bearer", "expires_in": 3600}))
        })
    })
    .await;
    let api = Server::new(|seen| match seen.header("authorization") {
        "Bearer t1" => http_response(401, "text/plain", "revoked"),
        _ => json_ok(json!("in")),
    })
    .await;
    let upstreams = Upstreams::new();
    let config = ConnectionStateConfig {
        pool_size: 1,
        max_overflow: 0,
        pool_timeout: std::time::Duration::from_millis(50),
        retry_attempts: 1,
        ..Default::default()
    };
    let rest = || Rest::post(api.url("/")).allow_host("127.0.0.1").upstreams(&upstreams).connection(config.clone());
    let auth = Auth::client_credentials(tokens.url("/token"), "me", Secret::literal("my secret"));
    let (signed, open) =
        (rest().auth(auth).tool_with("signed", any_object_schema()), rest().tool_with("open", any_object_schema()));
    let hub = ToolHub::builder().tool(signed).tool(open).build().await.unwrap();
    let waiting = hub.call("signed", json!({})).start();
    // Once before the first request, and once after the first token was refused.
    for fetched in 1..=2 {
        wait_until(|| tokens.requests().len() == fetched).await;
        hub.call("open", json!({})).await.assert_success();
        permits.add_permits(1);
    }
    assert_eq!(waiting.await.assert_success(), &json!("in"));
}

#[tokio::test]
async fn the_time_of_a_request_includes_that_for_its_token() {
    let tokens = Server::with_async_handler(|_| Box::pin(std::future::pending())).await;
    let api = Server::echo().await;
    let auth = Auth::client_credentials(tokens.url("/token"), "me", Secret::literal("my secret"));
    let short = std::time::Duration::from_millis(100);
    let config = ConnectionStateConfig { timeout: short, retry_attempts: 1, ..Default::default() };
    let hub = hub(allow_local(Rest::post(api.url("/"))).auth(auth).connection(config)).await;
    let outcome = call(&hub, json!({})).await;
    outcome.assert_effect(Effect::None).assert_error(ErrorKind::Timeout);
    assert!(outcome.error.unwrap().operator.contains("nothing could be sent within 100ms"));
    assert!(api.requests().is_empty());
}

#[tokio::test]
async fn a_token_that_is_refused_is_fetched_again_once() {
    let service = TokenService::new(json!(null)).await;
    let hub = hub(service.rest(&Upstreams::new())).await;
    call(&hub, json!({"n": 1})).await.assert_success();
    service.revoked.store(1, Ordering::Relaxed);
    call(&hub, json!({"n": 2})).await.assert_success();
    assert_eq!((service.tokens.requests().len(), service.api.requests().len()), (2, 3));
    let last = service.api.requests().pop().unwrap();
    assert_eq!((last.header("authorization"), last.json()), ("Bearer t2", json!({"n": 2})));
    service.revoked.store(99, Ordering::Relaxed);
    call(&hub, json!({})).await.assert_error(ErrorKind::ToolRefused);
    assert_eq!(
        (service.tokens.requests().len(), service.api.requests().len()),
        (3, 5),
        "a refused token is fetched again only once"
    );
}

#[tokio::test]
async fn without_a_token_nothing_is_sent() {
    for (code, body) in [(500, "{}"), (400, "{\"error\": \"invalid_client\"}"), (200, "{}"), (200, "nonsense")] {
        let tokens = Server::new(move |_| http_response(code, "application/json", body)).await;
        let api = Server::echo().await;
        let auth = Auth::client_credentials(tokens.url("/token?k=v"), "me", Secret::literal("my secret"));
        let hub = hub(allow_local(Rest::post(api.url("/"))).auth(auth)).await;
        let outcome = call(&hub, json!({})).await;
        outcome.assert_effect(Effect::None).assert_error(ErrorKind::UpstreamError);
        let error = outcome.error.unwrap();
        assert!(error.operator.contains("/token") && !error.operator.contains("my secret"), "{}", error.operator);
        assert!(api.requests().is_empty());
    }
}

#[tokio::test]
async fn a_token_whose_end_is_told_as_a_text_is_a_token() {
    let server = Server::new(|seen| match seen.target.as_str() {
        "/token" => json_ok(json!({"access_token": "t1", "token_type": "Bearer", "expires_in": "3600"})),
        _ => json_ok(json!(seen.header("authorization"))),
    })
    .await;
    let auth = Auth::client_credentials(server.url("/token"), "me", Secret::literal("s3cr3t"));
    let hub = hub(allow_local(Rest::get(server.url("/x"))).auth(auth)).await;
    for _ in 0..2 {
        assert_eq!(call(&hub, json!({})).await.assert_success(), &json!("Bearer t1"));
    }
    let fetched = server.requests().iter().filter(|seen| seen.target == "/token").count();
    assert_eq!(fetched, 1);
}

#[tokio::test]
async fn a_service_that_wants_to_be_told_in_the_body_who_asks_is_told_there() {
    let server = Server::new(|seen| match seen.target.as_str() {
        "/token" if seen.body.ends_with(b"&client_id=me%3Ax&client_secret=my%20secret") => {
            json_ok(json!({"access_token": "t1", "expires_in": 0}))
        }
        "/token" => http_response(401, "application/json", "{\"error\": \"invalid_client\"}"),
        _ => json_ok(json!(seen.header("authorization"))),
    })
    .await;
    let auth = Auth::client_credentials(server.url("/token"), "me:x", Secret::literal("my secret"));
    let hub = hub(allow_local(Rest::get(server.url("/x"))).auth(auth)).await;
    for _ in 0..2 {
        assert_eq!(call(&hub, json!({})).await.assert_success(), &json!("Bearer t1"));
    }
    // The location is detected once, and the credentials are never sent in both locations.
    let token_requests: Vec<_> = server.requests().into_iter().filter(|seen| seen.target == "/token").collect();
    let locations: Vec<_> = token_requests
        .iter()
        .map(|seen| (!seen.header("authorization").is_empty(), String::from_utf8_lossy(&seen.body).contains("secret=")))
        .collect();
    assert_eq!(locations, [(true, false), (false, true), (false, true)]);
}

//! Redirects.

use hyper::Response;
use serde_json::json;
use toolhub_connect::rest::{Auth, Redirects, Rest, Secret};
use toolhub_core::{Effect, ErrorKind, testing::AssertOutcome};

use super::support::{HttpResponse, Server, allow_local, call, http_response, hub, json_ok};

fn redirect_to(status: u16, location: &str) -> HttpResponse {
    Response::builder().status(status).header("location", location).body(Default::default()).unwrap()
}

/// A server that redirects to `/end` with this status.
async fn redirecting_server(status: u16) -> Server {
    Server::new(move |seen| if seen.target == "/end" { json_ok(json!("there")) } else { redirect_to(status, "end") })
        .await
}

#[tokio::test]
async fn redirects_on_the_same_host_are_followed() {
    for (status, method) in [(301, "GET"), (302, "GET"), (303, "GET"), (307, "POST"), (308, "POST")] {
        let server = redirecting_server(status).await;
        let hub = hub(allow_local(Rest::post(server.url("/a"))).auth(Auth::bearer(Secret::literal("mine")))).await;
        assert_eq!(call(&hub, json!({"n": 1})).await.assert_success(), &json!("there"), "{status}");
        let last = server.requests().pop().unwrap();
        assert_eq!((last.method.as_str(), last.body.is_empty()), (method, method == "GET"), "{status}");
        assert_eq!(last.header("authorization"), "Bearer mine", "credentials are kept on the same origin");
        assert_eq!(server.connections(), 1);
    }
}

#[tokio::test]
async fn redirects_that_go_in_circles_or_are_not_wanted_end() {
    let server = Server::new(|_| redirect_to(302, "/again")).await;
    let circle = hub(allow_local(Rest::get(server.url("/")))).await;
    call(&circle, json!({})).await.assert_error(ErrorKind::ToolRefused);
    assert_eq!(server.requests().len(), 6);
    let server = redirecting_server(302).await;
    let never = hub(allow_local(Rest::get(server.url("/"))).redirects(Redirects::Never)).await;
    call(&never, json!({})).await.assert_error(ErrorKind::ToolRefused);
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn elsewhere_nobody_learns_who_we_are() {
    let other = Server::new(|_| json_ok(json!("elsewhere"))).await;
    let target = other.url("/x");
    let server = Server::new(move |_| redirect_to(307, &target)).await;
    // Another port of the same host is another origin.
    let rest = allow_local(Rest::post(server.url("/")))
        .auth(Auth::header_key("X-Key", Secret::literal("mine")))
        .secret_header("X-More", Secret::literal("mine"))
        .header("Authorization", "mine")
        .cookie("c", "mine")
        .header("X-Said", "mine");
    let hub = hub(rest).await;
    let request = call(&hub, json!({"n": 1})).idempotency_key("mine");
    assert_eq!(request.await.assert_success(), &json!("elsewhere"));
    let seen = other.single_request();
    assert_eq!(seen.json(), json!({"n": 1}));
    assert!(!format!("{:?}", seen.headers).contains("mine"), "{:?}", seen.headers);
    assert_eq!(seen.header("host"), other.address.to_string());
}

#[tokio::test]
async fn a_secret_stays_behind_whatever_its_header_is_called() {
    for name in ["User-Agent", "Accept", "Content-Type", "Traceparent"] {
        let other = Server::new(|_| json_ok(json!("elsewhere"))).await;
        let target = other.url("/x");
        let server = Server::new(move |_| redirect_to(307, &target)).await;
        let rest = || allow_local(Rest::post(server.url("/")));
        for rest in [
            rest().secret_header(name, Secret::literal("mine")),
            rest().auth(Auth::header_key(name, Secret::literal("mine"))),
        ] {
            call(&hub(rest).await, json!({"n": 1})).await.assert_success();
            assert_eq!(server.requests().pop().unwrap().header(name), "mine");
            let seen = other.take_requests().pop().unwrap();
            assert!(!format!("{:?}", seen.headers).contains("mine"), "{name}: {:?}", seen.headers);
            assert_eq!(seen.json(), json!({"n": 1}));
        }
    }
}

#[tokio::test]
async fn another_host_must_be_named() {
    let other = Server::new(|_| json_ok(json!("elsewhere"))).await;
    let target = format!("http://localhost:{}/", other.address.port());
    let server = Server::new(move |_| redirect_to(302, &target)).await;
    let rest = || allow_local(Rest::get(server.url("/"))).allow_host("localhost");
    let same_host = hub(rest()).await;
    let outcome = call(&same_host, json!({})).await;
    outcome.assert_error(ErrorKind::ToolRefused);
    assert!(outcome.error.unwrap().operator.contains("localhost"));
    assert!(other.requests().is_empty());
    let allowed = hub(rest().redirects(Redirects::To(vec!["localhost".into()]))).await;
    assert_eq!(call(&allowed, json!({})).await.assert_success(), &json!("elsewhere"));
}

#[tokio::test]
async fn what_goes_wrong_behind_a_see_other_does_not_undo_what_was_done_before_it() {
    for (status, kind) in [(404, ErrorKind::ToolRefused), (403, ErrorKind::ToolRefused), (429, ErrorKind::ToolError)] {
        for first in [301, 302, 303] {
            let server = Server::new(move |seen| match seen.target.as_str() {
                "/orders" => redirect_to(first, "/orders/7"),
                _ => http_response(status, "text/plain", "not now"),
            })
            .await;
            let hub = hub(allow_local(Rest::post(server.url("/orders")))).await;
            call(&hub, json!({"n": 1})).await.assert_effect(Effect::Unknown).assert_error(kind);
            let ordered = server.requests().iter().filter(|seen| seen.method == "POST").count();
            assert_eq!(ordered, 1, "{first}, then {status}: the order was sent more than once");
        }
    }
    // A 307 means that the service has not processed the request.
    let server =
        Server::new(|seen| if seen.target == "/a" { redirect_to(307, "/b") } else { http_response(404, "", "") }).await;
    let hub = hub(allow_local(Rest::post(server.url("/a")))).await;
    call(&hub, json!({})).await.assert_effect(Effect::None).assert_error(ErrorKind::ToolRefused);
}

//! Host and origin checks before routing, and the addresses a server refuses to listen on.

use axum::http::{Request, StatusCode, header};
use toolhub_server::{Auth, Scope, ServeError, Server, Settings};

use crate::support_listener::{
    RunningServer, make_key, read_json, read_to_end, send_raw, settings, settings_with_keys, start_server, test_hub,
};
use tokio::io::AsyncWriteExt;

async fn send_text(server: &RunningServer, request: &str) -> String {
    let mut tcp = server.connect().await;
    tcp.write_all(request.as_bytes()).await.unwrap();
    read_to_end(&mut tcp).await
}

#[tokio::test]
async fn a_foreign_host_is_refused_on_every_address_known_or_not() {
    let server = start_server(settings()).await;
    for path in ["/livez", "/nowhere", "/api/v1/info"] {
        for wrong in [
            "host: evil.example",
            "host: localhost.evil.example",
            "host: localhost@evil.example",
            "host: localhost\r\nhost: localhost",
            "host: localhost\r\nhost: evil.example",
            "host: 0.0.0.0",
            "host: ",
            "x-forwarded-host: localhost",
        ] {
            let response =
                send_text(&server, &format!("GET {path} HTTP/1.1\r\n{wrong}\r\nconnection: close\r\n\r\n")).await;
            assert!(response.starts_with("HTTP/1.1 421"), "{path} {wrong:?}: {response}");
            assert!(response.contains("\"misdirected\""), "{response}");
        }
        let absolute = format!("GET http://localhost{path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        assert!(send_text(&server, &absolute).await.starts_with("HTTP/1.1 421"));
    }
    for good in ["localhost", "LOCALHOST:1", "127.0.0.1:99", "[::1]:8665", "[0:0:0:0:0:0:0:1]"] {
        let response =
            send_text(&server, &format!("GET /livez HTTP/1.1\r\nhost: {good}\r\nconnection: close\r\n\r\n")).await;
        assert!(response.starts_with("HTTP/1.1 200"), "{good}: {response}");
    }
}

#[tokio::test]
async fn a_page_of_another_site_is_refused_and_our_own_is_not() {
    let server = start_server(settings()).await;
    let check = async |headers: &str, status: &str| {
        let ask = format!("GET /livez HTTP/1.1\r\nhost: localhost:8665\r\n{headers}\r\nconnection: close\r\n\r\n");
        let response = send_text(&server, &ask).await;
        assert!(response.starts_with(&format!("HTTP/1.1 {status}")), "{headers:?}: {response}");
    };
    for foreign in [
        "origin: http://evil.example",
        "origin: null",
        "origin: ",
        "origin: http://localhost",
        "origin: http://localhost:8666",
        "origin: http://localhost:8665.evil.example",
        "origin: http://localhost:8665\r\norigin: http://evil.example",
        "origin: file://localhost:8665",
        "sec-fetch-site: cross-site",
        "sec-fetch-site: same-site",
        "sec-fetch-site: none\r\nsec-fetch-site: cross-site",
        "sec-fetch-site: ",
    ] {
        check(foreign, "403").await;
    }
    for ours in ["accept: */*", "origin: http://localhost:8665", "sec-fetch-site: same-origin", "sec-fetch-site: none"]
    {
        check(ours, "200").await;
    }
}

#[tokio::test]
async fn a_request_is_named_in_its_answer_and_keeps_a_plain_name_it_brought() {
    let server = start_server(settings()).await;
    let response = send_text(
        &server,
        "GET /livez HTTP/1.1\r\nhost: localhost\r\nx-request-id: job-7\r\nconnection: close\r\n\r\n",
    );
    assert!(response.await.contains("x-request-id: job-7\r\n"));
    let ask = "GET /livez HTTP/1.1\r\nhost: localhost\r\nx-request-id: a b<c>\r\nconnection: close\r\n\r\n";
    let response = send_text(&server, ask).await;
    assert!(response.contains("x-request-id: ") && !response.contains("a b<c>"), "{response}");
}

async fn bind(settings: Settings) -> Result<(), ServeError> {
    let hub = test_hub().await;
    Server::new(hub.hub, hub.store, settings).bind().await.map(drop)
}

#[tokio::test]
async fn an_address_strangers_can_reach_needs_keys_and_the_hosts_it_is_reached_by() {
    for host in ["0.0.0.0", "::", "[::]"] {
        let mut open = settings();
        open.host = host.into();
        let refused = bind(open.clone()).await.unwrap_err();
        assert!(refused.is_config() && refused.to_string().contains("toolhub keys create"), "{refused}");
        open.auth = Auth::Keys(Vec::new());
        assert!(matches!(bind(open.clone()).await, Err(ServeError::WithoutKeys(_))));
        open.auth = Auth::Keys(vec![make_key("ci", "main", &[Scope::ToolsRead]).0]);
        let refused = bind(open.clone()).await.unwrap_err();
        assert!(matches!(&refused, ServeError::WithoutHosts(_)) && refused.to_string().contains("allowed_hosts"));
    }
    let mut fine = settings_with_keys([make_key("ci", "main", &[Scope::ToolsRead]).0]);
    fine.host = "0.0.0.0".into();
    fine.allowed_hosts = vec!["tools.example".into()];
    bind(fine.clone()).await.unwrap();
    fine.allowed_hosts.clear();
    fine.public_url = Some("https://tools.example/".into());
    bind(fine).await.unwrap();
}

#[tokio::test]
async fn keys_that_cannot_be_told_apart_or_read_are_named_at_the_start() {
    let (one, _) = make_key("ci", "main", &[Scope::ToolsRead]);
    let (mut same_name, _) = make_key("ci", "main", &[Scope::ToolsRead]);
    let refused = bind(settings_with_keys([one.clone(), same_name.clone()])).await.unwrap_err();
    assert!(refused.is_config() && refused.to_string().contains("two keys are named `ci`"), "{refused}");
    same_name.name = "other".into();
    same_name.hash = one.hash.clone();
    let refused = bind(settings_with_keys([one.clone(), same_name.clone()])).await.unwrap_err().to_string();
    assert!(refused.contains("`ci` and `other` have the same hash"), "{refused}");
    same_name.hash = "sha256:00".into();
    let refused = bind(settings_with_keys([one, same_name])).await.unwrap_err().to_string();
    assert!(refused.contains("`other`") && refused.contains("toolhub keys create"), "{refused}");
}

#[tokio::test]
async fn a_key_that_has_ended_opens_nothing() {
    let (mut ended, text) = make_key("old", "main", &[Scope::Admin]);
    ended.expires = Some(1_000);
    let hub = test_hub().await;
    let router = Server::new(hub.hub, hub.store, settings_with_keys([ended])).router();
    let request = Request::get("/api/v1/info").header(header::AUTHORIZATION, format!("Bearer {text}"));
    let (status, problem) = read_json(send_raw(&router, request.body(axum::body::Body::empty()).unwrap()).await).await;
    assert_eq!((status, &problem["code"]), (StatusCode::UNAUTHORIZED, &"unauthenticated".into()));
}

#[tokio::test]
async fn a_site_behind_a_proxy_is_known_by_its_public_address() {
    let mut settings = settings();
    settings.public_url = Some("https://tools.example:443/hub/".into());
    let hub = test_hub().await;
    let router = Server::new(hub.hub, hub.store, settings).router();
    let ask = |host: &str, origin: &str| {
        Request::get("/livez").header("host", host).header("origin", origin).body(axum::body::Body::empty()).unwrap()
    };
    assert_eq!(send_raw(&router, ask("tools.example", "https://tools.example")).await.status(), StatusCode::OK);
    assert_eq!(send_raw(&router, ask("127.0.0.1:8665", "https://tools.example")).await.status(), StatusCode::OK);
    assert_eq!(send_raw(&router, ask("localhost", "https://evil.example")).await.status(), StatusCode::FORBIDDEN);
}

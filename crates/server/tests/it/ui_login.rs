//! Logins of the dashboard: the cookie, what it may do, for whom it counts, and how it ends.

use std::{sync::Arc, time::Duration};

use axum::{Router, body::Body, http::Request};
use serde_json::{Value, json};
use tokio::time::Instant;
use toolhub_core::{
    ToolHub,
    backend::{Backend, Memory, Scan, Scope as Whose, Table},
    clock::{Clock, Timestamp},
    dynamic,
    testing::TestClock,
};
use toolhub_server::{Scope, Server, Settings};

use crate::support_api::{EventReader, Reply, open_stream, send};
use crate::support_listener::{TEST_TIMEOUT, make_key, send_raw, settings_with_keys};

const SAME_ORIGIN: (&str, &str) = ("sec-fetch-site", "same-origin");
/// In milliseconds.
const HOUR: i64 = 3_600_000;

/// A server with the keys `admin` and `reader`.
struct Fixture {
    router: Router,
    store: Arc<Memory>,
    clock: Arc<TestClock>,
    admin: String,
    reader: String,
    settings: Settings,
}

async fn server_with(change: impl FnOnce(&mut Settings)) -> Fixture {
    let (admin, admin_key) = make_key("admin", "main", &[Scope::Admin]);
    let (reader, reader_key) = make_key("reader", "b", &[Scope::ToolsRead]);
    let mut settings = settings_with_keys([admin, reader]);
    change(&mut settings);
    let (store, clock) = (Arc::new(Memory::default()), Arc::new(TestClock::new()));
    let router = node(&store, &clock, settings.clone()).await;
    Fixture { router, store, clock, admin: admin_key, reader: reader_key, settings }
}

async fn server() -> Fixture {
    server_with(|_| ()).await
}

/// One more server on a store.
async fn node(store: &Arc<Memory>, clock: &Arc<TestClock>, settings: Settings) -> Router {
    let echo = dynamic("echo", json!({"type": "object"}), |given: Value, _| async move { Ok(given) });
    let hub = ToolHub::builder().store(store.clone()).clock(clock.clone()).tool(echo).build().await.unwrap();
    Server::new(hub, store.clone(), settings).router()
}

async fn log_in(router: &Router, key: &str) -> Reply {
    send(router, "POST", "/ui/login", Some(json!({ "key": key }).to_string()), &[SAME_ORIGIN]).await
}

/// The cookie that a response sets, as a browser sends it back.
fn cookie(reply: &Reply) -> String {
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.header("set-cookie").split(';').next().unwrap().to_owned()
}

async fn get(router: &Router, path: &str, cookie: &str) -> Reply {
    send(router, "GET", path, None, &[("cookie", cookie), SAME_ORIGIN]).await
}

#[tokio::test(start_paused = true)]
async fn a_login_stands_for_its_key_until_the_logout_and_its_secret_is_stored_nowhere() {
    let Fixture { router, store, reader, .. } = server().await;
    let before = get(&router, "/ui/session", "").await.expect_status(200);
    assert_eq!(
        (&before["loginNeeded"], &before["local"], &before["tenant"]),
        (&json!(true), &json!(false), &json!(null))
    );
    let reply = log_in(&router, &format!(" {reader}\n")).await;
    assert_eq!(reply.header("cache-control"), "no-store");
    let attributes = reply.header("set-cookie").split_once("; ").unwrap().1;
    assert_eq!(attributes, "HttpOnly; SameSite=Strict; Path=/");
    let cookie = cookie(&reply);
    let session = get(&router, "/ui/session", &cookie).await.expect_status(200);
    assert_eq!(session, reply.json());
    assert_eq!((&session["loginNeeded"], &session["tenant"]), (&json!(false), &json!("b")));
    assert_eq!((&session["caller"], &session["scopes"]), (&json!("reader"), &json!(["tools:read"])));
    assert!(session["expiresAt"].is_string() && session["version"].is_string() && session["features"].is_array());
    assert_eq!(get(&router, "/api/v1/info", &cookie).await.expect_status(200)["caller"], "reader");
    get(&router, "/api/v1/keys", &cookie).await.expect_problem(403, "forbidden");

    let secret = cookie.split_once('=').unwrap().1;
    for table in Table::ALL {
        let rows = store.scan(Scan::new(table, Whose::All), Timestamp::default()).await.unwrap().rows;
        for (key, row) in rows {
            assert!(!key.id.contains(secret) && !String::from_utf8_lossy(&row.value).contains(secret), "{table}");
        }
    }
    let out = send(&router, "POST", "/ui/logout", None, &[("cookie", &cookie), SAME_ORIGIN]).await;
    assert_eq!(out.status, 204);
    assert!(out.header("set-cookie").contains("toolhub_session=;") && out.header("set-cookie").contains("Max-Age=0"));
    get(&router, "/api/v1/info", &cookie).await.expect_problem(401, "unauthenticated");
    assert_eq!(get(&router, "/ui/session", &cookie).await.expect_status(200)["loginNeeded"], true);
}

#[tokio::test]
async fn a_wrong_key_is_refused_and_after_ten_an_address_waits() {
    let Fixture { router, admin, .. } = server().await;
    let unknown = toolhub_server::NewKey::make().unwrap().key;
    for wrong in
        ["", "x", &admin[..admin.len() - 1], &unknown, "Bearer x", "ü", "thl_x", &admin.to_uppercase(), "a", "b"]
    {
        let reply = log_in(&router, wrong).await;
        let problem = reply.expect_problem(401, "unauthenticated");
        assert_eq!(problem["detail"], "this is not a valid key of this server");
        assert!(reply.header("set-cookie").is_empty());
    }
    for key in [&unknown, &admin] {
        let reply = log_in(&router, key).await;
        reply.expect_problem(429, "rate_limited");
        assert!((1..=60).contains(&reply.header("retry-after").parse::<u32>().unwrap()), "{reply:?}");
    }
    for body in ["", "[]", "{}", r#"{"key": 1}"#, r#"{"key": "x", "more": 1}"#] {
        let reply = send(&router, "POST", "/ui/login", Some(body.into()), &[SAME_ORIGIN]).await;
        assert!(matches!(reply.status, 400 | 422), "{body}: {reply:?}");
    }
}

#[tokio::test]
async fn a_cookie_counts_only_for_the_page_of_this_server() {
    let Fixture { router, admin, .. } = server().await;
    let cookie = cookie(&log_in(&router, &admin).await);
    let with = ("cookie", cookie.as_str());
    let create = || Some(json!({"name": "made", "scopes": ["tools:read"]}).to_string());
    let keys = "/api/v1/keys";
    for origin in [SAME_ORIGIN, ("origin", "http://localhost")] {
        assert_eq!(send(&router, "GET", keys, None, &[with, origin]).await.status, 200, "{origin:?}");
    }
    // A browser sends neither header with reads on plain HTTP; `SameSite` is left.
    assert_eq!(send(&router, "GET", keys, None, &[with]).await.status, 200);
    let reply = send(&router, "POST", keys, create(), &[with]).await;
    assert!(reply.expect_problem(403, "forbidden")["detail"].as_str().unwrap().contains("Origin"), "{reply:?}");
    send(&router, "POST", "/ui/logout", None, &[with]).await.expect_problem(403, "forbidden");
    // A typed address: the page itself needs no login, and nothing else is read that way.
    send(&router, "GET", keys, None, &[with, ("sec-fetch-site", "none")]).await.expect_problem(401, "unauthenticated");
    for foreign in [
        ("origin", "http://evil.example"),
        ("origin", "http://localhost:3000"),
        ("origin", "null"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
    ] {
        for (method, path, body) in [
            ("GET", keys, None),
            ("POST", keys, create()),
            ("GET", "/ui/session", None),
            ("POST", "/ui/logout", None),
            ("POST", "/ui/login", Some(json!({ "key": admin }).to_string())),
        ] {
            let reply = send(&router, method, path, body, &[with, foreign]).await;
            reply.expect_problem(403, "foreign_origin");
            assert!(reply.header("set-cookie").is_empty(), "{method} {path} {foreign:?}");
        }
    }
    let listed = get(&router, keys, &cookie).await.expect_status(200);
    assert!(!listed.to_string().contains("made"), "a refused request has changed something: {listed}");
}

#[tokio::test]
async fn behind_tls_the_cookie_is_bound_to_the_host_and_a_page_without_tls_may_not_use_it() {
    let secure = |settings: &mut Settings| settings.public_url = Some("https://tools.example".into());
    let Fixture { router, admin, .. } = server_with(secure).await;
    let body = json!({ "key": admin }).to_string();
    let reply = send(&router, "POST", "/ui/login", Some(body), &[SAME_ORIGIN]).await;
    assert!(reply.header("set-cookie").starts_with("__Host-toolhub_session=thl_"), "{reply:?}");
    assert!(reply.header("set-cookie").ends_with("; Path=/; Secure"), "{reply:?}");
    let cookie = cookie(&reply);
    let plain_name = cookie.replace("__Host-", "");
    for (cookie, host, origin, status) in [
        (&cookie, "tools.example", "https://tools.example", 200),
        (&cookie, "localhost", "http://localhost", 200),
        (&plain_name, "tools.example", "https://tools.example", 401),
        (&cookie, "tools.example", "http://tools.example", 401),
    ] {
        let request = Request::builder().uri("/api/v1/keys").header("host", host);
        let request = request.header("cookie", cookie).header("origin", origin).body(Body::empty()).unwrap();
        assert_eq!(send_raw(&router, request).await.status(), status, "{cookie} {host} {origin}");
    }
}

#[tokio::test]
async fn a_key_in_the_request_takes_precedence_over_the_cookie() {
    let Fixture { router, admin, reader, .. } = server().await;
    let cookie = cookie(&log_in(&router, &admin).await);
    let reader = format!("Bearer {reader}");
    for (key, status) in [(reader.as_str(), 403), ("Bearer x", 401), ("", 401)] {
        let headers = [("cookie", cookie.as_str()), SAME_ORIGIN, ("authorization", key)];
        assert_eq!(send(&router, "GET", "/api/v1/keys", None, &headers).await.status, status, "{key}");
    }
}

#[tokio::test]
async fn of_several_cookies_the_valid_one_counts() {
    let Fixture { router, admin, .. } = server().await;
    let good = cookie(&log_in(&router, &admin).await);
    let other = "toolhub_session=thl_0000000000000000000000000000000000000000000";
    for cookies in [format!("{other}; {good}"), format!("a=b; {good}; {other}"), format!("{good};c=\"d\"")] {
        assert_eq!(get(&router, "/api/v1/keys", &cookies).await.status, 200, "{cookies}");
    }
    let bad = [
        other.to_owned(),
        good.replace("thl_", "thl_0"),
        good.to_uppercase(),
        format!("{good}x"),
        "toolhub_session=".into(),
    ];
    for cookies in bad {
        assert_eq!(get(&router, "/api/v1/keys", &cookies).await.status, 401, "{cookies}");
    }
}

#[tokio::test]
async fn a_login_ends_after_twelve_hours_without_a_request_and_after_a_week() {
    let Fixture { router, clock, admin, .. } = server().await;
    let (idle, used) = (cookie(&log_in(&router, &admin).await), cookie(&log_in(&router, &admin).await));
    for _ in 0..15 {
        clock.jump(11 * HOUR);
        assert_eq!(get(&router, "/api/v1/keys", &used).await.status, 200);
    }
    assert_eq!(get(&router, "/api/v1/keys", &idle).await.status, 401);
    clock.jump(4 * HOUR);
    assert_eq!(get(&router, "/api/v1/keys", &used).await.status, 401, "a week has passed");
}

#[tokio::test]
async fn another_node_knows_a_login_its_uses_and_its_end() {
    let Fixture { router, store, clock, admin, settings, .. } = server().await;
    let other = node(&store, &clock, settings.clone()).await;
    assert_eq!(get(&other, "/api/v1/keys", "").await.status, 401);
    let cookie = cookie(&log_in(&router, &admin).await);
    assert_eq!(get(&other, "/api/v1/keys", &cookie).await.status, 200);
    // The uses of one node are known to one that is started later.
    for _ in 0..3 {
        clock.jump(6 * HOUR);
        assert_eq!(get(&router, "/api/v1/keys", &cookie).await.status, 200);
        wait_until(async || is_use_written(&store, &clock).await).await;
    }
    let later = node(&store, &clock, settings).await;
    assert_eq!(get(&later, "/api/v1/keys", &cookie).await.status, 200);
    assert_eq!(send(&other, "POST", "/ui/logout", None, &[("cookie", &cookie), SAME_ORIGIN]).await.status, 204);
    wait_until(async || get(&router, "/api/v1/keys", &cookie).await.status == 401).await;
}

/// Waits for what another task does.
async fn wait_until(is_done: impl AsyncFn() -> bool) {
    let wait = async {
        while !is_done().await {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, wait).await.expect("it is done");
}

/// Whether the store has a use of the only login within the last hour.
async fn is_use_written(store: &Memory, clock: &TestClock) -> bool {
    let rows = store.scan(Scan::new(Table::Keys, Whose::All), clock.now()).await.unwrap().rows;
    let login: Value = serde_json::from_slice(&rows[0].1.value).unwrap();
    let used: Timestamp = serde_json::from_value(login["lastUsedAt"].clone()).unwrap();
    clock.now().millis() - used.millis() < HOUR
}

/// Reads a stream to its end, which takes at most a second: no event is due that could end it.
async fn end_of(stream: EventReader, end: impl Future<Output = ()>) {
    let reading = tokio::spawn(stream.collect_rest());
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!reading.is_finished(), "the stream goes on while the key is valid");
    end.await;
    let ended = Instant::now();
    assert_eq!(reading.await.unwrap(), []);
    assert!(ended.elapsed() <= Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_login_and_its_streams_end_with_its_key() {
    let Fixture { router, admin, .. } = server().await;
    let admin = cookie(&log_in(&router, &admin).await);
    let create = json!({"name": "ci", "scopes": ["tools:read"]}).to_string();
    let created = send(&router, "POST", "/api/v1/keys", Some(create), &[("cookie", &admin), SAME_ORIGIN]).await;
    let created = created.expect_status(201);
    let ci = cookie(&log_in(&router, created["key"].as_str().unwrap()).await);
    let events = "/api/v1/events?types=config.*";
    let stream = open_stream(&router, events, &[("cookie", &ci), SAME_ORIGIN]).await;
    let path = format!("/api/v1/keys/{}", created["id"].as_str().unwrap());
    end_of(stream, async {
        let revoked = send(&router, "DELETE", &path, None, &[("cookie", &admin), SAME_ORIGIN]).await;
        assert_eq!(revoked.status, 204);
        assert_eq!(get(&router, "/api/v1/info", &ci).await.status, 401);
    })
    .await;

    let stream = open_stream(&router, events, &[("cookie", &admin), SAME_ORIGIN]).await;
    end_of(stream, async {
        assert_eq!(send(&router, "POST", "/ui/logout", None, &[("cookie", &admin), SAME_ORIGIN]).await.status, 204);
    })
    .await;
}

#[tokio::test]
async fn a_key_of_the_config_that_is_replaced_ends_its_logins() {
    let (admin, key) = make_key("admin", "main", &[Scope::Admin]);
    let (replaced, _) = make_key("admin", "main", &[Scope::Admin]);
    let store = Arc::new(Memory::default());
    let hub = ToolHub::builder().store(store.clone()).build().await.unwrap();
    let server = Server::new(hub, store, settings_with_keys([admin.clone()]));
    let (ring, router) = (server.key_ring(), server.router());
    let cookie = cookie(&log_in(&router, &key).await);
    ring.replace(&[admin]).unwrap();
    assert_eq!(get(&router, "/api/v1/keys", &cookie).await.status, 200, "the same key");
    ring.replace(&[replaced]).unwrap();
    assert_eq!(get(&router, "/api/v1/keys", &cookie).await.status, 401);
}

#[tokio::test]
async fn a_key_has_at_most_fifty_logins_and_the_one_not_used_for_longest_makes_room() {
    let Fixture { router, clock, reader, .. } = server().await;
    let mut cookies = Vec::new();
    for _ in 0..50 {
        cookies.push(cookie(&log_in(&router, &reader).await));
        clock.jump(1);
    }
    assert_eq!(get(&router, "/api/v1/info", &cookies[0]).await.status, 200);
    log_in(&router, &reader).await.expect_status(200);
    let valid = async |at: usize| get(&router, "/api/v1/info", &cookies[at]).await.status == 200;
    assert_eq!((valid(0).await, valid(1).await, valid(2).await), (true, false, true));
}

#[tokio::test]
async fn in_local_mode_nothing_is_to_be_logged_in_to() {
    let store = Arc::new(Memory::default());
    let hub = ToolHub::builder().store(store.clone()).build().await.unwrap();
    let router = Server::new(hub, store.clone(), crate::support_api::settings()).router();
    let session = get(&router, "/ui/session", "").await.expect_status(200);
    assert_eq!((&session["loginNeeded"], &session["local"]), (&json!(false), &json!(true)));
    assert_eq!((&session["tenant"], &session["expiresAt"]), (&json!("main"), &json!(null)));
    let reply = log_in(&router, "anything").await;
    assert_eq!((reply.expect_status(200), reply.header("set-cookie")), (session, ""));
    let rows = store.scan(Scan::new(Table::Keys, Whose::All), Timestamp::default()).await.unwrap().rows;
    assert_eq!(rows.len(), 0);
}

#[tokio::test]
async fn logins_their_failures_and_logouts_are_in_the_audit_log_without_secrets() {
    let Fixture { router, clock, admin, .. } = server().await;
    for wrong in ["thk_secret-guess", "", "x"] {
        log_in(&router, wrong).await;
        // Entries are listed by time.
        clock.jump(1);
    }
    let ended = cookie(&log_in(&router, &admin).await);
    clock.jump(1);
    let left = cookie(&log_in(&router, &admin).await);
    clock.jump(1);
    send(&router, "POST", "/ui/logout", None, &[("cookie", &ended), SAME_ORIGIN]).await;
    let page = get(&router, "/api/v1/audit", &left).await.expect_status(200);
    let entries = page["items"].as_array().unwrap();
    let acts: Vec<_> = entries.iter().rev().map(|entry| (&entry["act"], &entry["who"], &entry["status"])).collect();
    let failed = (&json!("login.failed"), &json!(null), &json!(401));
    let login = (&json!("login"), &json!("admin"), &json!(200));
    assert_eq!(acts, [failed, failed, failed, login, login, (&json!("logout"), &json!("admin"), &json!(204))]);
    for secret in ["thl_", "thk_", "secret-guess"] {
        assert!(!page.to_string().contains(secret), "{page}");
    }
    // A flood of attempts does not fill the store: it is recorded at a rate.
    for _ in 0..300 {
        log_in(&router, "x").await;
    }
    let page = get(&router, "/api/v1/audit?limit=500", &left).await.expect_status(200);
    assert!(page["items"].as_array().unwrap().len() < 100, "{page}");
}

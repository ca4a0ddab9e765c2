//! The dashboard: its page, the files of the page, and their headers.

use axum::{Router, http::StatusCode};
use toolhub_core::{ToolHub, backend::Memory};
use toolhub_server::{Server, Settings};

use crate::support_api::{Reply, send, settings};

async fn server(settings: Settings) -> Router {
    let store = std::sync::Arc::new(Memory::default());
    let hub = ToolHub::builder().store(store.clone()).build().await.unwrap();
    Server::new(hub, store, settings).router()
}

async fn get(router: &Router, path: &str, headers: &[(&str, &str)]) -> Reply {
    send(router, "GET", path, None, headers).await
}

/// The address of a file that the page loads.
fn file_address<'a>(page: &'a Reply, name: &str) -> &'a str {
    let end = page.text.find(name).expect("the page loads it") + name.len();
    let start = page.text[..end].rfind('"').unwrap() + 1;
    &page.text[start..end]
}

#[tokio::test]
async fn every_address_below_the_dashboard_is_its_page_which_may_load_only_its_own_files() {
    let router = server(settings()).await;
    let page = get(&router, "/ui/", &[]).await;
    assert_eq!((page.status, page.header("content-type")), (200, "text/html; charset=utf-8"));
    assert_eq!(page.header("cache-control"), "no-cache");
    assert!(!page.text.contains("{{"), "{}", page.text);
    for path in ["/ui/tools", "/ui/tools/weather", "/ui/approvals/apr_1", "/ui/login", "/ui/logout", "/ui/a/b/c.txt"] {
        let other = get(&router, path, &[]).await;
        assert_eq!((other.status, &other.text), (200, &page.text), "{path}");
        let head = send(&router, "HEAD", path, None, &[]).await;
        assert_eq!((head.status, head.text.as_str(), head.header("etag")), (200, "", page.header("etag")), "{path}");
    }
    let known = get(&router, "/ui/tools", &[("if-none-match", page.header("etag"))]).await;
    assert_eq!((known.status, known.text.as_str()), (304, ""));
    assert_eq!(get(&router, "/ui/", &[("if-none-match", "\"other\"")]).await.status, 200);
    let script = get(&router, file_address(&page, "app.js"), &[]).await;
    assert_eq!((script.status, script.header("content-type")), (200, "text/javascript; charset=utf-8"));
    assert_eq!(script.header("cache-control"), "public, max-age=31536000, immutable");
    for response in [&page, &known, &script] {
        let csp = response.header("content-security-policy");
        for part in ["default-src 'none'", "script-src 'self'", "worker-src 'self'", "frame-ancestors 'none'"] {
            assert!(csp.contains(part), "{csp}");
        }
        assert!(!csp.contains("unsafe") && !csp.contains("http"), "{csp}");
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("x-frame-options", "DENY"),
            ("cross-origin-opener-policy", "same-origin"),
        ] {
            assert_eq!(response.header(name), value);
        }
    }
    for (from, to) in [("/", "/ui/"), ("/ui", "/ui/")] {
        let redirect = get(&router, from, &[]).await;
        assert!(matches!(redirect.status, 307 | 308) && redirect.header("location") == to, "{redirect:?}");
    }
}

#[tokio::test]
async fn a_file_of_the_page_is_sent_compressed_to_those_who_read_that_and_never_for_another_version() {
    let router = server(settings()).await;
    let page = get(&router, "/ui/", &[]).await;
    let address = file_address(&page, "app.js").to_owned();
    for (accepted, encoding) in [
        ("gzip, deflate, br", "gzip"),
        ("br;q=1, GZIP;q=0.5", "gzip"),
        ("br", ""),
        ("gzip;q=0, br", ""),
        ("gzip;q=0.0", ""),
    ] {
        let request = axum::http::Request::builder().uri(&address).header("host", "localhost");
        let request = request.header("accept-encoding", accepted).body(axum::body::Body::empty()).unwrap();
        let response = crate::support_listener::send_raw(&router, request).await;
        let found = response.headers().get("content-encoding").map_or("", |value| value.to_str().unwrap());
        assert_eq!((response.status(), found), (StatusCode::OK, encoding), "{accepted}");
        assert_eq!(response.headers()["vary"], "accept-encoding");
        let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        assert_eq!(bytes.starts_with(&[0x1f, 0x8b]), encoding == "gzip", "{accepted}");
    }
    let old = get(&router, "/ui/0123456789abcdef/app.js", &[]).await;
    old.expect_problem(404, "not_found");
}

#[tokio::test]
async fn behind_a_prefix_the_page_loads_its_files_below_that_prefix() {
    let mut settings = settings();
    settings.public_url = Some("https://tools.example/hub/".into());
    let router = server(settings).await;
    let page = get(&router, "/ui/", &[]).await;
    let address = file_address(&page, "app.js");
    let behind_proxy = address.strip_prefix("/hub").expect("the prefix of the public URL");
    assert_eq!(get(&router, behind_proxy, &[]).await.status, 200);
    assert_eq!(get(&router, "/", &[]).await.header("location"), "/hub/ui/");
}

#[tokio::test]
async fn a_server_without_the_dashboard_serves_nothing_of_it() {
    let mut settings = settings();
    settings.ui = false;
    let router = server(settings).await;
    for path in ["/ui", "/ui/", "/ui/tools", "/ui/login"] {
        let problem = get(&router, path, &[]).await.expect_problem(404, "not_found");
        assert!(problem["hint"].as_str().unwrap().contains("server.ui"), "{problem}");
    }
    assert_eq!(get(&router, "/", &[]).await.header("location"), "/docs");
}

#[tokio::test]
async fn the_page_is_not_served_to_another_site_or_host() {
    let router = server(settings()).await;
    get(&router, "/ui/", &[("origin", "http://evil.example")]).await.expect_problem(403, "foreign_origin");
    let (site, mode, dest) =
        (("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document"));
    get(&router, "/ui/tools", &[site]).await.expect_problem(403, "foreign_origin");
    // A link in a chat or a mail is followed.
    assert_eq!(get(&router, "/ui/approvals/apr_1", &[site, mode, dest]).await.status, 200);
    for (path, method, headers) in [
        ("/ui/tools", "GET", vec![site, ("sec-fetch-mode", "cors"), dest]),
        ("/ui/tools", "GET", vec![site, mode, ("sec-fetch-dest", "iframe")]),
        ("/ui/tools", "GET", vec![site, mode, dest, ("origin", "http://evil.example")]),
        ("/ui/tools", "POST", vec![site, mode, dest]),
        ("/api/v1/info", "GET", vec![site, mode, dest]),
        ("/uix", "GET", vec![site, mode, dest]),
    ] {
        send(&router, method, path, None, &headers).await.expect_problem(403, "foreign_origin");
    }
}

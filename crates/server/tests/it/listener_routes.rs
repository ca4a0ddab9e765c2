//! Access checks of every route, generated from the OpenAPI document, so that new routes are covered.

use std::collections::{BTreeMap, BTreeSet};

use axum::{
    Router,
    body::Body,
    http::{HeaderName, Method, Request, StatusCode, header},
};
use serde_json::{Value, json};
use toolhub_core::ids::Tenant;
use toolhub_server::{Scope, Server};

use crate::support_listener::{TestHub, make_key, read_json, send_raw, settings_with_keys, test_hub};

/// One route of the OpenAPI document.
struct Route {
    method: Method,
    path: String,
    /// Its path with values for all parameters.
    filled: String,
    scope: Option<Scope>,
    needs_key: bool,
    /// The documented statuses.
    documented: BTreeSet<String>,
}

fn routes() -> Vec<Route> {
    let document = Server::openapi();
    let mut routes = Vec::new();
    for (path, operations) in document["paths"].as_object().expect("paths") {
        for (method, operation) in operations.as_object().expect("operations") {
            let scope = operation["x-toolhub-scope"].as_str().map(|scope| scope.parse().expect("a scope"));
            let needs_key = !operation["security"].is_null();
            let documented = operation["responses"].as_object().expect("responses").keys().cloned().collect();
            let method = method.to_uppercase().parse().expect("a method");
            routes.push(Route { method, path: path.clone(), filled: fill_path(path), scope, needs_key, documented });
        }
    }
    assert!(routes.len() > 5, "the document has only {} routes", routes.len());
    routes
}

/// Ids that exist in another tenant.
fn fill_path(path: &str) -> String {
    let parts = path.split('/').map(|part| match part {
        "{name}" | "{tool}" => "echo",
        "{kind}" => "business",
        "{contextId}" => "t-a%2Fcart",
        _ if part.starts_with('{') => "t-a",
        _ => part,
    });
    parts.collect::<Vec<_>>().join("/")
}

/// A server with a key for each relevant set of scopes.
struct KeyedServer {
    router: Router,
    hub: TestHub,
    keys: Vec<(String, String)>,
}

impl KeyedServer {
    async fn new() -> Self {
        let hub = test_hub().await;
        let mut new_keys = vec![make_key("admin", "main", &[Scope::Admin]), make_key("nothing", "main", &[])];
        new_keys.push(make_key("b-admin", "b", &[Scope::Admin]));
        new_keys.push(make_key("b", "b", &Scope::ALL[..5]));
        new_keys.push(make_key("a", "a", &Scope::ALL[..5]));
        for scope in Scope::ALL {
            new_keys.push(make_key(&format!("only-{scope}").replace(':', "-"), "main", &[scope]));
            let others: Vec<Scope> = Scope::ALL[..5].iter().copied().filter(|other| *other != scope).collect();
            new_keys.push(make_key(&format!("all-but-{scope}").replace(':', "-"), "main", &others));
        }
        let keys = new_keys.iter().map(|(setting, text)| (setting.name.clone(), text.clone())).collect();
        let settings = settings_with_keys(new_keys.into_iter().map(|(setting, _)| setting));
        let router = Server::new(hub.hub.clone(), hub.store.clone(), settings).router();
        Self { router, hub, keys }
    }

    fn key(&self, name: &str) -> String {
        let (_, key) = self.keys.iter().find(|(known, _)| known == name).expect("a key of this name");
        format!("Bearer {key}")
    }

    /// Logs in with a key; returns the cookie.
    async fn log_in(&self, name: &str) -> String {
        let key = self.keys.iter().find(|(known, _)| known == name).map(|(_, key)| key.as_str());
        let request = Request::post("/ui/login").header(header::HOST, "localhost:8665");
        let request = request.header(header::CONTENT_TYPE, "application/json");
        let response = send_raw(&self.router, request.body(json!({ "key": key }).to_string().into()).unwrap()).await;
        let cookie = response.headers()[header::SET_COOKIE].to_str().unwrap();
        cookie.split(';').next().unwrap().to_owned()
    }

    async fn request(&self, method: &Method, path: &str, headers: &[(HeaderName, &str)]) -> (StatusCode, Value) {
        let mut request = Request::builder().method(method.clone()).uri(path);
        if !headers.iter().any(|(name, _)| name == header::HOST) {
            request = request.header(header::HOST, "localhost:8665");
        }
        for (name, value) in headers {
            request = request.header(name, *value);
        }
        let response = send_raw(&self.router, request.body(Body::empty()).expect("a request")).await;
        if response.status() == StatusCode::UNAUTHORIZED {
            assert_eq!(response.headers()[header::WWW_AUTHENTICATE], "Bearer");
        }
        read_json(response).await
    }
}

#[tokio::test]
async fn without_a_key_or_with_a_bad_one_only_open_routes_answer() {
    let server = KeyedServer::new().await;
    let good = server.key("admin");
    let other_case = good.to_uppercase().replacen("BEARER THK_", "Bearer thk_", 1);
    let mut last = good.clone();
    let end = if last.pop() == Some('A') { 'B' } else { 'A' };
    last.push(end);
    let unknown = format!("Bearer {}", toolhub_server::NewKey::make().unwrap().key);
    let basic = good.replace("Bearer", "Basic");
    let bare = good.replace("Bearer ", "");
    let short = good[..good.len() - 1].to_owned();
    for route in routes() {
        let request = (&route.method, &route.filled);
        let mut cases: Vec<(&str, Vec<(HeaderName, &str)>)> = vec![("no key", vec![])];
        for (what, value) in [
            ("nothing", ""),
            ("a word", "Bearer x"),
            ("other letters", other_case.as_str()),
            ("another end", last.as_str()),
            ("an unknown key", unknown.as_str()),
            ("another scheme", basic.as_str()),
            ("no scheme", bare.as_str()),
            ("a key cut short", short.as_str()),
        ] {
            cases.push((what, vec![(header::AUTHORIZATION, value)]));
        }
        cases.push(("two keys", vec![(header::AUTHORIZATION, &good), (header::AUTHORIZATION, &good)]));
        cases.push(("another header", vec![(HeaderName::from_static("x-api-key"), &good)]));
        cases.push(("a cookie", vec![(header::COOKIE, &good)]));
        for (what, headers) in cases {
            let (status, body) = server.request(request.0, request.1, &headers).await;
            if route.needs_key {
                assert_eq!(status, StatusCode::UNAUTHORIZED, "{request:?} with {what}: {body}");
                assert_eq!(body["code"], "unauthenticated");
                assert!(route.documented.contains("401"), "{request:?}");
            } else {
                assert!(![401, 403].contains(&status.as_u16()), "{request:?} with {what}: {status} {body}");
            }
        }
    }
}

#[tokio::test]
async fn a_key_opens_what_its_scopes_say_and_nothing_else() {
    let server = KeyedServer::new().await;
    let mut undocumented = Vec::new();
    for route in routes() {
        let Some(scope) = route.scope else { continue };
        let scope_name = scope.to_string().replace(':', "-");
        for short in ["nothing".to_owned(), format!("all-but-{scope_name}")] {
            let key = server.key(&short);
            let (status, body) = server.request(&route.method, &route.filled, &[(header::AUTHORIZATION, &key)]).await;
            let request = (&route.method, &route.path, &short);
            assert_eq!((status, &body["code"]), (StatusCode::FORBIDDEN, &json!("forbidden")), "{request:?}: {body}");
            assert!(
                body["detail"].as_str().is_some_and(|detail| detail.contains(scope.as_str())),
                "{request:?}: {body}"
            );
            assert!(route.documented.contains("403"), "{request:?}");
        }
        for enough in [format!("only-{scope_name}"), "admin".to_owned()] {
            let key = server.key(&enough);
            let (status, body) = server.request(&route.method, &route.filled, &[(header::AUTHORIZATION, &key)]).await;
            let request = (&route.method, &route.path, &enough);
            assert!(!["unauthenticated", "forbidden"].iter().any(|code| body["code"] == *code), "{request:?}: {body}");
            if !route.documented.contains(status.as_str()) {
                undocumented.push(format!("{request:?} answers {status}: {body}"));
            }
        }
    }
    assert_eq!(undocumented, Vec::<String>::new());
}

#[tokio::test]
async fn the_cookie_of_a_login_opens_what_its_key_does_and_only_for_the_page_of_this_server() {
    let server = KeyedServer::new().await;
    let (same, site) = (HeaderName::from_static("sec-fetch-site"), HeaderName::from_static("sec-fetch-site"));
    let mut cookies = BTreeMap::new();
    for name in ["admin", "nothing"] {
        cookies.insert(name, server.log_in(name).await);
    }
    for route in routes().into_iter().filter(|route| route.needs_key && route.path != "/ui/logout") {
        let request = (&route.method, &route.filled);
        for (name, cookie) in &cookies {
            let key = server.key(name);
            let by_key = server.request(request.0, request.1, &[(header::AUTHORIZATION, &key)]).await;
            let headers = [(header::COOKIE, cookie.as_str()), (same.clone(), "same-origin")];
            let by_cookie = server.request(request.0, request.1, &headers).await;
            assert_eq!((by_key.0, &by_key.1["code"]), (by_cookie.0, &by_cookie.1["code"]), "{request:?} as {name}");
        }
        let cookie = (header::COOKIE, cookies["admin"].as_str());
        let (status, body) = server.request(request.0, request.1, std::slice::from_ref(&cookie)).await;
        if *request.0 == Method::GET {
            assert!(![401, 403].contains(&status.as_u16()), "{request:?} without origin: {body}");
        } else {
            assert_eq!((status, &body["code"]), (StatusCode::FORBIDDEN, &json!("forbidden")), "{request:?}: {body}");
        }
        for foreign in [
            (header::ORIGIN, "http://evil.example"),
            (header::ORIGIN, "http://localhost:3000"),
            (site.clone(), "cross-site"),
            (site.clone(), "same-site"),
        ] {
            let (status, body) = server.request(request.0, request.1, &[cookie.clone(), foreign]).await;
            assert_eq!((status.as_u16(), &body["code"]), (403, &json!("foreign_origin")), "{request:?}");
        }
    }
}

#[tokio::test]
async fn an_odd_spelling_of_an_address_leads_nowhere_or_to_the_same_gate() {
    let server = KeyedServer::new().await;
    let open: Vec<String> =
        routes().into_iter().filter(|route| route.scope.is_none()).map(|route| route.filled).collect();
    for route in routes() {
        let path = &route.filled;
        let inner = path.trim_start_matches('/');
        let spellings = [
            format!("//{inner}"),
            format!("/{}", inner.replace('/', "//")),
            format!("{path}/"),
            format!("{path}//"),
            format!("/./{inner}"),
            format!("/%2e/{inner}"),
            format!("/livez/../{inner}"),
            format!("/livez/%2e%2e/{inner}"),
            format!("/livez%2f..%2f{inner}"),
            format!("{path};x=1"),
            format!("/livez;/{inner}"),
            format!("{path}%00"),
            format!("{path}%20"),
            format!("{path}%2f"),
            format!("{path}%3f"),
            format!("{path}.json"),
            path.to_uppercase(),
            format!("/{}", inner.replacen('a', "%61", 1)),
            format!("{path}?key={}", server.key("admin").replace(' ', "%20")),
        ];
        for spellings in spellings {
            let (status, body) = server.request(&route.method, &spellings, &[]).await;
            let refused = [401, 404, 405].contains(&status.as_u16());
            // An open route is open only in its exact spelling, with any query.
            let open = open.iter().any(|known| spellings.starts_with(known));
            assert!(refused || open, "{} {spellings}: {status} {body}", route.method);
        }
    }
}

#[tokio::test]
async fn foreign_hosts_and_origins_are_refused_on_every_route_before_the_key_is_looked_at() {
    let server = KeyedServer::new().await;
    let key = server.key("admin");
    let mut request: Vec<(Method, String)> = routes().into_iter().map(|route| (route.method, route.filled)).collect();
    request.push((Method::GET, "/nowhere".into()));
    request.push((Method::TRACE, "/livez".into()));
    let fetch_site = HeaderName::from_static("sec-fetch-site");
    for (method, path) in request {
        for key in [key.as_str(), "Bearer x"] {
            let with_key = (header::AUTHORIZATION, key);
            for host in ["evil.example", "localhost.evil.example", "127.0.0.1.nip.example", "0.0.0.0"] {
                let (status, body) = server.request(&method, &path, &[(header::HOST, host), with_key.clone()]).await;
                assert_eq!((status.as_u16(), &body["code"]), (421, &json!("misdirected")), "{method} {path}");
            }
            for foreign in
                [(header::ORIGIN, "http://evil.example"), (header::ORIGIN, "null"), (fetch_site.clone(), "cross-site")]
            {
                let (status, body) = server.request(&method, &path, &[foreign, with_key.clone()]).await;
                assert_eq!((status.as_u16(), &body["code"]), (403, &json!("foreign_origin")), "{method} {path}");
            }
        }
    }
    for route in routes() {
        assert!(route.documented.contains("421") && route.documented.contains("403"), "{}", route.path);
    }
}

#[tokio::test]
async fn nothing_of_one_tenant_is_shown_to_another() {
    const CANARY: &str = "canary-of-tenant-a";
    let server = KeyedServer::new().await;
    let tenant = Tenant::new("a").unwrap();
    let call = server.hub.hub.call("echo", json!({"said": CANARY})).tenant(tenant).thread("t-a").await;
    assert!(call.error.is_none());
    for route in routes() {
        // Other methods would only create resources of the caller's own tenant.
        if route.method != Method::GET {
            continue;
        }
        for key in ["b", "nothing"] {
            let key = server.key(key);
            for filled in [route.filled.clone(), route.filled.replace("t-a", &call.id.to_string())] {
                let (_, body) = server.request(&route.method, &filled, &[(header::AUTHORIZATION, &key)]).await;
                assert!(!body.to_string().contains(CANARY), "{} {filled}: {body}", route.method);
            }
        }
    }
}

//! A server with keys of two tenants, a few tools and a host program, used through its router. Every response is
//! validated against the OpenAPI document.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    http::{HeaderMap, Request},
};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use toolhub_core::{
    BoxFuture, CallContext, Content, Instance, JsonReply, NoArguments, RateLimit, Rule, StoreRole, ToolError, ToolHub,
    backend::{Backend, Memory},
    dynamic, dynamic_stateful,
    ids::Tenant,
    instance,
};
use toolhub_server::{
    Auth, Backup, ConfigProblem, ConfigSource, ConfigValue, HostControl, HostControlError, KeySetting, NewKey,
    ReloadReport, Scope, Server, Settings,
};
use tower::ServiceExt;

/// Longer than any test takes; only a failing test waits this long.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// A server without a socket.
pub(crate) struct StateFixture {
    pub(crate) hub: ToolHub,
    pub(crate) host: Arc<FakeHost>,
    router: Router,
    keys: Vec<(&'static str, String)>,
}

/// A response.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) bytes: Vec<u8>,
}

/// A host program controlled by the test.
#[derive(Default)]
pub(crate) struct FakeHost {
    /// The results of the next reload and backup; success by default.
    pub(crate) next: Mutex<Option<HostControlError>>,
}

impl FakeHost {
    fn next_result<T: Send + 'static>(&self, good: T) -> BoxFuture<'_, Result<T, HostControlError>> {
        let next = self.next.lock().unwrap().take();
        Box::pin(async move { next.map_or(Ok(good), Err) })
    }
}

impl HostControl for FakeHost {
    fn config(&self) -> Value {
        json!({"server": {"port": 8665}, "secret": "••••"})
    }

    fn config_values(&self) -> Option<Vec<ConfigValue>> {
        let (key, origin) = ("server.port".into(), "toolhub.toml:3".into());
        Some(vec![ConfigValue { key, value: json!(8665), source: ConfigSource::File, origin }])
    }

    fn reload(&self) -> BoxFuture<'_, Result<ReloadReport, HostControlError>> {
        self.next_result(ReloadReport {
            added: vec!["new".into()],
            needs_restart: vec!["server.port".into()],
            ..ReloadReport::default()
        })
    }

    fn backup(&self, store: StoreRole) -> BoxFuture<'_, Result<Backup, HostControlError>> {
        self.next_result(Backup { path: PathBuf::from("/backups/1.db"), store, bytes: 4096, sha256: "00".repeat(32) })
    }
}

/// A config with two problems.
pub(crate) fn bad_config() -> HostControlError {
    let problem = |place: &str, key: &str, detail: &str| ConfigProblem {
        location: place.into(),
        key: key.into(),
        detail: detail.into(),
        hint: Some("write it so".into()),
    };
    HostControlError::Config(vec![
        problem("toolhub.toml:3:8", "server.port", "a port is a number"),
        problem("toolhub.toml:9:1", "tools.a/b", "there is no such tool"),
    ])
}

struct Browser;

impl Instance for Browser {
    type Arguments = NoArguments;
    type Output = u32;

    async fn call(&mut self, _: NoArguments, _: &CallContext) -> Result<u32, ToolError> {
        Ok(1)
    }
}

/// A server on a store in memory.
pub(crate) async fn state_fixture() -> StateFixture {
    state_fixture_on(Arc::new(Memory::default())).await
}

/// The tools: `look` is read-only and may be called twice an hour, `cart` stores its arguments in the state `basket`,
/// `browse` has an instance, `report` depends on `look`, `long` returns more than a model is shown, `never` is denied.
pub(crate) async fn state_fixture_on(store: Arc<dyn Backend>) -> StateFixture {
    let any = || json!({"type": "object"});
    let simple =
        |name: &str| dynamic(name, any(), |_: Value, _: CallContext| async move { Ok::<_, ToolError>(json!("seen")) });
    let cart = dynamic_stateful("cart", "basket", any(), |mut given: Value, _: CallContext| async move {
        given.as_object_mut().map(|given| given.remove("state"));
        Ok::<_, ToolError>(JsonReply::with_state(json!("kept"), given))
    });
    let long = dynamic("long", any(), |_: Value, cx: CallContext| async move {
        cx.attach(Content::Audio { data: "UklG".repeat(300), mime_type: "audio/wav".into() });
        Ok::<_, ToolError>(json!("<b>ä</b>".repeat(20)))
    });
    let hub = ToolHub::builder()
        .store(store.clone())
        .tool(simple("look").read_only().rate_limit(RateLimit::per_hour(20)))
        .tool(cart)
        .tool(instance("browse", |_: CallContext| async { Ok::<_, ToolError>(Browser) }))
        .tool(simple("report").after("look"))
        .tool(long.read_only().text_limit(10).output_limit(1_000))
        .tool(simple("never"))
        .rule(Rule::deny("never").reason("nobody may"))
        .build()
        .await
        .unwrap();
    let all = Scope::ALL.into_iter().filter(|scope| *scope != Scope::Admin).collect::<Vec<_>>();
    let new_keys = [
        ("ann", "a", all.clone()),
        ("bob", "b", all),
        ("boss", "a", vec![Scope::Admin]),
        ("caller", "a", vec![Scope::ToolsCall]),
    ]
    .map(|(name, tenant, scopes)| {
        let NewKey { key, hash, .. } = NewKey::make().unwrap();
        let setting = KeySetting { name: name.into(), tenant: tenant.into(), hash, scopes, expires: None };
        (setting, (name, key))
    });
    let (settings, keys): (Vec<_>, Vec<_>) = new_keys.into_iter().unzip();
    let host_control = Arc::new(FakeHost::default());
    let mut how = Settings::default();
    how.auth = Auth::Keys(settings);
    let router = Server::with_host_control(hub.clone(), store, how, host_control.clone()).router();
    StateFixture { hub, host: host_control, router, keys }
}

impl StateFixture {
    /// Sends a request with a user's key, with an optional body and headers.
    pub(crate) async fn request(&self, who: &str, what: &str, body: Option<Value>, headers: &[(&str, &str)]) -> Reply {
        self.send(who, what, body.map(|body| body.to_string()), headers).await
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.request("ann", &format!("GET {path}"), None, &[]).await
    }

    pub(crate) async fn send_json(&self, what: &str, body: Value) -> Reply {
        self.request("ann", what, Some(body), &[]).await
    }

    /// The same with a body that may not be JSON.
    pub(crate) async fn send(&self, who: &str, what: &str, body: Option<String>, headers: &[(&str, &str)]) -> Reply {
        let (method, path) = what.split_once(' ').unwrap();
        let mut request = Request::builder().method(method).uri(path).header("host", "localhost");
        if let Some((_, key)) = self.keys.iter().find(|(name, _)| *name == who) {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(body.map_or_else(Body::empty, Body::from)).unwrap();
        let response =
            tokio::time::timeout(TEST_TIMEOUT, self.router.clone().oneshot(request)).await.expect("an answer").unwrap();
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes().to_vec();
        let reply = Reply { status: parts.status.as_u16(), headers: parts.headers, bytes };
        assert_documented(method, path, &reply);
        reply
    }

    /// Makes a call that succeeds.
    pub(crate) async fn call(&self, tool: &str, thread: &str, arguments: Value) -> Value {
        let outcome = self.hub.call(tool, arguments).tenant(Tenant::new("a").unwrap()).thread(thread).await;
        assert!(outcome.error.is_none(), "{outcome:?}");
        serde_json::to_value(outcome).unwrap()
    }
}

impl Reply {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// Its body, if it has this status.
    #[track_caller]
    pub(crate) fn expect_status(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        if self.bytes.is_empty() { Value::Null } else { serde_json::from_slice(&self.bytes).unwrap() }
    }

    /// The problem in it.
    #[track_caller]
    pub(crate) fn expect_problem(&self, status: u16, code: &str) -> Value {
        let body = self.expect_status(status);
        assert_eq!(self.header("content-type"), "application/problem+json");
        assert_eq!((&body["code"], &body["status"]), (&json!(code), &json!(status)), "{body}");
        body
    }

    /// The values of one member of all items on a page.
    #[track_caller]
    pub(crate) fn items(&self, member: &str) -> Vec<String> {
        let body = self.expect_status(200);
        let items = body["items"].as_array().unwrap();
        items.iter().map(|item| item[member].as_str().map_or_else(|| item[member].to_string(), str::to_owned)).collect()
    }

    /// The URL of the next page, if there is one; checks that it carries the cursor of the body.
    pub(crate) fn next_link(&self) -> Option<String> {
        let body = self.expect_status(200);
        let Some(cursor) = body["nextCursor"].as_str() else {
            assert_eq!((&body["nextCursor"], self.header("link")), (&Value::Null, ""));
            return None;
        };
        let link = self.header("link").strip_prefix('<').unwrap().strip_suffix(">; rel=\"next\"").unwrap().to_owned();
        assert!(link.ends_with(&format!("cursor={cursor}")), "{link}");
        Some(link)
    }
}

/// Headers that need no description: those of HTTP itself, those of every response, and those only browsers use.
const UNDOCUMENTED_HEADERS: [&str; 10] = [
    "allow",
    "cache-control",
    "content-disposition",
    "content-length",
    "content-security-policy",
    "content-type",
    "referrer-policy",
    "vary",
    "x-content-type-options",
    "x-request-id",
];

/// Fails if a response does not match the OpenAPI document.
#[track_caller]
fn assert_documented(method: &str, path: &str, reply: &Reply) {
    static DOCUMENT: OnceLock<Value> = OnceLock::new();
    let document = DOCUMENT.get_or_init(Server::openapi);
    let path = path.split('?').next().unwrap();
    let fits = |pattern: &str| {
        let (ours, theirs): (Vec<_>, Vec<_>) = (path.split('/').collect(), pattern.split('/').collect());
        ours.len() == theirs.len() && ours.iter().zip(&theirs).all(|(a, b)| a == b || b.starts_with('{'))
    };
    let paths = document["paths"].as_object().unwrap();
    // A literal path takes precedence over one with parameters.
    let found = paths.get(path).or_else(|| paths.iter().find(|(pattern, _)| fits(pattern)).map(|(_, found)| found));
    let Some(operation) = found.and_then(|found| found.get(method.to_ascii_lowercase())) else { return };
    let status = reply.status.to_string();
    let response = operation["responses"].get(&status);
    let response =
        response.unwrap_or_else(|| panic!("{method} {path}: status {status} is not documented: {}", reply.text()));
    let described = |name: &str| {
        let headers = response.get("headers").and_then(Value::as_object);
        headers.is_some_and(|all| all.keys().any(|one| one.eq_ignore_ascii_case(name)))
    };
    for name in reply.headers.keys().filter(|name| !UNDOCUMENTED_HEADERS.contains(&name.as_str())) {
        assert!(described(name.as_str()), "{method} {path}: the header {name} of {status} is not documented");
    }
    let media_type = reply.header("content-type").split(';').next().unwrap();
    let Some(content) = response.get("content").and_then(Value::as_object) else {
        assert!(reply.bytes.is_empty(), "{method} {path}: {status} is documented without a body");
        return;
    };
    let media = content.get(media_type).or_else(|| content.get("*/*"));
    let media = media.unwrap_or_else(|| panic!("{method} {path}: the media type {media_type} is not documented"));
    if let (Some(schema), true) = (media.get("schema"), media_type.ends_with("json")) {
        let with_components = json!({"allOf": [schema], "components": document["components"]});
        let body: Value = serde_json::from_slice(&reply.bytes).unwrap();
        let validator = jsonschema::validator_for(&with_components).unwrap();
        let errors: Vec<_> = validator.iter_errors(&body).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{method} {path}: {errors:?}\n{body}");
    }
}

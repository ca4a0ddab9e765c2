//! The metrics page, after real calls.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use serde_json::{Value, json};
use toolhub_core::{
    BoxFuture, CallContext, ToolError, ToolHub,
    backend::{Backend, Batch, Memory, Page, Row, RowKey, Scan, StoreError, Table, Watcher},
    clock::Timestamp,
    dynamic,
};
use toolhub_server::{BuildInfo, Server};

use crate::support_api::{ApiFixture, api_fixture, send, settings};

/// The value of the sample with this name and these labels.
#[track_caller]
fn metric_value(page: &str, line: &str) -> f64 {
    let found = page.lines().find_map(|found| found.strip_prefix(line)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("`{line}` is missing:\n{page}")).parse().unwrap()
}

async fn metrics_page(api: &ApiFixture) -> String {
    let response = api.get("/metrics").await;
    assert_eq!(response.status, 200);
    response.text
}

#[tokio::test]
async fn how_long_calls_took_is_told_apart_by_how_they_ended() {
    let api = api_fixture().await;
    api.post("/api/v1/tools/add/calls", json!({"arguments": {"a": 1, "b": 2}})).await.expect_status(200);
    api.post("/api/v1/tools/add/calls", json!({"arguments": {"a": i64::MAX, "b": 2}})).await.expect_status(200);
    api.post("/api/v1/tools/add/calls", json!({"arguments": {"a": 1}})).await.expect_status(422);
    let page = metrics_page(&api).await;
    let took = |end: &str, error: &str| {
        let labels = format!("gen_ai_tool_name=\"add\",gen_ai_tool_type=\"function\",error_type=\"{error}\"");
        metric_value(&page, &format!("gen_ai_execute_tool_duration_seconds_{end}{{{labels}}}"))
    };
    assert_eq!((took("count", ""), took("count", "tool_error")), (1.0, 1.0));
    assert!(took("sum", "") > 0.0);
    let ended = |outcome: &str| {
        let labels = format!("tool=\"add\",kind=\"stateless\",outcome=\"{outcome}\"");
        metric_value(&page, &format!("toolhub_tool_calls_total{{{labels}}}"))
    };
    assert_eq!((ended("success"), ended("tool_error")), (1.0, 1.0));
    let refused = "toolhub_tool_refusals_total{tool=\"add\",error=\"arguments_invalid\"}";
    assert_eq!(metric_value(&page, refused), 1.0);
    assert_eq!(page.matches("arguments_invalid").count(), 1, "such a call is not counted as a call");
    let stats = api.get("/api/v1/tools/add/stats").await.expect_status(200);
    assert_eq!((&stats["calls"], &stats["errors"]), (&json!(2), &json!({"tool_error": 1})));
    assert_eq!(stats["refusals"], json!({"arguments_invalid": 1}));
}

#[tokio::test]
async fn a_call_that_the_cache_answers_is_a_call() {
    let cached =
        dynamic("rates", json!({"type": "object"}), |_: Value, _: CallContext| async { Ok::<_, ToolError>(json!(1)) });
    let hub = ToolHub::builder().store(Memory::new()).tool(cached.read_only().cache(Duration::from_secs(60)));
    let hub = hub.build().await.unwrap();
    let server = Server::new(hub.clone(), Arc::new(Memory::new()), settings()).router();
    let call =
        async || send(&server, "POST", "/api/v1/tools/rates/calls", Some("{}".into()), &[]).await.expect_status(200);
    let first = call().await;
    let (second, third) = (call().await, call().await);
    assert_eq!((&first["cached"], &second["cached"], &third["cached"]), (&json!(false), &json!(true), &json!(true)));
    let page = send(&server, "GET", "/metrics", None, &[]).await.text;
    assert_eq!(
        metric_value(&page, "toolhub_tool_calls_total{tool=\"rates\",kind=\"stateless\",outcome=\"success\"}"),
        3.0
    );
    assert_eq!(metric_value(&page, "toolhub_cache_total{tool=\"rates\",result=\"hit\"}"), 2.0);
    assert_eq!(metric_value(&page, "toolhub_cache_total{tool=\"rates\",result=\"miss\"}"), 1.0);
    for path in ["/api/v1/tools/rates/stats", "/api/v1/tools/rates/stats?window=1h"] {
        assert_eq!(send(&server, "GET", path, None, &[]).await.expect_status(200)["calls"], 3, "{path}");
    }
    let records = send(&server, "GET", "/api/v1/calls?tool=rates", None, &[]).await.expect_status(200);
    let cached = records["items"].as_array().unwrap().iter().filter(|call| call["cached"] == true).count();
    assert_eq!((records["items"].as_array().unwrap().len(), cached), (3, 2));
}

#[tokio::test]
async fn tools_that_nobody_called_take_little_of_the_page() {
    let tool = |n: usize| {
        let answer = |_: Value, _: CallContext| async { Ok::<_, ToolError>(json!(1)) };
        dynamic(&format!("a_tool_with_quite_a_long_name_{n:04}"), json!({"type": "object"}), answer).read_only()
    };
    let hub = ToolHub::builder().tools((0..5_000).map(tool)).build().await.unwrap();
    for n in 0..50 {
        let _ = hub.call(format!("a_tool_with_quite_a_long_name_{n:04}"), json!({})).await;
    }
    let server = Server::new(hub.clone(), Arc::new(Memory::new()), settings()).router();
    let page = send(&server, "GET", "/metrics", None, &[]).await.text;
    assert!(page.len() < 1_500_000, "{} bytes", page.len());
    assert_eq!(page.matches("gen_ai_execute_tool_duration_seconds_count").count(), 50);
    let idle = "toolhub_tool_status{tool=\"a_tool_with_quite_a_long_name_4999\",status=\"available\"}";
    assert_eq!(metric_value(&page, idle), 1.0);
    assert_eq!(page.matches("a_tool_with_quite_a_long_name_4999").count(), 1);
}

#[tokio::test]
async fn durations_have_fractions_of_a_millisecond() {
    let api = api_fixture().await;
    let call = api.post("/api/v1/tools/add/calls", json!({"arguments": {"a": 1, "b": 2}})).await.expect_status(200);
    assert!(call["durationMs"].as_f64().unwrap() > 0.0, "{call}");
    let path = format!("/api/v1/calls/{}", call["id"].as_str().unwrap());
    assert_eq!(api.get(&path).await.expect_status(200)["durationMs"], call["durationMs"]);
}

#[tokio::test]
async fn changes_of_a_status_are_counted_although_nobody_listens() {
    let api = api_fixture().await;
    for status in ["maintenance", "available", "maintenance"] {
        api.request("PUT", "/api/v1/tools/look/status", Some(json!({"status": status})), &[]).await.expect_status(200);
    }
    let page = metrics_page(&api).await;
    let changed = |from: &str, to: &str| {
        metric_value(
            &page,
            &format!("toolhub_tool_status_transitions_total{{tool=\"look\",from=\"{from}\",to=\"{to}\"}}"),
        )
    };
    assert_eq!((changed("available", "maintenance"), changed("maintenance", "available")), (2.0, 1.0));
    assert_eq!(metric_value(&page, "toolhub_tool_status{tool=\"look\",status=\"maintenance\"}"), 1.0);
}

#[tokio::test]
async fn questions_count_until_they_are_answered() {
    let api = api_fixture().await;
    let ask = async |what: &str| {
        let body = json!({"arguments": {"what": what}, "threadId": "t"});
        let response = api.request("POST", "/api/v1/tools/order/calls", Some(body), &[("prefer", "wait=0")]).await;
        response.json()
    };
    ask("tea").await;
    ask("milk").await;
    let pending = metrics_page(&api).await;
    assert_eq!(metric_value(&pending, "toolhub_approvals_pending"), 2.0);
    assert_eq!(metric_value(&pending, "toolhub_approval_wait_seconds_count"), 0.0);
    assert_eq!(metric_value(&pending, "toolhub_threads_active"), 1.0);
    let list = api.get("/api/v1/approvals?state=pending").await.expect_status(200);
    let id = list["items"][0]["id"].as_str().unwrap();
    api.post(&format!("/api/v1/approvals/{id}"), json!({"outcome": "cancel"})).await.expect_status(200);
    let answered = metrics_page(&api).await;
    assert_eq!(metric_value(&answered, "toolhub_approvals_pending"), 1.0);
    assert_eq!(metric_value(&answered, "toolhub_approval_wait_seconds_count"), 1.0);
    // The next hub on the same store finds the pending approval.
    let next = ToolHub::builder().store(api.store.clone()).build().await.unwrap();
    while next.approval_stats().pending != 1 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn the_store_and_lost_events_are_measured() {
    let api = api_fixture().await;
    let mut listener = api.hub.subscribe();
    assert_eq!(metric_value(&metrics_page(&api).await, "toolhub_events_dropped_total"), 0.0);
    // More events than a subscriber's buffer holds.
    for _ in 0..4_200 {
        let _ = api.hub.call("add", json!({"a": 1, "b": 2})).await;
    }
    let _ = api.hub.call("broken", json!({})).await;
    while listener.try_next().is_some() {}
    let page = metrics_page(&api).await;
    assert!(metric_value(&page, "toolhub_events_dropped_total") > 0.0, "{page}");
    let commits = "toolhub_store_operation_seconds_count{backend=\"memory\",op=\"commit\"}";
    assert!(metric_value(&page, commits) > 0.0);
    let quick = "toolhub_store_operation_seconds_bucket{backend=\"memory\",op=\"commit\",le=\"+Inf\"}";
    assert_eq!(metric_value(&page, quick), metric_value(&page, commits));
}

#[tokio::test]
async fn states_are_counted_by_their_kind() {
    let api = api_fixture().await;
    let put = async |context: &str, kind: &str, body: Value| {
        api.request("PUT", &format!("/api/v1/state/contexts/{context}/{kind}"), Some(body), &[]).await
    };
    for (context, kind) in [("a%2Fcart", "business"), ("b%2Fcart", "business"), ("b%2Fcart", "connection")] {
        put(context, kind, json!({"data": {"tea": 1}})).await.expect_status(201);
    }
    put("a%2Fseen", "cache", json!({"data": {}, "ttl": "1h"})).await.expect_status(201);
    let page = metrics_page(&api).await;
    let kinds = ["business", "cache", "connection", "session"];
    let counts = kinds.map(|kind| metric_value(&page, &format!("toolhub_state_entries{{type=\"{kind}\"}}")));
    assert_eq!(counts, [2.0, 1.0, 1.0, 0.0], "{page}");
}

#[tokio::test(start_paused = true)]
async fn states_are_counted_again_after_a_rest_and_only_when_somebody_looks() {
    let api = api_fixture().await;
    let put = async |context: &str| {
        let path = format!("/api/v1/state/contexts/{context}%2Fcart/business");
        api.request("PUT", &path, Some(json!({"data": {}})), &[]).await.expect_status(201);
    };
    let business = async || metric_value(&metrics_page(&api).await, "toolhub_state_entries{type=\"business\"}");
    put("a").await;
    assert_eq!(business().await, 1.0);
    put("b").await;
    assert_eq!(business().await, 1.0, "the last count is shown until the next is due");
    tokio::time::advance(std::time::Duration::from_secs(2)).await;
    put("c").await;
    assert_eq!(business().await, 3.0);
}

#[tokio::test]
async fn what_was_built_is_told_as_the_program_says_it() {
    let hub = ToolHub::builder().build().await.unwrap();
    let mut settings = settings();
    settings.build = BuildInfo { version: "7.1".into(), revision: "abc".into(), rustc: "1.95.0".into() };
    let router = Server::new(hub, Arc::new(Memory::default()), settings).router();
    let page = send(&router, "GET", "/metrics", None, &[]).await.text;
    assert_eq!(metric_value(&page, "toolhub_build_info{version=\"7.1\",revision=\"abc\",rustc=\"1.95.0\"}"), 1.0);
}

/// A store that hangs when the test says so.
#[derive(Default)]
struct StallingStore {
    memory: Memory,
    stalled: AtomicBool,
    unwritable: AtomicBool,
    slow: AtomicBool,
}

impl StallingStore {
    async fn wait_if_stalled(&self) {
        if self.stalled.load(SeqCst) {
            std::future::pending::<()>().await;
        }
    }
}

impl Backend for StallingStore {
    fn load<'a>(&'a self, keys: &'a [RowKey], now: Timestamp) -> BoxFuture<'a, Result<Vec<Option<Row>>, StoreError>> {
        Box::pin(async move {
            self.wait_if_stalled().await;
            self.memory.load(keys, now).await
        })
    }

    fn commit(&self, batch: Batch, now: Timestamp) -> BoxFuture<'_, Result<Vec<u64>, StoreError>> {
        Box::pin(async move {
            self.wait_if_stalled().await;
            self.memory.commit(batch, now).await
        })
    }

    fn scan(&self, scan: Scan, now: Timestamp) -> BoxFuture<'_, Result<Page, StoreError>> {
        Box::pin(async move {
            self.wait_if_stalled().await;
            self.memory.scan(scan, now).await
        })
    }

    fn sweep(&self, most: usize, now: Timestamp) -> BoxFuture<'_, Result<usize, StoreError>> {
        self.memory.sweep(most, now)
    }

    fn watch(&self, table: Table) -> Watcher {
        self.memory.watch(table)
    }

    fn write_error(&self) -> Option<String> {
        self.unwritable.load(SeqCst).then(|| "out of order".into())
    }

    fn warnings(&self) -> Vec<String> {
        self.slow.load(SeqCst).then(|| "syncs are slow".into()).into_iter().collect()
    }
}

#[tokio::test]
async fn a_server_whose_store_cannot_write_is_not_ready() {
    let store = Arc::new(StallingStore::default());
    let hub = ToolHub::builder().store(store.clone()).build().await.unwrap();
    let router = Server::new(hub, Arc::new(Memory::new()), settings()).router();
    for unwritable in [false, true, false] {
        store.unwritable.store(unwritable, SeqCst);
        assert_eq!(send(&router, "GET", "/readyz", None, &[]).await.status, if unwritable { 503 } else { 200 });
    }
}

#[tokio::test]
async fn a_server_whose_store_warns_is_ready_and_says_so_once() {
    let store = Arc::new(StallingStore::default());
    let hub = ToolHub::builder().store(store.clone()).build().await.unwrap();
    let router = Server::new(hub, store.clone(), settings()).router();
    for slow in [false, true] {
        store.slow.store(slow, SeqCst);
        let ready = send(&router, "GET", "/readyz?verbose", None, &[]).await;
        let lines = ready.text.matches("[!]store warning: syncs are slow\n").count();
        assert_eq!((ready.status, lines), (200, usize::from(slow)), "{}", ready.text);
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_answer_hides_no_number_that_is_known_without_it() {
    let store = Arc::new(StallingStore::default());
    let look =
        dynamic(
            "look",
            json!({"type": "object"}),
            |_: Value, _: CallContext| async move { Ok::<_, ToolError>(json!(1)) },
        );
    let hub = ToolHub::builder().store(store.clone()).tool(look.read_only()).build().await.unwrap();
    let router = Server::new(hub.clone(), store.clone(), settings()).router();
    store.stalled.store(true, SeqCst);
    assert!(hub.call("look", json!({})).await.error.is_none());
    let page = send(&router, "GET", "/metrics", None, &[]).await.text;
    let calls = "toolhub_tool_calls_total{tool=\"look\",kind=\"stateless\",outcome=\"success\"}";
    assert_eq!(metric_value(&page, calls), 1.0);
    assert_eq!(metric_value(&page, "toolhub_approvals_pending"), 0.0);
    assert!(!page.contains("toolhub_state_entries{"), "no count is not the same as zero");
    assert!(page.contains("toolhub_build_info"), "the page is complete");
}

//! The numbers of `/metrics`, after things that really happened.

use serde_json::json;
use toolhub_core::ToolHub;

use crate::support_api::{Shop, shop};

/// The number of a line that begins with this name and these labels.
#[track_caller]
fn number(page: &str, line: &str) -> f64 {
    let found = page.lines().find_map(|found| found.strip_prefix(line)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("`{line}` is missing:\n{page}")).parse().unwrap()
}

async fn page(shop: &Shop) -> String {
    let answer = shop.get("/metrics").await;
    assert_eq!(answer.status, 200);
    answer.text
}

#[tokio::test]
async fn how_long_calls_took_is_told_apart_by_how_they_ended() {
    let shop = shop().await;
    shop.post("/api/v1/tools/add/calls", json!({"arguments": {"a": 1, "b": 2}})).await.is(200);
    shop.post("/api/v1/tools/add/calls", json!({"arguments": {"a": i64::MAX, "b": 2}})).await.is(200);
    shop.post("/api/v1/tools/add/calls", json!({"arguments": {"a": 1}})).await.is(422);
    let page = page(&shop).await;
    let took = |end: &str, error: &str| {
        let labels = format!("gen_ai_tool_name=\"add\",gen_ai_tool_type=\"function\",error_type=\"{error}\"");
        number(&page, &format!("gen_ai_execute_tool_duration_seconds_{end}{{{labels}}}"))
    };
    assert_eq!((took("count", ""), took("count", "tool_error")), (1.0, 1.0));
    assert!(took("sum", "") > 0.0);
    let ended = |outcome: &str| {
        let labels = format!("tool=\"add\",kind=\"stateless\",outcome=\"{outcome}\"");
        number(&page, &format!("toolhub_tool_calls_total{{{labels}}}"))
    };
    assert_eq!((ended("success"), ended("tool_error"), ended("arguments_invalid")), (1.0, 1.0, 1.0));
    assert!(!page.contains("error_type=\"arguments_invalid\""), "such a call does not reach the tool");
}

#[tokio::test]
async fn changes_of_a_status_are_counted_although_nobody_listens() {
    let shop = shop().await;
    for status in ["maintenance", "available", "maintenance"] {
        shop.ask("PUT", "/api/v1/tools/look/status", Some(json!({"status": status})), &[]).await.is(200);
    }
    let page = page(&shop).await;
    let changed = |from: &str, to: &str| {
        number(&page, &format!("toolhub_tool_status_transitions_total{{tool=\"look\",from=\"{from}\",to=\"{to}\"}}"))
    };
    assert_eq!((changed("available", "maintenance"), changed("maintenance", "available")), (2.0, 1.0));
    assert_eq!(number(&page, "toolhub_tool_status{tool=\"look\",status=\"maintenance\"}"), 1.0);
}

#[tokio::test]
async fn questions_count_until_they_are_answered() {
    let shop = shop().await;
    let ask = async |what: &str| {
        let body = json!({"arguments": {"what": what}, "threadId": "t"});
        let asked = shop.ask("POST", "/api/v1/tools/order/calls", Some(body), &[("prefer", "wait=0")]).await;
        asked.json()
    };
    ask("tea").await;
    ask("milk").await;
    let waits = page(&shop).await;
    assert_eq!(number(&waits, "toolhub_approvals_pending"), 2.0);
    assert_eq!(number(&waits, "toolhub_approval_wait_seconds_count"), 0.0);
    assert_eq!(number(&waits, "toolhub_threads_active"), 1.0);
    let list = shop.get("/api/v1/approvals?state=pending").await.is(200);
    let id = list["items"][0]["id"].as_str().unwrap();
    shop.post(&format!("/api/v1/approvals/{id}"), json!({"outcome": "cancel"})).await.is(200);
    let answered = page(&shop).await;
    assert_eq!(number(&answered, "toolhub_approvals_pending"), 1.0);
    assert_eq!(number(&answered, "toolhub_approval_wait_seconds_count"), 1.0);
    // The next hub on the same store finds the one that is left.
    let next = ToolHub::builder().shared_store(shop.store.clone()).build().await.unwrap();
    while next.approval_stats().pending != 1 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn the_store_and_lost_events_are_measured() {
    let shop = shop().await;
    let mut listener = shop.hub.subscribe();
    assert_eq!(number(&page(&shop).await, "toolhub_events_dropped_total"), 0.0);
    // More than a listener may be behind, whatever each call tells.
    for _ in 0..4_200 {
        let _ = shop.hub.call("add", json!({"a": 1, "b": 2})).await;
    }
    let _ = shop.hub.call("broken", json!({})).await;
    while listener.try_next().is_some() {}
    let page = page(&shop).await;
    assert!(number(&page, "toolhub_events_dropped_total") > 0.0, "{page}");
    let commits = "toolhub_store_operation_seconds_count{backend=\"memory\",op=\"commit\"}";
    assert!(number(&page, commits) > 0.0);
    let quick = "toolhub_store_operation_seconds_bucket{backend=\"memory\",op=\"commit\",le=\"+Inf\"}";
    assert_eq!(number(&page, quick), number(&page, commits));
}

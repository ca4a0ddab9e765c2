//! What would happen to a call is explained without making it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use toolhub_core::{
    BeforeDecision, BoxFuture, CallContext, Hook, HookedCall, OnExcess, RateLimit, Rule, ToolError, ToolHub,
    backend::Memory, dynamic,
};
use toolhub_server::Server;

use crate::{
    support_api::{ApiFixture, api_fixture, send, settings},
    support_state::state_fixture,
};

async fn explain(api: &ApiFixture, tool: &str, body: Value) -> Value {
    api.post(&format!("/api/v1/tools/{tool}/explain"), body).await.expect_status(200)["call"].clone()
}

#[tokio::test]
async fn a_dry_run_runs_counts_and_stores_nothing() {
    let api = api_fixture().await;
    for tool in ["add", "order", "slow", "broken", "rare", "look", "report"] {
        for _ in 0..5 {
            explain(&api, tool, json!({"threadId": "t1", "arguments": {"a": 1}})).await;
        }
    }
    assert_eq!(api.started.available_permits(), 0, "no tool runs");
    for list in ["calls", "refusals", "approvals", "threads"] {
        let listed = api.get(&format!("/api/v1/{list}")).await.expect_status(200);
        assert_eq!(listed["items"], json!([]), "{list}");
    }
    let stats = api.get("/api/v1/tools/add/stats").await.expect_status(200);
    assert_eq!((&stats["calls"], &stats["refusals"]), (&json!(0), &json!({})));
    assert_eq!(api.get("/api/v1/tools/broken").await.expect_status(200)["status"], "available");
    let rare = explain(&api, "rare", json!({})).await;
    assert_eq!(rare["rates"][0]["remaining"], 2);
}

#[tokio::test]
async fn a_dry_run_names_what_is_wrong_with_the_arguments() {
    let api = api_fixture().await;
    let fits = explain(&api, "add", json!({"arguments": {"a": 1, "b": 2}})).await;
    assert_eq!((&fits["result"], &fits["problems"]), (&json!("run"), &json!([])));
    assert_eq!(fits["rule"], json!({"decision": "allow", "rule": "allow by default"}));
    assert_eq!((&fits["cache"], &fits["hooks"], &fits["waitsMs"]), (&json!("off"), &json!(false), &json!(0)));
    let wrong = explain(&api, "add", json!({"arguments": {"a": 1, "b": "x"}})).await;
    assert_eq!((&wrong["result"], &wrong["error"]["code"]), (&json!("refused"), &json!("arguments_invalid")));
    assert_eq!(wrong["problems"][0]["pointer"], "/b");
    let path = "/api/v1/tools/add/explain";
    let text = api.post(path, json!({"arguments": {}})).await.expect_status(200)["text"].clone();
    assert!(
        text.as_str().unwrap().contains("This call would be refused: the arguments of `add` are not valid"),
        "{text}"
    );
    let chinese = api.request("POST", path, Some(json!({})), &[("accept-language", "zh")]).await;
    assert_eq!(chinese.header("content-language"), "zh");
    assert!(chinese.expect_status(200)["text"].as_str().unwrap().contains("此调用将被拒绝"));
    let unknown = api.post("/api/v1/tools/ad/explain", json!({})).await.expect_problem(404, "tool_not_found");
    assert_eq!(unknown["suggestions"], json!(["add"]));
    api.post(path, json!({"threadId": "a b"})).await.expect_problem(422, "invalid_request");
    let misplaced = api.post(path, json!({"a": 1, "b": 2})).await.expect_problem(422, "invalid_request");
    assert!(misplaced["hint"].as_str().unwrap().contains("arguments"), "{misplaced}");
}

#[tokio::test]
async fn a_dry_run_applies_rates_dependencies_statuses_and_grants() {
    let api = api_fixture().await;
    let call = async |tool: &str| api.post(&format!("/api/v1/tools/{tool}/calls"), json!({"threadId": "t1"})).await;
    let in_thread = json!({"threadId": "t1"});
    for remaining in [2, 1] {
        let rare = explain(&api, "rare", json!({})).await;
        assert_eq!((&rare["result"], &rare["rates"][0]["remaining"]), (&json!("run"), &json!(remaining)));
        call("rare").await.expect_status(200);
    }
    let rare = explain(&api, "rare", json!({})).await;
    assert_eq!((&rare["result"], &rare["error"]["code"]), (&json!("refused"), &json!("rate_limited")));
    assert!(rare["error"]["retryAfterMs"].as_u64().unwrap() > 0, "{rare}");

    let report = explain(&api, "report", in_thread.clone()).await;
    assert_eq!((&report["result"], &report["error"]["code"]), (&json!("refused"), &json!("dependency_not_met")));
    call("look").await.expect_status(200);
    assert_eq!(explain(&api, "report", in_thread.clone()).await["result"], "run");
    assert_eq!(explain(&api, "report", json!({"threadId": "t2"})).await["result"], "refused");

    for _ in 0..3 {
        call("broken").await;
    }
    let broken = explain(&api, "broken", in_thread.clone()).await;
    assert_eq!(broken["error"]["code"], "tool_failed_status");
    assert_eq!(call("broken").await.json()["code"], "tool_failed_status");

    let order = explain(&api, "order", in_thread.clone()).await;
    assert_eq!(
        (&order["result"], &order["rule"]["decision"], &order["grant"]),
        (&json!("ask"), &json!("ask"), &Value::Null)
    );
    let asked = call("order").await.expect_status(202);
    let approval = format!("/api/v1/approvals/{}", asked["approval"]["id"].as_str().unwrap());
    api.post(&approval, json!({"outcome": "proceed_always"})).await.expect_status(200);
    let order = explain(&api, "order", in_thread).await;
    assert_eq!((&order["result"], &order["rule"]["decision"]), (&json!("run"), &json!("ask")));
    assert!(order["grant"]["id"].is_string(), "{order}");
}

struct CountingHook(Arc<AtomicUsize>);

impl Hook for CountingHook {
    fn before<'a>(&'a self, _: &'a HookedCall<'a>) -> BoxFuture<'a, Result<BeforeDecision, ToolError>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Box::pin(async { Ok(BeforeDecision::Pass) })
    }
}

#[tokio::test]
async fn a_dry_run_says_which_rule_decides_and_whether_a_result_is_cached() {
    let simple = |name: &str| {
        let any = json!({"type": "object"});
        dynamic(name, any, |_: Value, _: CallContext| async move { Ok::<_, ToolError>(json!(1)) })
    };
    let hooked = Arc::new(AtomicUsize::new(0));
    let slowed =
        RateLimit { on_excess: OnExcess::Wait { at_most: Duration::from_secs(7200) }, ..RateLimit::per_hour(1) };
    let store = Arc::new(Memory::default());
    let hub = ToolHub::builder()
        .store(store.clone())
        .tool(simple("find").read_only().cache(Duration::from_secs(600)))
        .tool(simple("base").read_only().cache(Duration::from_secs(600)))
        .tool(simple("next").after("base"))
        .tool(simple("pay"))
        .tool(simple("slowed").read_only().rate_limit(slowed))
        .tool(simple("hooked"))
        .hook("hooked", CountingHook(hooked.clone()))
        .rule(Rule::deny("pay").when("/to", "mallory").reason("not to Mallory"))
        .build()
        .await
        .unwrap();
    let router = Server::new(hub.clone(), store, settings()).router();
    let explain = async |tool: &str, body: Value| {
        let path = format!("/api/v1/tools/{tool}/explain");
        send(&router, "POST", &path, Some(body.to_string()), &[]).await.expect_status(200)["call"].clone()
    };
    let (known, other) = (json!({"arguments": {"x": 1}}), json!({"arguments": {"x": 2}}));
    assert_eq!(explain("find", known.clone()).await["cache"], "miss");
    hub.call("find", json!({"x": 1})).await;
    let cached = explain("find", known).await;
    assert_eq!((&cached["cache"], &cached["result"]), (&json!("hit"), &json!("cached")));
    assert_eq!(explain("find", other).await["cache"], "miss");
    assert_eq!(explain("base", json!({"threadId": "t1"})).await["cache"], "bypassed");

    let denied = explain("pay", json!({"arguments": {"to": "mallory"}})).await;
    assert_eq!((&denied["result"], &denied["error"]["code"]), (&json!("refused"), &json!("forbidden")));
    assert_eq!((&denied["rule"]["decision"], &denied["rule"]["reason"]), (&json!("deny"), &json!("not to Mallory")));
    let allowed = explain("pay", json!({"arguments": {"to": "alice"}})).await;
    assert_eq!((&allowed["result"], &allowed["rule"]["decision"]), (&json!("run"), &json!("allow")));

    hub.call("slowed", json!({})).await;
    let waits = explain("slowed", json!({})).await;
    assert_eq!(waits["result"], "wait");
    assert!((3_500_000..=3_600_000).contains(&waits["waitsMs"].as_u64().unwrap()), "{waits}");

    assert_eq!(explain("hooked", json!({})).await["hooks"], true);
    assert_eq!(hooked.load(Ordering::Relaxed), 0, "a hook may have effects");
}

#[tokio::test]
async fn a_dry_run_needs_the_right_to_read_tools_and_sees_its_own_tenant_only() {
    let server = state_fixture().await;
    server.call("look", "t1", json!({})).await;
    let explain = async |who: &str, tool: &str| {
        let body = json!({"threadId": "t1"});
        server.request(who, &format!("POST /api/v1/tools/{tool}/explain"), Some(body), &[]).await
    };
    assert_eq!(explain("ann", "report").await.expect_status(200)["call"]["result"], "run");
    assert_eq!(explain("bob", "report").await.expect_status(200)["call"]["result"], "refused");
    explain("caller", "report").await.expect_problem(403, "forbidden");
    assert_eq!(explain("ann", "never").await.expect_status(200)["call"]["rule"]["decision"], "deny");
}

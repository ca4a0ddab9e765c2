//! The two routes outside `/api/v1`, exactly as existing agent clients use them.

use serde_json::{Value, json};

use crate::support_api::{ApiFixture, api_fixture};

async fn call(api: &ApiFixture, tool: &str) {
    api.post(&format!("/api/v1/tools/{tool}/calls"), json!({"threadId": "thread_123"})).await.expect_status(200);
}

fn members(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[tokio::test]
async fn every_tool_of_a_thread_is_told_with_three_members() {
    let api = api_fixture().await;
    call(&api, "look").await;
    for _ in 0..3 {
        call(&api, "broken").await;
    }
    let reply = api.get("/agents/thread_123/tool-states").await;
    let body = reply.expect_status(200);
    assert_eq!(members(&body), ["data", "success"]);
    assert_eq!(members(&body["data"]), ["agentId", "timestamp", "toolStates"]);
    assert_eq!((&body["success"], &body["data"]["agentId"]), (&json!(true), &json!("thread_123")));
    let states = &body["data"]["toolStates"];
    assert_eq!(members(states), ["add", "broken", "look", "order", "rare", "report", "slow"]);
    for (name, state) in states.as_object().unwrap() {
        assert_eq!(members(state), ["lastUpdated", "reason", "status"], "{name}");
    }
    let state_of = |name: &str| (states[name]["status"].as_str().unwrap(), states[name]["reason"].as_str().unwrap());
    assert_eq!(state_of("look"), ("available", "executed successfully"));
    assert_eq!(state_of("broken"), ("failed", "failed 3 times in a row"));
    assert_eq!(state_of("report"), ("available", "dependencies met"));
    assert_eq!(state_of("add"), ("available", "never run"));
    let thread = api.hub.thread(&Default::default(), &toolhub_core::ids::ThreadId::new("thread_123").unwrap()).await;
    assert_eq!(states["add"]["lastUpdated"], thread.unwrap().unwrap().created.to_string());
    assert_eq!(
        api.get("/api/v1/threads/thread_123/tool-states").await.expect_status(200)["data"]["toolStates"],
        *states
    );
}

#[tokio::test]
async fn more_is_told_when_it_is_asked_for_and_reasons_come_in_chinese() {
    let api = api_fixture().await;
    call(&api, "broken").await;
    let full = api.get("/agents/thread_123/tool-states?detail=full").await.expect_status(200);
    let broken = &full["data"]["toolStates"]["broken"];
    let all = [
        "consecutiveFailures",
        "dependencies",
        "lastFailureTime",
        "lastSuccessTime",
        "lastUpdated",
        "reason",
        "shouldRebind",
        "status",
    ];
    assert_eq!(members(broken), all);
    assert_eq!((&broken["consecutiveFailures"], &broken["dependencies"]), (&json!(1), &json!([])));
    assert_eq!(members(&full["data"]), ["agentId", "details", "summary", "timestamp", "toolStates"]);
    let waits = json!([{"toolName": "look", "met": false, "lastSuccessTime": null}]);
    assert_eq!(full["data"]["toolStates"]["report"]["dependencies"], waits);
    let text = full["data"]["details"].as_str().unwrap();
    assert!(text.starts_with(full["data"]["summary"].as_str().unwrap()), "{text}");
    assert!(
        text.contains("\nbroken: available since ")
            && text.contains(" (the last call failed); consecutive failures 1, last success none, last failure "),
        "{text}"
    );
    assert!(text.contains("; depends on look (missing)"), "{text}");
    call(&api, "look").await;
    let full = api
        .request("GET", "/api/v1/threads/thread_123/tool-states?detail=full", None, &[("accept-language", "zh")])
        .await
        .expect_status(200);
    let text = full["data"]["details"].as_str().unwrap();
    assert!(text.contains("（依赖已满足）；连续失败 0 次，上次成功 无，上次失败 无；依赖 look（已满足）"), "{text}");
    let chinese =
        api.request("GET", "/agents/thread_123/tool-states", None, &[("accept-language", "zh-CN,zh;q=0.9")]).await;
    assert_eq!(chinese.expect_status(200)["data"]["toolStates"]["add"]["reason"], "尚未执行");
}

#[tokio::test]
async fn a_reset_takes_one_tool_or_all_with_or_without_a_body() {
    let api = api_fixture().await;
    for _ in 0..3 {
        call(&api, "broken").await;
    }
    let path = "/agents/thread_123/tool-states/reset";
    let one = api.post(path, json!({"toolName": "broken"})).await.expect_status(200);
    assert_eq!(one["data"]["reset"], json!(["broken"]));
    assert_eq!(one["data"]["toolStates"]["broken"]["status"], "available");
    let all = api.request("POST", path, None, &[]).await.expect_status(200);
    assert_eq!(all["data"]["reset"].as_array().unwrap().len(), 7);
    assert_eq!(api.post(path, json!({})).await.expect_status(200)["success"], true);
    call(&api, "look").await;
    let forgot = api.post(path, json!({"toolName": "look", "evidence": true})).await.expect_status(200);
    assert_eq!(forgot["data"]["toolStates"]["report"]["status"], "unavailable");
}

#[tokio::test]
async fn problems_there_say_that_it_was_no_success() {
    let api = api_fixture().await;
    call(&api, "look").await;
    let path = "/agents/thread_123/tool-states/reset";
    let problems = [
        api.get("/agents/nobody/tool-states").await.expect_problem(404, "thread_not_found"),
        api.get("/agents/no%20body/tool-states").await.expect_problem(404, "thread_not_found"),
        api.get("/agents/thread_123/tool-states?detail=some").await.expect_problem(422, "invalid_request"),
        api.post(path, json!({"toolName": "brokn"})).await.expect_problem(404, "tool_not_found"),
        api.post(path, json!({"tool": "broken"})).await.expect_problem(422, "invalid_request"),
        api.post("/agents/nobody/tool-states/reset", json!({})).await.expect_problem(404, "thread_not_found"),
    ];
    for problem in &problems {
        assert_eq!(problem["success"], false, "{problem}");
    }
    assert_eq!(problems[3]["suggestions"], json!(["broken"]));
}

#[tokio::test]
async fn a_status_may_hold_for_one_thread_and_a_thread_may_be_bound_again() {
    let api = api_fixture().await;
    call(&api, "look").await;
    let put = async |body: Value| api.request("PUT", "/api/v1/tools/add/status", Some(body), &[]).await;
    let set = put(json!({"status": "maintenance", "reason": "repairs", "threadId": "thread_123"})).await;
    assert_eq!(set.expect_status(200)["reason"], "in maintenance: repairs");
    let states = api.get("/agents/thread_123/tool-states").await.expect_status(200);
    assert_eq!(states["data"]["toolStates"]["add"]["status"], "maintenance");
    assert_eq!(api.get("/api/v1/tools/add").await.expect_status(200)["status"], "available", "for all others");
    put(json!({"status": "failed", "threadId": "nobody"})).await.expect_problem(404, "thread_not_found");
    let rebind = async || {
        let bound = api.request("POST", "/api/v1/threads/thread_123/rebind", None, &[]).await.expect_status(200);
        bound["tools"].as_array().unwrap().contains(&json!("add"))
    };
    assert!(!rebind().await);
    put(json!({"status": "available", "threadId": "thread_123"})).await.expect_status(200);
    assert!(rebind().await);
    api.request("POST", "/api/v1/threads/nobody/rebind", None, &[]).await.expect_problem(404, "thread_not_found");
}

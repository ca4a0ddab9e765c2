//! Runs that wait for people and for results, agents that may use less, and what is counted.

use serde_json::{Value, json};
use toolhub_server::{Scope, Server};

use crate::{
    support_agents::{Cafe, cafe},
    support_api::ask,
    support_door::{key, with_keys},
};

const TALK: &str = "/api/v1/threads/t1/messages";

fn id(of: &Value) -> &str {
    of.as_str().unwrap()
}

#[tokio::test]
async fn a_run_waits_for_a_person_and_goes_on_with_the_answer() {
    let cafe = cafe().await;
    let promised = cafe.say("t1", "call order {\"what\":\"tea\"}").await;
    let told = promised.is(202);
    assert_eq!((&told["status"], &told["calls"][0]["status"]), (&json!("waiting"), &json!("awaiting_approval")));
    let approval = &told["calls"][0]["approval"];
    assert!(id(&approval["url"]).ends_with(id(&approval["id"])));
    let run = cafe.shop.get(promised.header("location")).await.is(200);
    assert_eq!((&run["status"], &run["calls"][0]["approvalId"]), (&json!("waiting"), &approval["id"]));
    // Who looks at the run's events hears the rest of it.
    let events = cafe.shop.stream(&format!("{}/events", promised.header("location")), &[]).await;
    let yes = json!({"outcome": "proceed_once"});
    cafe.shop.post(&format!("/api/v1/approvals/{}", id(&approval["id"])), yes).await.is(200);
    let names: Vec<String> = events.rest().await.into_iter().map(|(name, _)| name).collect();
    for expected in ["approval.resolved", "tool.execution.completed", "message.completed", "run.completed"] {
        assert!(names.iter().any(|name| name == expected), "{expected} is not among {names:?}");
    }
    assert_eq!(names.last().map(String::as_str), Some("run.completed"));
    let run = cafe.shop.get(promised.header("location")).await.is(200);
    assert_eq!((&run["status"], &run["calls"][0]["status"]), (&json!("completed"), &json!("success")));
    assert!(id(&run["content"]).contains("tea"), "{run}");
}

#[tokio::test]
async fn a_no_is_told_to_the_model_and_the_run_ends_well() {
    let cafe = cafe().await;
    let told = cafe.say("t1", "call order {\"what\":\"tea\"}").await.is(202);
    let no = json!({"outcome": "cancel", "reason": "no tea today"});
    cafe.shop.post(&format!("/api/v1/approvals/{}", id(&told["calls"][0]["approval"]["id"])), no).await.is(200);
    let run = cafe.run_until(id(&told["runId"]), |run| run["status"] == "completed").await;
    assert!(id(&run["content"]).contains("no tea today"), "{run}");
}

async fn handed_out(cafe: &Cafe, content: &str) -> Value {
    let said = json!({"content": content, "agent": "outside"});
    let told = cafe.shop.post(TALK, said).await.is(202);
    assert_eq!(told["status"], "waiting");
    told
}

#[tokio::test]
async fn the_work_of_a_call_is_done_outside_and_its_result_brought_back_once() {
    let cafe = cafe().await;
    let told = handed_out(&cafe, "call slow {\"x\":1}").await;
    let call = &told["calls"][0];
    assert_eq!((&call["tool"], &call["arguments"]), (&json!("slow"), &json!({"x": 1})));
    let result = format!("/api/v1/calls/{}/result", id(&call["id"]));
    for wrong in [json!({}), json!({"output": 1, "error": "x"}), json!({"error": " "}), json!({"output": 1, "x": 1})] {
        cafe.shop.post(&result, wrong).await.problem(422, "invalid_request");
    }
    let ended = cafe.shop.post(&result, json!({"output": {"n": 7}})).await.is(200);
    assert_eq!((&ended["status"], &ended["output"]), (&json!("success"), &json!({"n": 7})));
    let run = cafe.run_until(id(&told["runId"]), |run| run["status"] == "completed").await;
    assert!(id(&run["content"]).contains('7'), "{run}");
    cafe.shop.post(&result, json!({"output": 8})).await.problem(409, "call_ended");
    assert_eq!(cafe.shop.began.available_permits(), 0, "the tool itself never ran");
}

#[tokio::test]
async fn only_whoever_may_bring_the_result_is_shown_what_is_secret_in_the_arguments() {
    let cafe = cafe().await;
    let (worker, work) = key("worker", "main", &[Scope::ToolsRead, Scope::ToolsCall]);
    let (reader, read) = key("reader", "main", &[Scope::ToolsRead, Scope::StateRead]);
    let (hub, store, settings) = (cafe.shop.hub.clone(), cafe.shop.store.clone(), with_keys([worker, reader]));
    let router = Server::new(hub, store, settings).agents(cafe.agents.clone()).router();
    let ask = async |key: &str, path: &str, body: Option<Value>| {
        let method = if body.is_some() { "POST" } else { "GET" };
        let (body, bearer) = (body.map(|body| body.to_string()), format!("Bearer {key}"));
        let reply = ask(&router, method, path, body, &[("authorization", &bearer)]).await;
        assert!(reply.status < 300, "{reply:?}");
        reply
    };
    let said = json!({"content": "call slow {\"x\":1,\"token\":\"hunter2\"}", "agent": "outside"});
    let told = ask(&work, TALK, Some(said)).await.json();
    let whole = json!({"x": 1, "token": "hunter2"});
    assert_eq!(told["calls"][0]["arguments"], whole);
    let (run, call) = (format!("/api/v1/runs/{}", id(&told["runId"])), id(&told["calls"][0]["id"]));
    assert_eq!(ask(&work, &run, None).await.json()["calls"][0]["arguments"], whole);
    assert_eq!(ask(&read, &run, None).await.json()["calls"][0]["arguments"], json!({"x": 1, "token": "[redacted]"}));
    let call = format!("/api/v1/calls/{call}");
    for path in [run.as_str(), "/api/v1/threads/t1/runs", "/api/v1/threads/t1/export", &call, "/api/v1/calls"] {
        let mut shown = ask(&read, path, None).await.json();
        // The person has said it there.
        let _ = shown.as_object_mut().and_then(|members| members.remove("messages"));
        let shown = shown.to_string();
        assert!(shown.contains("slow") && !shown.contains("hunter2"), "{path}: {shown}");
    }
    ask(&work, &format!("{call}/result"), Some(json!({"output": 1}))).await;
}

#[tokio::test]
async fn an_error_from_outside_counts_and_is_told_and_null_is_a_result() {
    let cafe = cafe().await;
    let told = handed_out(&cafe, "call slow").await;
    let result = |call: &Value| format!("/api/v1/calls/{}/result", id(&call["id"]));
    let ended = cafe.shop.post(&result(&told["calls"][0]), json!({"error": "the wire is cut"})).await.is(200);
    assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("error"), &json!("tool_error")));
    let run = cafe.run_until(id(&told["runId"]), |run| run["status"] == "completed").await;
    assert!(id(&run["content"]).contains("the wire is cut"), "{run}");
    let states = cafe.shop.get("/agents/t1/tool-states?detail=full").await.is(200);
    assert_eq!(states["data"]["toolStates"]["slow"]["consecutiveFailures"], 1);
    let told = handed_out(&cafe, "call slow").await;
    let ended = cafe.shop.post(&result(&told["calls"][0]), json!({"output": null})).await.is(200);
    assert_eq!(ended["status"], "success");
}

#[tokio::test]
async fn only_calls_that_are_done_outside_take_results() {
    let cafe = cafe().await;
    let told = cafe.say("t1", "call add {\"a\":1,\"b\":1}").await.is(200);
    let done = format!("/api/v1/calls/{}/result", id(&told["calls"][0]["id"]));
    let refused = cafe.shop.post(&done, json!({"output": 1})).await;
    assert_eq!(refused.status, 409, "{refused:?}");
    let promised =
        cafe.shop.ask("POST", TALK, Some(json!({"content": "call slow"})), &[("prefer", "respond-async")]).await;
    let run = cafe.run_until(id(&promised.is(202)["runId"]), |run| run["calls"][0]["status"] == "executing").await;
    let runs_here = format!("/api/v1/calls/{}/result", id(&run["calls"][0]["id"]));
    cafe.shop.post(&runs_here, json!({"output": 1})).await.problem(409, "conflict");
    cafe.shop.gate.add_permits(1);
    cafe.shop.post("/api/v1/calls/nonsense/result", json!({"output": 1})).await.problem(404, "call_not_found");
}

#[tokio::test]
async fn a_cancelled_run_takes_its_calls_along() {
    let cafe = cafe().await;
    let said = Some(json!({"content": "call slow"}));
    let told = cafe.shop.ask("POST", TALK, said, &[("prefer", "respond-async")]).await.is(202);
    cafe.shop.began.acquire().await.unwrap().forget();
    cafe.shop.ask("POST", &format!("/api/v1/runs/{}/cancel", id(&told["runId"])), None, &[]).await.is(202);
    let run = cafe.run_until(id(&told["runId"]), |run| run["status"] == "cancelled").await;
    assert_eq!(run["calls"][0]["status"], "cancelled");
    cafe.shop.dropped.acquire().await.unwrap().forget();
    // The conversation is whole: the call has its result, and the next message is answered.
    assert_eq!(cafe.say("t1", "hello").await.is(200)["message"]["content"], "hello");
}

#[tokio::test]
async fn a_thread_in_which_a_run_waits_says_how_it_can_be_taken_away() {
    let cafe = cafe().await;
    let run = cafe.say("t1", "call order {\"what\":\"tea\"}").await.is(202)["runId"].as_str().unwrap().to_owned();
    let delete = async || cafe.shop.ask("DELETE", "/api/v1/threads/t1", None, &[]).await;
    let busy = delete().await.problem(409, "thread_busy");
    assert_eq!(busy["runId"], run.as_str());
    let (method, path) = ("POST", format!("/api/v1/runs/{run}/cancel"));
    assert!(busy["hint"].as_str().unwrap().contains(&format!("{method} {path}")), "{busy}");
    cafe.shop.ask(method, &path, None, &[]).await.is(202);
    cafe.run_until(&run, |run| run["status"] == "cancelled").await;
    delete().await.is(204);
    // A call without a run is told apart.
    let call = Some(json!({"arguments": {}, "threadId": "t2"}));
    cafe.shop.ask("POST", "/api/v1/tools/slow/calls", call, &[("prefer", "respond-async")]).await.is(202);
    cafe.shop.began.acquire().await.unwrap().forget();
    let busy = cafe.shop.ask("DELETE", "/api/v1/threads/t2", None, &[]).await.problem(409, "thread_busy");
    assert!(busy["runId"].is_null() && busy["hint"].as_str().unwrap().contains("?threadId=t2"), "{busy}");
    cafe.shop.gate.add_permits(1);
}

#[tokio::test]
async fn the_states_of_a_thread_are_those_of_its_toolset() {
    let cafe = cafe().await;
    cafe.shop.post(TALK, json!({"content": "hello", "agent": "sums"})).await.is(200);
    for path in ["/agents/t1/tool-states", "/api/v1/threads/t1/tool-states"] {
        let states = cafe.shop.get(path).await.is(200);
        let names: Vec<&String> = states["data"]["toolStates"].as_object().unwrap().keys().collect();
        assert_eq!(names, ["add"], "{path}");
    }
    let reset = cafe.shop.ask("POST", "/agents/t1/tool-states/reset", None, &[]).await.is(200);
    assert_eq!(reset["data"]["reset"], json!(["add"]));
    // What is beyond it is not there for its agent.
    let said = json!({"content": "call order {}"});
    let told = cafe.shop.post(TALK, said).await.is(200);
    assert_eq!((&told["agent"], &told["calls"][0]["status"]), (&json!("sums"), &json!("error")));
    cafe.say("t2", "hello").await.is(200);
    let states = cafe.shop.get("/agents/t2/tool-states").await.is(200);
    assert!(states["data"]["toolStates"].as_object().unwrap().len() > 3);
}

#[tokio::test]
async fn a_model_that_fails_is_told_to_whoever_asks_and_the_server_stays_ready() {
    let cafe = cafe().await;
    let ready = async || {
        let reply = cafe.shop.get("/readyz?verbose").await;
        assert_eq!(reply.status, 200);
        reply.text
    };
    assert!(!ready().await.contains("model"), "nobody was asked yet");
    cafe.say("t1", "faint").await.is(200);
    assert!(ready().await.contains("[!]model parrot degraded: failed when it was asked last\n"), "{}", ready().await);
    cafe.say("t1", "hello").await.is(200);
    assert_eq!(ready().await, "[+]door ok\n[+]store ok\n[+]model parrot ok\nok\n");
}

#[tokio::test]
async fn runs_and_models_are_counted() {
    let cafe = cafe().await;
    cafe.say("t1", "hello").await.is(200);
    cafe.say("t1", "faint").await.is(200);
    let page = cafe.shop.get("/metrics").await.text;
    for line in [
        "gen_ai_invoke_agent_duration_seconds_count{gen_ai_agent_name=\"default\",error_type=\"\"} 1",
        "gen_ai_invoke_agent_duration_seconds_count{gen_ai_agent_name=\"default\",error_type=\"model_failed\"} 1",
        "gen_ai_client_operation_duration_seconds_count{gen_ai_operation_name=\"chat\",gen_ai_request_model=\"parrot\",error_type=\"\"} 1",
        "gen_ai_client_operation_duration_seconds_count{gen_ai_operation_name=\"chat\",gen_ai_request_model=\"parrot\",error_type=\"failed\"} 1",
        "gen_ai_client_token_usage_sum{gen_ai_request_model=\"parrot\",gen_ai_token_type=\"input\"} 10",
        "gen_ai_client_token_usage_bucket{gen_ai_request_model=\"parrot\",gen_ai_token_type=\"output\",le=\"4\"} 0",
        "gen_ai_client_token_usage_bucket{gen_ai_request_model=\"parrot\",gen_ai_token_type=\"output\",le=\"16\"} 1",
    ] {
        assert!(page.contains(line), "no {line} in\n{page}");
    }
}

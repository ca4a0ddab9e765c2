//! Runs that wait for approvals and results, agents with fewer tools, and metrics.

use serde_json::{Value, json};
use toolhub_server::{Scope, Server};

use crate::{
    support_agents::{AgentFixture, agent_fixture},
    support_api::{send, settings},
    support_listener::{make_key, settings_with_keys},
};

const MESSAGES_PATH: &str = "/api/v1/threads/t1/messages";

fn as_text(of: &Value) -> &str {
    of.as_str().unwrap()
}

#[tokio::test]
async fn a_run_waits_for_a_person_and_goes_on_with_the_answer() {
    let fixture = agent_fixture().await;
    let promised = fixture.send_message("t1", "call order {\"what\":\"tea\"}").await;
    let answer = promised.expect_status(202);
    assert_eq!((&answer["status"], &answer["calls"][0]["status"]), (&json!("waiting"), &json!("awaiting_approval")));
    let approval = &answer["calls"][0]["approval"];
    assert!(as_text(&approval["url"]).ends_with(as_text(&approval["id"])));
    let run = fixture.api.get(promised.header("location")).await.expect_status(200);
    assert_eq!((&run["status"], &run["calls"][0]["approvalId"]), (&json!("waiting"), &approval["id"]));
    // A client that follows the run gets the remaining events.
    let events = fixture.api.stream(&format!("{}/events", promised.header("location")), &[]).await;
    let yes = json!({"outcome": "proceed_once"});
    fixture.api.post(&format!("/api/v1/approvals/{}", as_text(&approval["id"])), yes).await.expect_status(200);
    let names: Vec<String> = events.collect_rest().await.into_iter().map(|(name, _)| name).collect();
    for expected in ["approval.resolved", "tool.execution.completed", "message.completed", "run.completed"] {
        assert!(names.iter().any(|name| name == expected), "{expected} is not in {names:?}");
    }
    assert_eq!(names.last().map(String::as_str), Some("run.completed"));
    let run = fixture.api.get(promised.header("location")).await.expect_status(200);
    assert_eq!((&run["status"], &run["calls"][0]["status"]), (&json!("completed"), &json!("success")));
    assert!(as_text(&run["content"]).contains("tea"), "{run}");
}

#[tokio::test]
async fn a_no_is_told_to_the_model_and_the_run_ends_well() {
    let fixture = agent_fixture().await;
    let answer = fixture.send_message("t1", "call order {\"what\":\"tea\"}").await.expect_status(202);
    let no = json!({"outcome": "cancel", "reason": "no tea today"});
    fixture
        .api
        .post(&format!("/api/v1/approvals/{}", as_text(&answer["calls"][0]["approval"]["id"])), no)
        .await
        .expect_status(200);
    let run = fixture.run_until(as_text(&answer["runId"]), |run| run["status"] == "completed").await;
    assert!(as_text(&run["content"]).contains("no tea today"), "{run}");
}

async fn send_external(fixture: &AgentFixture, content: &str) -> Value {
    let message = json!({"content": content, "agent": "outside"});
    let answer = fixture.api.post(MESSAGES_PATH, message).await.expect_status(202);
    assert_eq!(answer["status"], "waiting");
    answer
}

#[tokio::test]
async fn the_work_of_a_call_is_done_outside_and_its_result_brought_back_once() {
    let fixture = agent_fixture().await;
    let answer = send_external(&fixture, "call slow {\"x\":1}").await;
    let call = &answer["calls"][0];
    assert_eq!((&call["tool"], &call["arguments"]), (&json!("slow"), &json!({"x": 1})));
    let result = format!("/api/v1/calls/{}/result", as_text(&call["id"]));
    for wrong in [
        json!({}),
        json!({"output": 1, "error": "x"}),
        json!({"error": " "}),
        json!({"error": {"kind": "crashed"}}),
        json!({"output": 1, "x": 1}),
    ] {
        fixture.api.post(&result, wrong).await.expect_problem(422, "invalid_request");
    }
    let ended = fixture.api.post(&result, json!({"output": {"n": 7}})).await.expect_status(200);
    assert_eq!((&ended["status"], &ended["output"]), (&json!("success"), &json!({"n": 7})));
    let run = fixture.run_until(as_text(&answer["runId"]), |run| run["status"] == "completed").await;
    assert!(as_text(&run["content"]).contains('7'), "{run}");
    fixture.api.post(&result, json!({"output": 8})).await.expect_problem(409, "call_ended");
    assert_eq!(fixture.api.started.available_permits(), 0, "the tool itself never ran");
}

#[tokio::test]
async fn only_whoever_may_bring_the_result_is_shown_what_is_secret_in_the_arguments() {
    let fixture = agent_fixture().await;
    let (worker, work) = make_key("worker", "main", &[Scope::ToolsRead, Scope::ToolsCall]);
    let (reader, read) = make_key("reader", "main", &[Scope::ToolsRead, Scope::StateRead]);
    let (hub, store, settings) =
        (fixture.api.hub.clone(), fixture.api.store.clone(), settings_with_keys([worker, reader]));
    let router = Server::new(hub, store, settings).agents(fixture.agents.clone()).router();
    let ask = async |key: &str, path: &str, body: Option<Value>| {
        let method = if body.is_some() { "POST" } else { "GET" };
        let (body, bearer) = (body.map(|body| body.to_string()), format!("Bearer {key}"));
        let reply = send(&router, method, path, body, &[("authorization", &bearer)]).await;
        assert!(reply.status < 300, "{reply:?}");
        reply
    };
    let message = json!({"content": "call slow {\"x\":1,\"token\":\"hunter2\"}", "agent": "outside"});
    let answer = ask(&work, MESSAGES_PATH, Some(message)).await.json();
    let whole = json!({"x": 1, "token": "hunter2"});
    assert_eq!(answer["calls"][0]["arguments"], whole);
    let (run, call) = (format!("/api/v1/runs/{}", as_text(&answer["runId"])), as_text(&answer["calls"][0]["id"]));
    assert_eq!(ask(&work, &run, None).await.json()["calls"][0]["arguments"], whole);
    assert_eq!(ask(&read, &run, None).await.json()["calls"][0]["arguments"], json!({"x": 1, "token": "[redacted]"}));
    let call = format!("/api/v1/calls/{call}");
    for path in [run.as_str(), "/api/v1/threads/t1/runs", "/api/v1/threads/t1/export", &call, "/api/v1/calls"] {
        let mut shown = ask(&read, path, None).await.json();
        // The secret was part of the user's message, so it is in the messages.
        let _ = shown.as_object_mut().and_then(|members| members.remove("messages"));
        let shown = shown.to_string();
        assert!(shown.contains("slow") && !shown.contains("hunter2"), "{path}: {shown}");
    }
    ask(&work, &format!("{call}/result"), Some(json!({"output": 1}))).await;
}

#[tokio::test]
async fn an_error_from_outside_counts_and_is_told_and_null_is_a_result() {
    let fixture = agent_fixture().await;
    let answer = send_external(&fixture, "call slow").await;
    let result = |call: &Value| format!("/api/v1/calls/{}/result", as_text(&call["id"]));
    let ended =
        fixture.api.post(&result(&answer["calls"][0]), json!({"error": "the wire is cut"})).await.expect_status(200);
    assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("error"), &json!("tool_error")));
    let run = fixture.run_until(as_text(&answer["runId"]), |run| run["status"] == "completed").await;
    assert!(as_text(&run["content"]).contains("the wire is cut"), "{run}");
    let states = fixture.api.get("/agents/t1/tool-states?detail=full").await.expect_status(200);
    assert_eq!(states["data"]["toolStates"]["slow"]["consecutiveFailures"], 1);
    let answer = send_external(&fixture, "call slow").await;
    let crashed = json!({"error": {"kind": "crashed", "message": "exit code 139"}});
    let ended = fixture.api.post(&result(&answer["calls"][0]), crashed).await.expect_status(200);
    assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("error"), &json!("crashed")));
    fixture.run_until(as_text(&answer["runId"]), |run| run["status"] == "completed").await;
    let answer = send_external(&fixture, "call slow").await;
    let ended = fixture.api.post(&result(&answer["calls"][0]), json!({"output": null})).await.expect_status(200);
    assert_eq!(ended["status"], "success");
}

#[tokio::test]
async fn only_calls_that_are_done_outside_take_results() {
    let fixture = agent_fixture().await;
    let answer = fixture.send_message("t1", "call add {\"a\":1,\"b\":1}").await.expect_status(200);
    let done = format!("/api/v1/calls/{}/result", as_text(&answer["calls"][0]["id"]));
    let refused = fixture.api.post(&done, json!({"output": 1})).await;
    assert_eq!(refused.status, 409, "{refused:?}");
    let promised = fixture
        .api
        .request("POST", MESSAGES_PATH, Some(json!({"content": "call slow"})), &[("prefer", "respond-async")])
        .await;
    let run = fixture
        .run_until(as_text(&promised.expect_status(202)["runId"]), |run| run["calls"][0]["status"] == "executing")
        .await;
    let runs_here = format!("/api/v1/calls/{}/result", as_text(&run["calls"][0]["id"]));
    fixture.api.post(&runs_here, json!({"output": 1})).await.expect_problem(409, "conflict");
    fixture.api.release.add_permits(1);
    fixture.api.post("/api/v1/calls/nonsense/result", json!({"output": 1})).await.expect_problem(404, "call_not_found");
}

#[tokio::test]
async fn a_cancelled_run_takes_its_calls_along() {
    let fixture = agent_fixture().await;
    let message = Some(json!({"content": "call slow"}));
    let answer =
        fixture.api.request("POST", MESSAGES_PATH, message, &[("prefer", "respond-async")]).await.expect_status(202);
    fixture.api.started.acquire().await.unwrap().forget();
    fixture
        .api
        .request("POST", &format!("/api/v1/runs/{}/cancel", as_text(&answer["runId"])), None, &[])
        .await
        .expect_status(202);
    let run = fixture.run_until(as_text(&answer["runId"]), |run| run["status"] == "cancelled").await;
    assert_eq!(run["calls"][0]["status"], "cancelled");
    fixture.api.dropped.acquire().await.unwrap().forget();
    // The conversation is complete: the call has its result, and the next message is answered.
    assert_eq!(fixture.send_message("t1", "hello").await.expect_status(200)["message"]["content"], "hello");
}

#[tokio::test]
async fn a_thread_in_which_a_run_waits_says_how_it_can_be_taken_away() {
    let fixture = agent_fixture().await;
    let run = fixture.send_message("t1", "call order {\"what\":\"tea\"}").await.expect_status(202)["runId"]
        .as_str()
        .unwrap()
        .to_owned();
    let delete = async || fixture.api.request("DELETE", "/api/v1/threads/t1", None, &[]).await;
    let busy = delete().await.expect_problem(409, "thread_busy");
    assert_eq!(busy["runId"], run.as_str());
    let (method, path) = ("POST", format!("/api/v1/runs/{run}/cancel"));
    assert!(busy["hint"].as_str().unwrap().contains(&format!("{method} {path}")), "{busy}");
    fixture.api.request(method, &path, None, &[]).await.expect_status(202);
    fixture.run_until(&run, |run| run["status"] == "cancelled").await;
    delete().await.expect_status(204);
    // A call without a run is counted separately.
    let call = Some(json!({"arguments": {}, "threadId": "t2"}));
    fixture
        .api
        .request("POST", "/api/v1/tools/slow/calls", call, &[("prefer", "respond-async")])
        .await
        .expect_status(202);
    fixture.api.started.acquire().await.unwrap().forget();
    let busy = fixture.api.request("DELETE", "/api/v1/threads/t2", None, &[]).await.expect_problem(409, "thread_busy");
    assert!(busy["runId"].is_null() && busy["hint"].as_str().unwrap().contains("?threadId=t2"), "{busy}");
    fixture.api.release.add_permits(1);
}

#[tokio::test]
async fn the_states_of_a_thread_are_those_of_its_toolset() {
    let fixture = agent_fixture().await;
    fixture.api.post(MESSAGES_PATH, json!({"content": "hello", "agent": "sums"})).await.expect_status(200);
    for path in ["/agents/t1/tool-states", "/api/v1/threads/t1/tool-states"] {
        let states = fixture.api.get(path).await.expect_status(200);
        let names: Vec<&String> = states["data"]["toolStates"].as_object().unwrap().keys().collect();
        assert_eq!(names, ["add"], "{path}");
    }
    let reset = fixture.api.request("POST", "/agents/t1/tool-states/reset", None, &[]).await.expect_status(200);
    assert_eq!(reset["data"]["reset"], json!(["add"]));
    // Tools outside its toolset do not exist for the agent.
    let message = json!({"content": "call order {}"});
    let answer = fixture.api.post(MESSAGES_PATH, message).await.expect_status(200);
    assert_eq!((&answer["agent"], &answer["calls"][0]["status"]), (&json!("sums"), &json!("error")));
    fixture.send_message("t2", "hello").await.expect_status(200);
    let states = fixture.api.get("/agents/t2/tool-states").await.expect_status(200);
    assert!(states["data"]["toolStates"].as_object().unwrap().len() > 3);
}

#[tokio::test]
async fn a_model_that_fails_is_told_to_whoever_asks_and_the_server_stays_ready() {
    let fixture = agent_fixture().await;
    let ready = async || {
        let reply = fixture.api.get("/readyz?verbose").await;
        assert_eq!(reply.status, 200);
        reply.text
    };
    assert!(!ready().await.contains("model"), "no model was called yet");
    fixture.send_message("t1", "faint").await.expect_status(200);
    assert!(ready().await.contains("[!]model echo degraded: failed at the last request\n"), "{}", ready().await);
    fixture.send_message("t1", "hello").await.expect_status(200);
    let text = ready().await;
    assert_eq!(text.lines().collect::<Vec<_>>(), ["[+]listener ok", "[+]store ok", "[+]model echo ok", "ok"]);
}

#[tokio::test]
async fn runs_and_models_are_counted() {
    let fixture = agent_fixture().await;
    fixture.send_message("t1", "hello").await.expect_status(200);
    fixture.send_message("t1", "faint").await.expect_status(200);
    let page = fixture.api.get("/metrics").await.text;
    for line in [
        "gen_ai_invoke_agent_duration_seconds_count{gen_ai_agent_name=\"default\",error_type=\"\"} 1",
        "gen_ai_invoke_agent_duration_seconds_count{gen_ai_agent_name=\"default\",error_type=\"model_failed\"} 1",
        "gen_ai_client_operation_duration_seconds_count{gen_ai_operation_name=\"chat\",gen_ai_request_model=\"echo\",error_type=\"\"} 1",
        "gen_ai_client_operation_duration_seconds_count{gen_ai_operation_name=\"chat\",gen_ai_request_model=\"echo\",error_type=\"failed\"} 1",
        "gen_ai_client_token_usage_sum{gen_ai_request_model=\"echo\",gen_ai_token_type=\"input\"} 10",
        "gen_ai_client_token_usage_bucket{gen_ai_request_model=\"echo\",gen_ai_token_type=\"output\",le=\"4\"} 0",
        "gen_ai_client_token_usage_bucket{gen_ai_request_model=\"echo\",gen_ai_token_type=\"output\",le=\"16\"} 1",
    ] {
        assert!(page.contains(line), "no {line} in\n{page}");
    }
}

#[tokio::test]
async fn runs_are_listed_by_status_page_by_page() {
    let fixture = agent_fixture().await;
    let mut expected = [Vec::new(), Vec::new()];
    for number in 0..9 {
        let answer =
            fixture.send_message("t1", if number % 3 == 0 { "faint" } else { "hello" }).await.expect_status(200);
        expected[usize::from(number % 3 == 0)].insert(0, as_text(&answer["runId"]).to_owned());
    }
    let asking = fixture.send_message("asking", "call order").await.expect_status(202);
    let list = async |path: &str| {
        let (mut ids, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = fixture.api.get(&format!("{path}&limit=2{cursor}")).await.expect_status(200);
            ids.extend(page["items"].as_array().unwrap().iter().map(|run| as_text(&run["id"]).to_owned()));
            assert!(page["items"].as_array().unwrap().len() <= 2);
            match page["nextCursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return ids,
            }
        }
    };
    for path in ["/api/v1/runs", "/api/v1/threads/t1/runs"] {
        assert_eq!(list(&format!("{path}?status=completed")).await, expected[0], "{path}");
        assert_eq!(list(&format!("{path}?status=failed")).await, expected[1], "{path}");
        assert_eq!(list(&format!("{path}?status=cancelled")).await, [""; 0], "{path}");
    }
    assert_eq!(list("/api/v1/runs?status=open").await, [as_text(&asking["runId"])]);
    let problem = fixture.api.get("/api/v1/runs?status=broken").await.expect_problem(422, "invalid_request");
    assert!(problem["detail"].as_str().unwrap().contains("failed"), "{problem}");
}

#[tokio::test]
async fn the_list_of_threads_has_open_runs_and_waiting_approvals() {
    let fixture = agent_fixture().await;
    let begin = async |thread: &str, content: &str| {
        let path = format!("/api/v1/threads/{thread}/messages");
        let body = Some(json!({"content": content}));
        let run = fixture.api.request("POST", &path, body, &[("prefer", "respond-async")]).await.expect_status(202);
        run["runId"].as_str().unwrap().to_owned()
    };
    let asking = begin("asking", "call order").await;
    let thinking = begin("thinking", "think").await;
    fixture.send_message("done", "hello").await.expect_status(200);
    let again = json!({"threadId": "asking", "arguments": {"what": "tea"}});
    fixture.api.post("/api/v1/tools/order/calls", again).await.expect_status(202);
    fixture.run_until(&asking, |run| run["calls"][0]["status"] == "awaiting_approval").await;
    for order in ["id", "active"] {
        let listed = fixture.api.get(&format!("/api/v1/threads?order={order}")).await.expect_status(200);
        let of = |thread: &str| {
            let item = listed["items"].as_array().unwrap().iter().find(|item| item["id"] == thread).unwrap();
            (item["openRunId"].clone(), item["waitingApprovals"].clone())
        };
        assert_eq!(of("asking"), (json!(asking), json!(2)), "{order}");
        assert_eq!(of("thinking"), (json!(thinking), json!(0)), "{order}");
        assert_eq!(of("done"), (json!(null), json!(0)), "{order}");
    }
    // Without the agents that drive them, as on another node.
    let other = Server::new(fixture.api.hub.clone(), fixture.api.store.clone(), settings()).router();
    let listed = send(&other, "GET", "/api/v1/threads?q=ask", None, &[]).await.expect_status(200);
    assert_eq!(listed["items"][0]["openRunId"], json!(asking), "{listed}");
    for run in [asking, thinking] {
        fixture.api.request("POST", &format!("/api/v1/runs/{run}/cancel"), None, &[]).await.expect_status(202);
        fixture.run_until(&run, |run| run["status"] == "cancelled").await;
    }
    let listed = fixture.api.get("/api/v1/threads").await.expect_status(200);
    for item in listed["items"].as_array().unwrap() {
        let waiting = i32::from(item["id"] == "asking");
        assert_eq!((&item["openRunId"], &item["waitingApprovals"]), (&json!(null), &json!(waiting)), "{item}");
    }
}

#[tokio::test]
async fn the_agents_are_listed_with_their_model_and_limits() {
    let fixture = agent_fixture().await;
    let listed = fixture.api.get("/api/v1/agents").await.expect_status(200);
    let items = listed["items"].as_array().unwrap();
    let names: Vec<_> = items.iter().map(|item| item["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["default", "outside", "sums"]);
    let default = json!({
        "name": "default", "default": true, "model": "echo", "patterns": null, "tools": 7,
        "execution": {"by": "internal", "maxRetries": null},
        "maxSteps": 12, "tokenBudget": null, "timeBudgetMs": null, "contextWindow": 128_000,
    });
    assert_eq!(items[0], default);
    assert_eq!(items[1]["execution"], json!({"by": "external", "deadlineMs": 30_000}));
    assert_eq!(
        (&items[2]["patterns"], &items[2]["tools"], &items[2]["default"]),
        (&json!(["add"]), &json!(1), &json!(false))
    );
    let none = crate::support_api::api_fixture().await.get("/api/v1/agents").await.expect_status(200);
    assert_eq!(none, json!({"items": []}));
}

//! Messages to agents: answered, streamed, accepted with 202, repeated, refused.

use std::time::Duration;

use serde_json::{Value, json};
use toolhub_core::ids::Tenant;

use crate::{support_agents::agent_fixture, support_api::api_fixture};

const MESSAGES_PATH: &str = "/api/v1/threads/t1/messages";

#[tokio::test]
async fn a_message_is_answered_with_what_the_agent_said_and_did() {
    let fixture = agent_fixture().await;
    let answer = fixture.send_message("t1", "call add {\"a\":2,\"b\":3}").await.expect_status(200);
    assert_eq!(answer["status"], "completed");
    assert_eq!(answer["threadId"], "t1");
    assert_eq!(answer["agent"], "default");
    assert_eq!(answer["message"], json!({"role": "assistant", "content": "5"}));
    assert_eq!((&answer["calls"][0]["tool"], &answer["calls"][0]["status"]), (&json!("add"), &json!("success")));
    assert_eq!(answer["usage"], json!({"inputTokens": 20, "outputTokens": 10}));
    let call = fixture
        .api
        .get(&format!("/api/v1/calls/{}", answer["calls"][0]["id"].as_str().unwrap()))
        .await
        .expect_status(200);
    assert_eq!((&call["output"], &call["runId"]), (&json!(5), &answer["runId"]));
    let messages = fixture.api.get(MESSAGES_PATH).await.expect_status(200);
    let roles: Vec<&Value> = messages["items"].as_array().unwrap().iter().map(|item| &item["role"]).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "assistant"]);
}

#[tokio::test]
async fn a_stream_tells_everything_of_its_run_and_ends_with_it() {
    let fixture = agent_fixture().await;
    let accept = [("accept", "text/event-stream")];
    let request_body = json!({"content": "call slow"}).to_string();
    // Events of other threads are not in the stream.
    let elsewhere = fixture.api.hub.call("add", json!({"a": 1, "b": 1})).thread("other");
    let mut events = fixture.api.stream_request("POST", MESSAGES_PATH, Some(request_body), &accept).await;
    let (_, started) = events.next_named("run.started").await;
    let (_, message) = events.next_named("message.completed").await;
    assert_eq!(message["calls"][0]["tool"], "slow");
    elsewhere.await;
    let (_, progress) = events.next_named("call.progress").await;
    assert_eq!((&progress["message"], &progress["runId"]), (&json!("half of it"), &started["runId"]));
    fixture.api.release.add_permits(1);
    let rest = events.collect_rest().await;
    let names: Vec<&str> = rest.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["tool.execution.completed", "message.delta", "message.completed", "run.completed"]);
    assert!(rest.iter().all(|(_, data)| data["runId"] == started["runId"] && data["threadId"] == "t1"));
    assert_eq!(rest[1].1["text"], "done");
    assert_eq!((&rest[2].1["role"], &rest[2].1["content"]), (&json!("assistant"), &json!("done")));
    assert_eq!(rest[3].1["status"], "completed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_is_over_before_anybody_looks_is_told_from_its_beginning() {
    let fixture = agent_fixture().await;
    for at in 0..200 {
        let request_body = json!({"content": "hello"}).to_string();
        let talk = format!("/api/v1/threads/quick{at}/messages");
        let events =
            fixture.api.stream_request("POST", &talk, Some(request_body), &[("accept", "text/event-stream")]).await;
        let names: Vec<String> = events.collect_rest().await.into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["run.started", "message.delta", "message.completed", "run.completed"]);
    }
}

#[tokio::test]
async fn a_run_that_failed_says_why_in_both_forms() {
    let fixture = agent_fixture().await;
    let answer = fixture.send_message("t1", "faint").await.expect_status(200);
    assert_eq!((&answer["status"], &answer["message"]), (&json!("failed"), &Value::Null));
    assert_eq!(answer["error"], json!({"code": "model_failed", "message": "the model failed"}));
    let request_body = json!({"content": "faint"}).to_string();
    let events = fixture
        .api
        .stream_request("POST", MESSAGES_PATH, Some(request_body), &[("accept", "text/event-stream, */*")])
        .await;
    let (name, last) = events.collect_rest().await.pop().unwrap();
    assert_eq!((name.as_str(), &last["code"]), ("run.failed", &json!("model_failed")));
    // The next message is answered normally.
    assert_eq!(fixture.send_message("t1", "hello").await.expect_status(200)["message"]["content"], "hello");
}

#[tokio::test]
async fn whoever_does_not_wait_gets_a_promise_and_finds_the_end_there() {
    let fixture = agent_fixture().await;
    for prefer in ["respond-async", "wait=0"] {
        let message = Some(json!({"content": "think"}));
        let accepted = fixture.api.request("POST", MESSAGES_PATH, message, &[("prefer", prefer)]).await;
        let answer = accepted.expect_status(202);
        assert_eq!((&answer["status"], &answer["message"]), (&json!("running"), &Value::Null));
        assert_eq!(accepted.header("preference-applied"), prefer);
        let location = accepted.header("location").to_owned();
        assert_eq!(location, format!("/api/v1/runs/{}", answer["runId"].as_str().unwrap()));
        fixture.release.add_permits(1);
        let run = fixture.run_until(answer["runId"].as_str().unwrap(), |run| run["status"] == "completed").await;
        assert_eq!(run["content"], "thought");
    }
    let message = Some(json!({"content": "hello"}));
    fixture.api.request("POST", MESSAGES_PATH, message, &[("prefer", "wait=30")]).await.expect_status(200);
}

#[tokio::test]
async fn a_client_that_goes_away_does_not_end_its_run() {
    let fixture = agent_fixture().await;
    for accept in ["application/json", "text/event-stream"] {
        let before = fixture.requests.available_permits();
        let thread = format!("gone-{}", accept.len());
        let path = format!("/api/v1/threads/{thread}/messages");
        let (router, disconnected_path) = (fixture.api.router.clone(), path.clone());
        let client = tokio::spawn(async move {
            let body = json!({"content": "think"}).to_string();
            crate::support_api::send(&router, "POST", &disconnected_path, Some(body), &[("accept", accept)]).await
        });
        while fixture.requests.available_permits() == before {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        client.abort();
        assert!(client.await.unwrap_err().is_cancelled());
        fixture.release.add_permits(1);
        let runs = fixture.api.get(&format!("/api/v1/threads/{thread}/runs")).await.expect_status(200);
        let id = runs["items"][0]["id"].as_str().unwrap();
        let run = fixture.run_until(id, |run| run["status"] != "running").await;
        assert_eq!((&run["status"], &run["content"]), (&json!("completed"), &json!("thought")));
    }
}

#[tokio::test]
async fn of_two_clients_at_once_one_is_told_that_a_run_is_open() {
    let fixture = agent_fixture().await;
    let message = Some(json!({"content": "think"}));
    let first =
        fixture.api.request("POST", MESSAGES_PATH, message, &[("prefer", "respond-async")]).await.expect_status(202);
    let refused = fixture.send_message("t1", "hello").await.expect_problem(409, "run_open");
    assert_eq!(refused["runId"], first["runId"]);
    assert!(refused["hint"].as_str().unwrap().contains("/cancel"));
    // Another thread is not affected.
    fixture.send_message("t2", "hello").await.expect_status(200);
    let id = first["runId"].as_str().unwrap();
    fixture.api.request("POST", &format!("/api/v1/runs/{id}/cancel"), None, &[]).await.expect_status(202);
    let run = fixture.run_until(id, |run| run["status"] == "cancelled").await;
    assert!(run["endedAt"].is_string());
    let refused = fixture.api.request("POST", &format!("/api/v1/runs/{id}/cancel"), None, &[]).await;
    assert_eq!(refused.expect_problem(409, "run_ended")["runStatus"], "cancelled");
    fixture.send_message("t1", "hello").await.expect_status(200);
}

#[tokio::test]
async fn a_repeated_message_is_said_once() {
    let fixture = agent_fixture().await;
    let key = [("idempotency-key", "k1")];
    let message = || Some(json!({"content": "call add {\"a\":2,\"b\":3}"}));
    let first = fixture.api.request("POST", MESSAGES_PATH, message(), &key).await;
    let replayed = fixture.api.request("POST", MESSAGES_PATH, message(), &key).await;
    assert_eq!((first.header("idempotency-replayed"), replayed.header("idempotency-replayed")), ("", "true"));
    assert_eq!(first.expect_status(200), replayed.expect_status(200));
    // As a stream, the replay is built from the stored record.
    let headers = [("idempotency-key", "k1"), ("accept", "text/event-stream")];
    let events = fixture
        .api
        .stream_request("POST", MESSAGES_PATH, Some(message().unwrap().to_string()), &headers)
        .await
        .collect_rest()
        .await;
    let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["message.completed", "run.completed"]);
    assert_eq!((&events[0].1["content"], &events[1].1["runId"]), (&json!("5"), &first.json()["runId"]));
    let other = Some(json!({"content": "something else"}));
    fixture.api.request("POST", MESSAGES_PATH, other, &key).await.expect_problem(422, "idempotency_key_reused");
    assert_eq!(fixture.api.get(MESSAGES_PATH).await.expect_status(200)["items"].as_array().unwrap().len(), 4);
}

#[tokio::test]
async fn a_message_names_the_trace_it_was_sent_in_and_so_do_its_calls() {
    let fixture = agent_fixture().await;
    let trace = [("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")];
    let request_body = Some(json!({"content": "call add {\"a\":2,\"b\":3}"}));
    let answer = fixture.api.request("POST", MESSAGES_PATH, request_body, &trace).await.expect_status(200);
    assert_eq!(answer["traceId"], "4bf92f3577b34da6a3ce929d0e0e4736");
    let run = fixture.api.get(&format!("/api/v1/runs/{}", answer["runId"].as_str().unwrap())).await.expect_status(200);
    let call = fixture
        .api
        .get(&format!("/api/v1/calls/{}", answer["calls"][0]["id"].as_str().unwrap()))
        .await
        .expect_status(200);
    assert_eq!((&run["traceId"], &call["traceId"]), (&answer["traceId"], &answer["traceId"]));
    assert_eq!(fixture.send_message("t2", "hello").await.expect_status(200).get("traceId"), None);
}

#[tokio::test]
async fn bad_input_is_refused_and_nothing_is_said() {
    let fixture = agent_fixture().await;
    for (body, pointer) in [
        (json!({"content": "  \n"}), "/content"),
        (json!({"content": "x", "agent": ""}), "/agent"),
        (json!({"content": "x", "agent": "a".repeat(65)}), "/agent"),
        (json!({"content": "x", "Agent": "sums"}), "/Agent"),
        (json!({"content": 7}), "/content"),
    ] {
        let answer = fixture.api.post(MESSAGES_PATH, body).await.expect_problem(422, "invalid_request");
        assert_eq!(answer["errors"][0]["pointer"], pointer, "{answer}");
    }
    fixture.api.post(MESSAGES_PATH, json!({})).await.expect_problem(422, "invalid_request");
    fixture.api.request("POST", MESSAGES_PATH, None, &[]).await.expect_problem(400, "invalid_json");
    fixture
        .api
        .request("POST", MESSAGES_PATH, Some(json!({"content": "x"})), &[("idempotency-key", "ä")])
        .await
        .expect_problem(400, "idempotency_key_invalid");
    fixture
        .api
        .post("/api/v1/threads/no%20id/messages", json!({"content": "x"}))
        .await
        .expect_problem(404, "thread_not_found");
    let answer = fixture
        .api
        .post(MESSAGES_PATH, json!({"content": "x", "agent": "sumz"}))
        .await
        .expect_problem(404, "agent_not_found");
    assert_eq!(answer["suggestions"], json!(["default", "outside", "sums"]));
    fixture.api.get(MESSAGES_PATH).await.expect_problem(404, "thread_not_found");
    assert_eq!(fixture.requests.available_permits(), 0, "a model was called");
}

#[tokio::test]
async fn a_server_without_agents_says_what_to_write() {
    let api = api_fixture().await;
    let answer = api.post(MESSAGES_PATH, json!({"content": "hello"})).await.expect_problem(404, "agent_not_found");
    assert!(answer["hint"].as_str().unwrap().contains("[llm]"), "{answer}");
}

#[tokio::test]
async fn conversations_and_runs_are_read_page_by_page() {
    let fixture = agent_fixture().await;
    for at in 0..5 {
        fixture.send_message("t1", &format!("hello {at}")).await.expect_status(200);
    }
    for (list, all) in [("messages", 10), ("runs", 5)] {
        let (mut path, mut seen) = (format!("/api/v1/threads/t1/{list}?limit=3"), Vec::new());
        loop {
            let page = fixture.api.get(&path).await.expect_status(200);
            seen.extend(page["items"].as_array().unwrap().clone());
            match page["nextCursor"].as_str() {
                Some(cursor) => path = format!("/api/v1/threads/t1/{list}?limit=3&cursor={cursor}"),
                None => break,
            }
        }
        assert_eq!(seen.len(), all, "{list}");
        let ids: std::collections::BTreeSet<String> = seen.iter().map(ToString::to_string).collect();
        assert_eq!(ids.len(), all, "{list} are listed once each");
    }
    let runs = fixture.api.get("/api/v1/threads/t1/runs").await.expect_status(200);
    assert_eq!((&runs["items"][0]["content"], &runs["items"][4]["content"]), (&json!("hello 4"), &json!("hello 0")));
    fixture.api.get("/api/v1/threads/t1/runs?cursor=zz").await.expect_problem(422, "invalid_request");
    fixture.api.get("/api/v1/runs/run_nonsense").await.expect_problem(404, "run_not_found");
    fixture.api.get("/api/v1/threads/nobody/runs").await.expect_problem(404, "thread_not_found");
}

#[tokio::test]
async fn everything_of_a_thread_can_be_taken_along_and_taken_away() {
    let fixture = agent_fixture().await;
    fixture.send_message("t1", "call add {\"a\":2,\"b\":3}").await.expect_status(200);
    let all = fixture.api.get("/api/v1/threads/t1/export").await.expect_status(200);
    let count = |list: &str| all[list].as_array().unwrap().len();
    assert_eq!((count("messages"), count("runs"), count("calls")), (4, 1, 1));
    assert_eq!(all["thread"]["id"], "t1");
    assert!(all["toolStates"].is_object());
    let message = Some(json!({"content": "think"}));
    let open =
        fixture.api.request("POST", MESSAGES_PATH, message, &[("prefer", "respond-async")]).await.expect_status(202);
    fixture.release.add_permits(1);
    fixture.run_until(open["runId"].as_str().unwrap(), |run| run["status"] == "completed").await;
    fixture.api.request("DELETE", "/api/v1/threads/t1", None, &[]).await.expect_status(204);
    for disconnected_path in ["threads/t1/messages", "threads/t1/runs", "threads/t1/export"] {
        fixture.api.get(&format!("/api/v1/{disconnected_path}")).await.expect_problem(404, "thread_not_found");
    }
    let tenant = Tenant::default();
    let thread = toolhub_core::ids::ThreadId::new("t1").unwrap();
    assert_eq!(fixture.agents.messages(&tenant, &thread, 9, None).await.unwrap(), []);
    assert_eq!(fixture.agents.runs(&tenant, &thread, 9, None).await.unwrap(), []);
}

//! Running calls of MCP clients: progress, streams that are resumed, cancellation, keys and traces.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use toolhub_core::{CallContext, InputKind, InputRequest, ToolError, dynamic};

use crate::{
    support_api::{EventReader, api_fixture},
    support_mcp::{McpClient, both_eras, events, text},
};

/// The parameters of a call of `slow` with progress.
fn slow() -> Value {
    json!({"name": "slow", "arguments": {}, "_meta": {"progressToken": "p"}})
}

/// Reads until the call of `slow` runs. Returns what was read.
async fn until_running(stream: &mut EventReader) -> String {
    let mut received = String::new();
    while !received.contains("half of it") {
        received.push_str(&stream.next_chunk().await.unwrap());
    }
    received
}

fn cancel_notification() -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
}

/// Lets all tasks run as far as they can. The clock must be paused.
async fn settle() {
    sleep(Duration::from_millis(1)).await;
}

fn last_event_id(received: &str) -> &str {
    received.lines().rev().find_map(|line| line.strip_prefix("id: ")).unwrap()
}

#[tokio::test]
async fn a_slow_call_of_a_session_streams_its_progress_and_can_be_resumed() {
    let fixture = api_fixture().await;
    let client = McpClient::legacy(&fixture.router, "/mcp").await;
    let mut stream = client.open_with(&fixture, slow()).await;
    let received = until_running(&mut stream).await;
    let progress = events(&received).pop().unwrap();
    assert_eq!(
        (&progress["method"], &progress["params"]["progressToken"]),
        (&json!("notifications/progress"), &json!("p"))
    );
    let twice = client.post(&client.message("tools/list", json!({}))).await;
    assert!(twice.expect_status(400)["error"]["message"].as_str().unwrap().contains("in flight"));
    drop(stream);
    // The call goes on; its answer is there for the client that comes back.
    fixture.release.add_permits(1);
    let resumed = client.send("GET", None, &[("last-event-id", last_event_id(&received))]).await;
    let answers = events(&resumed.text);
    assert_eq!((answers.len(), &answers[0]["id"]), (1, &json!(1)), "{answers:?}");
    assert_eq!(text(&answers[0]["result"]), "done");
}

#[tokio::test]
async fn a_notification_cancels_a_call_of_a_session() {
    let fixture = api_fixture().await;
    let client = McpClient::legacy(&fixture.router, "/mcp").await;
    let mut stream = client.open_with(&fixture, slow()).await;
    let received = until_running(&mut stream).await;
    assert_eq!(client.post(&cancel_notification()).await.status, 202);
    fixture.dropped.acquire().await.unwrap().forget();
    // The stream ends without an answer, and the id is free again.
    while let Some(chunk) = stream.next_chunk().await {
        assert!(events(&chunk).is_empty(), "{chunk}");
    }
    // Resuming it is answered with 204: no event follows.
    assert_eq!(client.send("GET", None, &[("last-event-id", last_event_id(&received))]).await.status, 204);
    let freed = async || client.post(&client.message("ping", json!({}))).await.status == 200;
    while !freed().await {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn without_a_session_a_closed_stream_cancels_its_call() {
    let fixture = api_fixture().await;
    let client = McpClient::modern(&fixture.router, "/mcp");
    let mut stream = client.open_with(&fixture, slow()).await;
    until_running(&mut stream).await;
    drop(stream);
    fixture.dropped.acquire().await.unwrap().forget();
}

#[tokio::test]
async fn without_a_session_a_closed_connection_cancels_a_call_that_has_sent_nothing() {
    let fixture = api_fixture().await;
    let client = McpClient::modern(&fixture.router, "/mcp");
    let calling = tokio::spawn(async move { client.call("slow", json!({})).await });
    fixture.started.acquire().await.unwrap().forget();
    calling.abort();
    fixture.dropped.acquire().await.unwrap().forget();
}

#[tokio::test]
async fn a_call_is_answered_alike_whether_or_not_its_client_wants_progress() {
    let fixture = api_fixture().await;
    let asks = dynamic("asks", json!({"type": "object"}), |_: Value, context: CallContext| async move {
        let answer = context.request_input(InputRequest::new(InputKind::Form, json!({"message": "?"}))).await;
        answer.map_err(|_| ToolError::new("not answered"))
    });
    let header = json!({"type": "object", "properties": {"city": {"type": "string", "x-mcp-header": "City"}}});
    let city = dynamic("city", header, |_: Value, _: CallContext| async { Ok::<_, ToolError>(json!({"n": 1})) });
    fixture.hub.register_all([asks.read_only(), city.read_only()]).unwrap();
    let check = async |client: &McpClient,
                       tool: &str,
                       arguments: Value,
                       headers: &[(&str, &str)],
                       status: u16,
                       expected: &str| {
        let params = json!({"name": tool, "arguments": arguments});
        let mut with_progress = params.clone();
        with_progress["_meta"]["progressToken"] = 1.into();
        let mut replies = Vec::new();
        for params in [params, with_progress] {
            let reply = client.send("POST", Some(&client.message("tools/call", params)), headers).await;
            assert!(reply.text.contains(expected), "{tool}: {}", reply.text);
            assert_eq!(reply.status, status, "{tool}: {}", reply.text);
            replies.push((reply.header("content-type").to_owned(), reply.json()));
        }
        assert_eq!(replies[0], replies[1]);
    };
    let client = McpClient::modern(&fixture.router, "/mcp");
    check(&client, "add", json!({"a": 1, "b": 2}), &[], 200, "\"resultType\":\"complete\"").await;
    check(&client, "add", json!({"a": 1}), &[], 200, "\"isError\":true").await;
    check(&client, "ad", json!({}), &[], 200, "did you mean `add`").await;
    check(&client, "add", json!({"a": 1, "b": 2}), &[("mcp-name", "other")], 400, "-32020").await;
    check(&client, "asks", json!({}), &[], 400, "\"elicitation\"").await;
    check(&client, "city", json!({"city": "Rome"}), &[], 400, "missing Mcp-Param-City").await;
    check(&client, "city", json!({"city": "Rome"}), &[("mcp-param-city", "Oslo")], 400, "does not match").await;
    check(&client, "city", json!({"city": "Rome"}), &[("mcp-param-city", "Rome")], 200, "\"n\":1").await;
}

#[tokio::test(start_paused = true)]
async fn a_call_of_a_session_is_answered_alike_whether_or_not_its_client_can_be_asked() {
    let fixture = api_fixture().await;
    let reports = dynamic("reports", json!({"type": "object"}), |_: Value, context: CallContext| async move {
        context.log("warning", "hot");
        context.progress_of(1.0, Some(2.0), "half");
        // Past the time after which the response becomes a stream.
        sleep(Duration::from_millis(700)).await;
        Ok::<_, ToolError>(json!({"n": 1}))
    });
    fixture.hub.register(reports.read_only()).unwrap();
    let session =
        async |capabilities: Value| McpClient::modern(&fixture.router, "/mcp").can(capabilities).initialize().await;
    let clients = [session(json!({})).await, session(json!({"elicitation": {}})).await];
    let token = json!({"progressToken": 7});
    for (params, expected) in [
        (json!({"name": "add", "arguments": {"a": 1, "b": 2}}), "\"text\":\"3\""),
        (json!({"name": "add", "arguments": {"a": 1}}), "\"isError\":true"),
        (json!({"name": "ad"}), "did you mean `add`"),
        (json!({"name": 7}), "-32602"),
        (json!({"name": "reports", "arguments": {}, "_meta": token}), "\"n\":1"),
    ] {
        let mut replies = Vec::new();
        for client in &clients {
            let reply = client.post(&client.message("tools/call", params.clone())).await;
            assert!(reply.text.contains(expected), "{params}: {}", reply.text);
            let is_stream = reply.header("content-type") == "text/event-stream";
            let messages = if is_stream { events(&reply.text) } else { vec![reply.json()] };
            replies.push((reply.status, messages));
        }
        assert_eq!(replies[0], replies[1], "{params}");
    }
}

#[tokio::test]
async fn a_fraction_of_progress_has_a_total() {
    let fixture = api_fixture().await;
    let tool = dynamic("half", json!({"type": "object"}), |_: Value, context: CallContext| async move {
        context.progress_at(0.5, "half");
        Ok::<_, ToolError>(json!({}))
    });
    fixture.hub.register(tool.read_only()).unwrap();
    let client = McpClient::modern(&fixture.router, "/mcp");
    let call = client.message("tools/call", json!({"name": "half", "arguments": {}, "_meta": {"progressToken": "p"}}));
    let reply = client.post(&call).await;
    let progress = &events(&reply.text)[0]["params"];
    assert_eq!((&progress["progress"], &progress["total"]), (&json!(0.5), &json!(1.0)), "{}", reply.text);
}

#[tokio::test(start_paused = true)]
async fn an_answer_can_be_fetched_again_for_a_minute() {
    let fixture = api_fixture().await;
    let client = McpClient::legacy(&fixture.router, "/mcp").await;
    let mut stream = client.open_with(&fixture, slow()).await;
    let received = until_running(&mut stream).await;
    drop(stream);
    fixture.release.add_permits(1);
    settle().await;
    let resume = async || client.send("GET", None, &[("last-event-id", last_event_id(&received))]).await;
    sleep(Duration::from_secs(58)).await;
    let answers = events(&resume().await.text);
    assert_eq!(text(&answers[0]["result"]), "done", "{answers:?}");
    // Old answers are removed every ten seconds.
    sleep(Duration::from_secs(13)).await;
    let gone = resume().await.expect_status(400);
    assert!(gone["error"]["message"].as_str().unwrap().contains("Last-Event-ID"), "{gone}");
}

#[tokio::test(start_paused = true)]
async fn a_keyed_call_runs_once_and_goes_on_without_its_client() {
    let fixture = api_fixture().await;
    let [legacy, modern] = both_eras(&fixture).await;
    let clients = [
        legacy,
        modern.clone(),
        modern.clone().can(json!({"elicitation": {"form": {}}})),
        modern.can(json!({"extensions": {"io.modelcontextprotocol/tasks": {}}})),
    ];
    for (number, client) in clients.iter().enumerate() {
        let mut keyed = slow();
        keyed["_meta"]["dev.toolhub/idempotencyKey"] = format!("key-{number}").into();
        for (params, is_keyed) in [(keyed, true), (slow(), false)] {
            let mut stream = client.open_with(&fixture, params.clone()).await;
            until_running(&mut stream).await;
            fixture.started.acquire().await.unwrap().forget();
            if client.session.is_some() {
                assert_eq!(client.post(&cancel_notification()).await.status, 202);
            }
            drop(stream);
            settle().await;
            assert_eq!(fixture.dropped.available_permits(), usize::from(!is_keyed), "client {number}");
            if !is_keyed {
                fixture.dropped.acquire().await.unwrap().forget();
                continue;
            }
            fixture.release.add_permits(1);
            settle().await;
            let again = client.result("tools/call", params).await;
            assert_eq!(text(&again), "done", "client {number}: {again}");
            assert_eq!(fixture.started.available_permits(), 0, "client {number}: it ran again");
        }
    }
    let refused =
        clients[0].error("tools/call", json!({"name": "add", "_meta": {"dev.toolhub/idempotencyKey": 7}})).await;
    assert!(refused["code"] == -32602 && refused["message"].as_str().unwrap().contains("idempotencyKey"), "{refused}");
}

#[tokio::test]
async fn a_call_belongs_to_the_trace_of_its_client() {
    let fixture = api_fixture().await;
    for (client, digit) in both_eras(&fixture).await.iter().zip(["1", "2"]) {
        let trace = digit.repeat(32);
        let traced = |traceparent: String| json!({"name": "look", "arguments": {"digit": digit}, "_meta": {"traceparent": traceparent}});
        client.result("tools/call", traced(format!("00-{trace}-00f067aa0ba902b7-01"))).await;
        client.result("tools/call", traced("nonsense".into())).await;
        let calls = fixture.get("/api/v1/calls?tool=look").await.expect_status(200);
        let mut traces = Vec::new();
        for call in calls["items"].as_array().unwrap() {
            let call = fixture.get(&format!("/api/v1/calls/{}", call["id"].as_str().unwrap())).await.expect_status(200);
            traces.push(call["traceId"].clone());
        }
        assert_eq!(traces.iter().filter(|it| **it == json!(trace)).count(), 1, "{traces:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn progress_is_sent_ten_times_a_second_at_most() {
    let fixture = api_fixture().await;
    let tool = dynamic("busy", json!({"type": "object"}), |_: Value, context: CallContext| async move {
        for number in 0..300 {
            context.progress(number.to_string());
            sleep(Duration::from_millis(10)).await;
        }
        Ok::<_, ToolError>(json!("done"))
    });
    fixture.hub.register(tool.read_only()).unwrap();
    for client in both_eras(&fixture).await {
        let params = json!({"name": "busy", "arguments": {}, "_meta": {"progressToken": "p"}});
        let mut stream = client.open_with(&fixture, params).await;
        let (mut sent_at, mut answers) = (Vec::new(), Vec::new());
        while let Some(chunk) = stream.next_chunk().await {
            for message in events(&chunk) {
                match message["method"] == "notifications/progress" {
                    true => sent_at.push(Instant::now()),
                    false => answers.push(message),
                }
            }
        }
        assert_eq!((answers.len(), text(&answers[0]["result"])), (1, "done"));
        assert!(sent_at.len() >= 20, "{} in three seconds", sent_at.len());
        let shortest = sent_at.windows(11).map(|eleven| eleven[10] - eleven[0]).min().unwrap();
        assert!(shortest >= Duration::from_secs(1), "eleven within {shortest:?}");
    }
}

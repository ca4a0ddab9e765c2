//! Calls over the API: made, accepted with 202, looked up, followed, cancelled.

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use toolhub_core::{
    CallQuery,
    clock::Timestamp,
    ids::{Caller, RunId, Tenant},
};
use toolhub_server::Server;

use crate::support_api::{ApiFixture, Reply, TEST_TIMEOUT, api_fixture, settings};

async fn add(api: &ApiFixture, a: i64, headers: &[(&str, &str)]) -> Reply {
    api.request("POST", "/api/v1/tools/add/calls", Some(json!({"arguments": {"a": a, "b": 2}})), headers).await
}

async fn order(api: &ApiFixture, headers: &[(&str, &str)]) -> Reply {
    let body = json!({"arguments": {"what": "tea"}, "threadId": "t1", "callId": "m1"});
    api.request("POST", "/api/v1/tools/order/calls", Some(body), headers).await
}

/// Polls a call until it has ended.
async fn wait_ended(api: &ApiFixture, id: &Value) -> Value {
    for _ in 0..100_000 {
        let call = api.get(&format!("/api/v1/calls/{}", id.as_str().unwrap())).await.expect_status(200);
        if ["success", "error", "cancelled"].contains(&call["status"].as_str().unwrap()) {
            return call;
        }
        tokio::task::yield_now().await;
    }
    panic!("{id} has not ended");
}

async fn answer_approval(api: &ApiFixture, approval: &Value, outcome: &str) -> Reply {
    api.post(&format!("/api/v1/approvals/{}", approval.as_str().unwrap()), json!({"outcome": outcome})).await
}

#[tokio::test]
async fn a_call_that_ran_is_answered_with_its_end_and_kept() {
    let api = api_fixture().await;
    let reply = add(&api, 1, &[("x-request-id", "r-1")]).await;
    assert_eq!(reply.header("x-request-id"), "r-1");
    let call = reply.expect_status(200);
    assert_eq!((&call["status"], &call["output"], &call["attempts"]), (&json!("success"), &json!(3), &json!(1)));
    assert_eq!((&call["threadId"], &call["approval"], &call["effect"]), (&Value::Null, &Value::Null, &json!("none")));
    let stored = wait_ended(&api, &call["id"]).await;
    assert_eq!(
        (&stored["arguments"], &stored["status"], &stored["caller"]),
        (&json!({"a": 1, "b": 2}), &json!("success"), &json!("local"))
    );
    let failed = api.post("/api/v1/tools/broken/calls", json!({})).await.expect_status(200);
    assert_eq!((&failed["status"], &failed["error"]["code"]), (&json!("error"), &json!("tool_error")));
    assert_eq!(failed["error"]["detail"], "the wire is cut");
}

#[tokio::test]
async fn a_refused_call_is_a_problem_that_names_it() {
    let api = api_fixture().await;
    let invalid = api.post("/api/v1/tools/add/calls", json!({"arguments": {"a": "x"}})).await;
    let invalid = invalid.expect_problem(422, "arguments_invalid");
    assert!(invalid["callId"].as_str().unwrap().starts_with("call_"), "{invalid}");
    let pointers: Vec<_> = invalid["errors"].as_array().unwrap().iter().map(|flaw| flaw["pointer"].clone()).collect();
    assert!(pointers.contains(&json!("/a")) && pointers.contains(&json!("/b")), "{invalid}");
    let unknown = api.post("/api/v1/tools/ad/calls", json!({})).await.expect_problem(404, "tool_not_found");
    assert_eq!(unknown["suggestions"][0], "add");
    let early = api
        .post("/api/v1/tools/report/calls", json!({"threadId": "t1"}))
        .await
        .expect_problem(409, "dependency_not_met");
    assert_eq!((&early["missing"], &early["threadId"]), (&json!(["look"]), &json!("t1")));
}

#[tokio::test]
async fn a_body_that_is_no_call_is_refused_with_words() {
    let api = api_fixture().await;
    let path = "/api/v1/tools/add/calls";
    for (body, pointer) in [
        (json!({"arguments": 7}), "/arguments"),
        (json!({"argumnets": {}}), "/argumnets"),
        (json!({"timeoutMs": 0}), "/timeoutMs"),
        (json!({"threadId": "a b"}), "/threadId"),
        (json!({"callId": ""}), "/callId"),
    ] {
        let problem = api.post(path, body).await.expect_problem(422, "invalid_request");
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{problem}");
    }
    api.request("POST", path, None, &[]).await.expect_problem(400, "invalid_json");
    crate::support_api::send(&api.router, "POST", path, Some("{".into()), &[])
        .await
        .expect_problem(400, "invalid_json");
    let plain = [("content-type", "text/plain")];
    crate::support_api::send(&api.router, "POST", path, None, &plain).await.expect_problem(400, "invalid_json");
    let deep = format!("{{\"arguments\":{}1{}}}", "[".repeat(100), "]".repeat(100));
    crate::support_api::send(&api.router, "POST", path, Some(deep), &[]).await.expect_problem(422, "invalid_request");
}

#[tokio::test]
async fn a_call_with_a_key_is_made_once() {
    let api = api_fixture().await;
    let first = add(&api, 1, &[("idempotency-key", "\"k1\"")]).await;
    let replayed = add(&api, 1, &[("idempotency-key", "k1")]).await;
    assert_eq!((first.header("idempotency-replayed"), replayed.header("idempotency-replayed")), ("", "true"));
    assert_eq!(first.expect_status(200)["id"], replayed.expect_status(200)["id"]);
    add(&api, 5, &[("idempotency-key", "k1")]).await.expect_problem(422, "idempotency_key_reused");
    for broken in ["", "\"k1", &"k".repeat(256)] {
        add(&api, 1, &[("idempotency-key", broken)]).await.expect_problem(400, "idempotency_key_invalid");
    }
    add(&api, 1, &[("idempotency-key", "a"), ("idempotency-key", "b")])
        .await
        .expect_problem(400, "idempotency_key_invalid");
    let slow = api
        .request(
            "POST",
            "/api/v1/tools/slow/calls",
            Some(json!({})),
            &[("idempotency-key", "s"), ("prefer", "respond-async")],
        )
        .await;
    slow.expect_status(202);
    let busy = api.request("POST", "/api/v1/tools/slow/calls", Some(json!({})), &[("idempotency-key", "s")]).await;
    busy.expect_problem(409, "idempotency_in_progress");
    api.release.add_permits(1);
}

#[tokio::test]
async fn a_call_that_asks_is_promised_at_once_and_goes_on_after_the_answer() {
    let api = api_fixture().await;
    let reply = order(&api, &[]).await;
    let waiting = reply.expect_status(202);
    let path = format!("/api/v1/calls/{}", waiting["id"].as_str().unwrap());
    assert_eq!((reply.header("location"), reply.header("preference-applied")), (path.as_str(), ""));
    assert_eq!(
        (&waiting["status"], &waiting["tool"], &waiting["threadId"]),
        (&json!("awaiting_approval"), &json!("order"), &json!("t1"))
    );
    let approval = &waiting["approval"];
    assert_eq!(approval["url"], format!("http://localhost/ui/approvals/{}", approval["id"].as_str().unwrap()));
    assert_eq!(api.get(&path).await.expect_status(200)["approval"], *approval);
    answer_approval(&api, &approval["id"], "proceed_once").await.expect_status(200);
    let done = wait_ended(&api, &waiting["id"]).await;
    assert_eq!(
        (&done["status"], &done["output"], &done["modelCallId"]),
        (&json!("success"), &json!({"ordered": "tea"}), &json!("m1"))
    );
}

#[tokio::test]
async fn whoever_does_not_wait_gets_a_promise() {
    let api = api_fixture().await;
    let reply = api.request("POST", "/api/v1/tools/slow/calls", Some(json!({})), &[("prefer", "respond-async")]).await;
    let call = reply.expect_status(202);
    assert_eq!(reply.header("preference-applied"), "respond-async");
    assert_eq!(reply.header("location"), format!("/api/v1/calls/{}", call["id"].as_str().unwrap()));
    api.started.acquire().await.unwrap().forget();
    assert_eq!(api.get(reply.header("location")).await.expect_status(200)["status"], "executing");
    api.release.add_permits(1);
    assert_eq!(wait_ended(&api, &call["id"]).await["output"], "done");
    // A call that ends immediately gets a 202 as well; a refused one is a problem.
    let quick = add(&api, 1, &[("prefer", "respond-async")]).await.expect_status(202);
    assert_eq!(wait_ended(&api, &quick["id"]).await["status"], "success");
    api.request("POST", "/api/v1/tools/ad/calls", Some(json!({})), &[("prefer", "respond-async")])
        .await
        .expect_problem(404, "tool_not_found");
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_so_long_gets_the_end_or_a_promise() {
    let api = api_fixture().await;
    let quick = add(&api, 1, &[("prefer", "wait=5")]).await;
    assert_eq!((quick.expect_status(200)["output"].clone(), quick.header("preference-applied")), (json!(3), "wait=5"));
    let slow = api.request("POST", "/api/v1/tools/slow/calls", Some(json!({})), &[("prefer", "wait=5")]).await;
    assert_eq!(
        (slow.expect_status(202)["status"].clone(), slow.header("preference-applied")),
        (json!("executing"), "wait=5")
    );
    let asks = order(&api, &[("prefer", "wait=5")]).await.expect_status(202);
    assert_eq!(asks["status"], "awaiting_approval");
    let (waiting, yes) = tokio::join!(order(&api, &[("prefer", "wait=60")]), async {
        loop {
            let pending = api.get("/api/v1/approvals?state=pending").await.expect_status(200);
            if pending["items"].as_array().unwrap().len() == 2 {
                return answer_approval(&api, &pending["items"][0]["id"], "proceed_once").await.expect_status(200);
            }
            tokio::task::yield_now().await;
        }
    });
    assert_eq!((&waiting.expect_status(200)["status"], &yes["state"]), (&json!("success"), &json!("approved")));
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_a_call_that_is_left_to_the_next_start_gets_a_promise() {
    let api = api_fixture().await;
    let (waiting, ()) = tokio::join!(order(&api, &[("prefer", "wait=60")]), async {
        while api.get("/api/v1/approvals?state=pending").await.expect_status(200)["items"] == json!([]) {
            tokio::task::yield_now().await;
        }
        api.hub.shutdown(TEST_TIMEOUT).await;
    });
    assert_eq!(waiting.expect_status(202)["status"], "awaiting_approval");
    assert!(waiting.header("location").starts_with("/api/v1/calls/"));
}

#[tokio::test]
async fn a_cancelled_call_still_has_an_end() {
    let api = api_fixture().await;
    let call = api
        .request("POST", "/api/v1/tools/slow/calls", Some(json!({})), &[("prefer", "respond-async")])
        .await
        .expect_status(202);
    let path = format!("/api/v1/calls/{}/cancel", call["id"].as_str().unwrap());
    assert_eq!(api.request("POST", &path, None, &[]).await.expect_status(202)["id"], call["id"]);
    assert_eq!(wait_ended(&api, &call["id"]).await["status"], "cancelled");
    api.request("POST", &path, None, &[]).await.expect_problem(409, "call_ended");
    for unknown in ["call_0193", "call_01930000-0000-7000-8000-000000000000"] {
        api.request("POST", &format!("/api/v1/calls/{unknown}/cancel"), None, &[])
            .await
            .expect_problem(404, "call_not_found");
        api.get(&format!("/api/v1/calls/{unknown}")).await.expect_problem(404, "call_not_found");
        api.get(&format!("/api/v1/calls/{unknown}/events")).await.expect_problem(404, "call_not_found");
    }
}

#[tokio::test]
async fn calls_are_listed_newest_first_and_filtered() {
    let api = api_fixture().await;
    for a in 0..3 {
        add(&api, a, &[]).await.expect_status(200);
    }
    api.post("/api/v1/tools/broken/calls", json!({"threadId": "t1"})).await.expect_status(200);
    let list = |query: &str| {
        let path = format!("/api/v1/calls{query}");
        let api = &api;
        async move { api.get(&path).await.expect_status(200) }
    };
    let tools = |page: &Value| -> Vec<String> {
        page["items"].as_array().unwrap().iter().map(|call| call["tool"].as_str().unwrap().into()).collect()
    };
    let all = list("").await;
    let ids: Vec<&str> = all["items"].as_array().unwrap().iter().map(|call| call["id"].as_str().unwrap()).collect();
    assert!(ids.len() == 4 && ids.windows(2).all(|two| two[0] > two[1]), "{ids:?}");
    assert_eq!(tools(&list("?tool=add&limit=2").await), ["add", "add"]);
    assert_eq!(tools(&list("?threadId=t1").await), ["broken"]);
    assert_eq!(tools(&list("?status=error").await), ["broken"]);
    assert_eq!(tools(&list("?since=2999-01-01T00:00:00Z").await), [""; 0]);
    assert_eq!(tools(&list("?until=2999-01-01T00:00:00Z&status=success").await).len(), 3);
    let first = list("?limit=3").await;
    let rest = list(&format!("?limit=3&cursor={}", first["nextCursor"].as_str().unwrap())).await;
    assert_eq!((&rest["items"][0]["id"], &rest["nextCursor"]), (&json!(ids[3]), &Value::Null));
    api.get("/api/v1/calls?cursor=x").await.expect_problem(422, "invalid_request");
    api.get("/api/v1/calls?since=yesterday").await.expect_problem(422, "invalid_request");
}

#[tokio::test]
async fn calls_are_found_by_caller_run_error_code_and_duration_and_listed_in_short() {
    let api = api_fixture().await;
    add(&api, 1, &[]).await.expect_status(200);
    api.post("/api/v1/tools/broken/calls", json!({})).await.expect_status(200);
    let (caller, run) = (Caller::new("ann").unwrap(), RunId::mint(Timestamp::from_millis(5)));
    let of_run = api.hub.call("add", json!({"a": 7, "b": 8})).caller(caller).run(run).await;
    let find = |query: String| {
        let (path, api) = (format!("/api/v1/calls?{query}"), &api);
        async move {
            let page = api.get(&path).await.expect_status(200);
            let found = page["items"].as_array().unwrap().iter().map(|call| call["id"].as_str().unwrap().to_owned());
            found.collect::<Vec<_>>()
        }
    };
    assert_eq!(find("caller=ann".into()).await, [of_run.id.to_string()]);
    assert_eq!(find(format!("runId={run}")).await, [of_run.id.to_string()]);
    assert_eq!(find(format!("runId={}", RunId::mint(Timestamp::from_millis(5)))).await, [""; 0]);
    assert_eq!(find("caller=local".into()).await.len(), 2);
    let failed = find("code=tool_error".into()).await;
    assert_eq!((failed.len(), &find("status=error".into()).await), (1, &failed));
    assert_eq!(find("code=timeout".into()).await, [""; 0]);
    assert_eq!(find("slowerThan=1h".into()).await, [""; 0]);

    let short = api.get("/api/v1/calls?view=short&caller=ann").await.expect_status(200);
    let call = &short["items"][0];
    for (field, expected) in
        [("tool", json!("add")), ("status", json!("success")), ("caller", json!("ann")), ("runId", json!(run))]
    {
        assert_eq!(call[field], expected);
    }
    for absent in ["arguments", "output", "content"] {
        assert_eq!(call.get(absent), None, "{call}");
    }
    let full = api.get("/api/v1/calls?view=full&caller=ann").await.expect_status(200);
    assert_eq!(full["items"][0]["arguments"], json!({"a": 7, "b": 8}));
    for invalid in ["code=no_such_code", "runId=call_1", "slowerThan=5", "view=tiny", "caller="] {
        api.get(&format!("/api/v1/calls?{invalid}")).await.expect_problem(422, "invalid_request");
    }
}

#[tokio::test]
async fn one_call_can_be_followed_to_its_end_and_after_it() {
    let api = api_fixture().await;
    let call = order(&api, &[]).await.expect_status(202);
    let path = format!("/api/v1/calls/{}/events", call["id"].as_str().unwrap());
    let mut events = api.stream(&path, &[]).await;
    answer_approval(&api, &call["approval"]["id"], "cancel").await.expect_status(200);
    let (_, resolved) = events.next_named("approval.resolved").await;
    assert_eq!(resolved["callId"], call["id"]);
    let rest = events.collect_rest().await;
    let names: Vec<&str> = rest.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["tool.execution.failed", "call.ended"]);
    assert_eq!(rest[1].1["error"]["code"], "approval_denied");
    let slow = api
        .request("POST", "/api/v1/tools/slow/calls", Some(json!({})), &[("prefer", "respond-async")])
        .await
        .expect_status(202);
    api.started.acquire().await.unwrap().forget();
    let path = format!("/api/v1/calls/{}/events", slow["id"].as_str().unwrap());
    let events = api.stream(&path, &[]).await;
    api.release.add_permits(1);
    let names: Vec<String> = events.collect_rest().await.into_iter().map(|(name, _)| name).collect();
    assert_eq!(names.last().map(String::as_str), Some("call.ended"), "{names:?}");
    let after = api.stream(&path, &[]).await.collect_rest().await;
    assert_eq!((after.len(), after[0].0.as_str(), &after[0].1["output"]), (1, "call.ended", &json!("done")));
}

#[tokio::test]
async fn a_call_of_another_tenant_is_nowhere_to_be_seen() {
    let api = api_fixture().await;
    let other = Tenant::new("other").unwrap();
    let foreign = api.hub.call("add", json!({"a": 1, "b": 2})).tenant(other.clone()).caller(Caller::default()).await;
    assert_eq!(api.hub.calls(&other, &CallQuery::default()).await.unwrap().calls.len(), 1);
    api.get(&format!("/api/v1/calls/{}", foreign.id)).await.expect_problem(404, "call_not_found");
    assert_eq!(api.get("/api/v1/calls").await.expect_status(200)["items"], json!([]));
}

/// Sends a call of `slow` through a socket and disconnects as soon as the tool runs.
async fn hang_up(api: &ApiFixture, address: std::net::SocketAddr, headers: &str) {
    let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST /api/v1/tools/slow/calls HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{headers}content-length: 2\r\n\r\n{{}}"
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    tokio::time::timeout(TEST_TIMEOUT, api.started.acquire()).await.expect("the tool runs").unwrap().forget();
}

#[tokio::test]
async fn a_client_that_hangs_up_cancels_its_call_unless_it_has_a_key_or_was_promised() {
    let api = api_fixture().await;
    let bound = Server::new(api.hub.clone(), api.store.clone(), settings()).bind().await.unwrap();
    let address = bound.address();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let served = tokio::spawn(bound.serve(async { drop(stopped.await) }));
    for headers in ["", "prefer: wait=30\r\n"] {
        hang_up(&api, address, headers).await;
        tokio::time::timeout(TEST_TIMEOUT, api.dropped.acquire())
            .await
            .expect("the call is given up")
            .unwrap()
            .forget();
    }
    for headers in ["idempotency-key: k\r\n", "prefer: respond-async\r\n"] {
        hang_up(&api, address, headers).await;
        api.release.add_permits(1);
        for _ in 0..1_000_000 {
            if api.hub.running_calls() == 0 {
                break;
            }
            tokio::task::yield_now().await;
        }
        assert_eq!((api.hub.running_calls(), api.dropped.available_permits()), (0, 0), "{headers}");
    }
    drop(stop);
    served.await.unwrap().unwrap();
    let mut ends: Vec<String> = api
        .hub
        .calls(&Tenant::default(), &CallQuery::default())
        .await
        .unwrap()
        .calls
        .into_iter()
        .map(|call| serde_json::to_value(call.status).unwrap().as_str().unwrap().to_owned())
        .collect();
    // Calls in the same millisecond have no order.
    ends.sort();
    assert_eq!(ends, ["cancelled", "cancelled", "success", "success"]);
}

#[tokio::test]
async fn a_limited_tool_says_what_is_left_and_refuses_the_rest() {
    let api = api_fixture().await;
    let call = || api.post("/api/v1/tools/rare/calls", json!({}));
    let (first, second, third) = (call().await, call().await, call().await);
    assert_eq!((first.status, first.header("ratelimit-policy")), (200, "\"rare\";q=2;w=3600"));
    assert!(first.header("ratelimit").starts_with("\"rare\";r=1;t="), "{first:?}");
    assert!(second.header("ratelimit").starts_with("\"rare\";r=0;t="), "{second:?}");
    third.expect_problem(429, "rate_limited");
    assert!(third.header("ratelimit").starts_with("\"rare\";r=0;t="), "{third:?}");
    assert!(third.header("retry-after").parse::<u32>().unwrap() > 0);
    assert_eq!(add(&api, 1, &[]).await.header("ratelimit"), "");
}

#[tokio::test]
async fn a_call_names_the_trace_it_was_made_in() {
    let api = api_fixture().await;
    let trace = [("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")];
    let call = add(&api, 1, &trace).await.expect_status(200);
    assert_eq!(call["traceId"], "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(wait_ended(&api, &call["id"]).await["traceId"], call["traceId"]);
    let refused = api.request("POST", "/api/v1/tools/ad/calls", Some(json!({})), &trace).await;
    assert_eq!(refused.expect_problem(404, "tool_not_found")["traceId"], call["traceId"]);
    assert_eq!(add(&api, 1, &[("traceparent", "nonsense")]).await.expect_status(200)["traceId"], Value::Null);
}

#[tokio::test]
async fn a_call_that_is_cancelled_while_it_waits_for_a_person_never_seems_to_go_on() {
    let api = api_fixture().await;
    let call = api.post("/api/v1/tools/order/calls", json!({"arguments": {"what": "tea"}})).await.expect_status(202);
    let path = format!("/api/v1/calls/{}/cancel", call["id"].as_str().unwrap());
    let cancelled = api.post(&path, json!({})).await.expect_status(202);
    assert!(cancelled["status"] == "awaiting_approval" || cancelled["status"] == "cancelled", "{cancelled}");
}

#[tokio::test]
async fn a_refused_call_has_a_text_for_the_model_beside_the_one_for_operators() {
    let api = api_fixture().await;
    let bodies = [json!({}), json!({"arguments": {"a": 1}}), json!({"threadId": "t9"})];
    for (tool, body) in ["ad", "add", "report"].into_iter().zip(bodies) {
        let arguments = body.get("arguments").cloned().unwrap_or_else(|| json!({}));
        let outcome = api.hub.call(tool, arguments).thread("t9").await;
        let reply = api.post(&format!("/api/v1/tools/{tool}/calls"), body).await.json();
        assert_eq!(reply["detail"], outcome.error.as_ref().unwrap().operator, "{reply}");
        assert_eq!(reply["model"], *outcome.model_text(), "{reply}");
    }
}

#[tokio::test]
async fn a_list_shortens_what_is_long_and_its_pages_end_by_size() {
    let api = api_fixture().await;
    let long = "x".repeat(1_500_000);
    let mut ids = Vec::new();
    for n in 0..5 {
        let call = api.post("/api/v1/tools/look/calls", json!({"arguments": {"n": n, "text": long}})).await;
        ids.push(call.expect_status(200)["id"].as_str().unwrap().to_owned());
    }
    let (mut listed, mut pages, mut path) = (Vec::new(), 0, "/api/v1/calls?tool=look&limit=500".to_owned());
    loop {
        let reply = api.get(&path).await;
        let page = reply.expect_status(200);
        assert!(reply.text.len() < 100_000, "{} bytes", reply.text.len());
        for call in page["items"].as_array().unwrap() {
            assert!(call["arguments"]["omittedBytes"].as_u64().is_some_and(|bytes| bytes > 1_500_000), "{call}");
            listed.push(call["id"].as_str().unwrap().to_owned());
        }
        pages += 1;
        match page["nextCursor"].as_str() {
            Some(cursor) => path = format!("/api/v1/calls?tool=look&limit=500&cursor={cursor}"),
            None => break,
        }
    }
    listed.sort();
    ids.sort();
    assert_eq!((listed, pages), (ids.clone(), 2));
    let one = api.get(&format!("/api/v1/calls/{}", ids[0])).await.expect_status(200);
    assert_eq!(one["arguments"]["text"], long);
}

//! Reports, explanations, statistics, policies and the dependency graph of tools.

use serde_json::{Value, json};
use toolhub_core::testing::EventRecorder;

use crate::support_state::state_fixture;

#[tokio::test]
async fn failures_elsewhere_count_like_those_made_here() {
    let server = state_fixture().await;
    server.send_json("POST /api/v1/threads", json!({"id": "t1"})).await.expect_status(201);
    let report = async |body: Value| server.send_json("POST /api/v1/tools/look/reports", body).await;
    for failures in 1..=3 {
        let status = report(json!({"threadId": "t1", "error": {"message": "it broke"}})).await.expect_status(200);
        assert_eq!(status["consecutiveFailures"], failures);
    }
    let explained = server.get("/api/v1/tools/look/explain?threadId=t1").await.expect_status(200);
    assert_eq!((&explained["status"], &explained["offered"]), (&json!("failed"), &json!(false)));
    assert!(explained["text"].as_str().unwrap().contains("it broke"), "{explained}");
    let fresh = server.get("/api/v1/tools/look/explain").await.expect_status(200);
    assert_eq!(fresh["offered"], true, "a new thread does not see another's failures");
    assert_eq!(report(json!({"threadId": "t1", "success": true})).await.expect_status(200)["toolName"], "look");
}

#[tokio::test]
async fn a_reported_success_is_evidence_and_an_error_may_be_a_text() {
    let server = state_fixture().await;
    server.send_json("POST /api/v1/threads", json!({"id": "t1"})).await.expect_status(201);
    let report = async |body: Value| server.send_json("POST /api/v1/tools/look/reports", body).await;
    let offered =
        async || server.get("/api/v1/tools/report/explain?threadId=t1").await.expect_status(200)["offered"].clone();
    let failed = report(json!({"threadId": "t1", "error": "it broke"})).await.expect_status(200);
    assert_eq!((&failed["consecutiveFailures"], &failed["reason"]), (&json!(1), &json!("the last call failed")));
    assert_eq!(offered().await, false);
    report(json!({"threadId": "t1", "success": true})).await.expect_status(200);
    assert_eq!(offered().await, true);
    for wrong in [json!(" "), json!(["tool_error", "x"]), json!(7)] {
        report(json!({"threadId": "t1", "error": wrong})).await.expect_problem(422, "invalid_request");
    }
}

#[tokio::test]
async fn a_report_makes_the_thread_it_names_and_touches_no_other() {
    let server = state_fixture().await;
    server.send_json("POST /api/v1/threads", json!({"id": "t2"})).await.expect_status(201);
    let body = json!({"threadId": "t1", "success": true});
    let reported = server.send_json("POST /api/v1/tools/look/reports", body.clone()).await.expect_status(200);
    assert_eq!(reported["reason"], "executed successfully");
    assert_eq!(server.get("/api/v1/threads").await.items("id"), ["t1", "t2"]);
    let looks = async |who: &str, thread: &str| {
        let states = server.request(who, &format!("GET /agents/{thread}/tool-states"), None, &[]).await;
        states.expect_status(200)["data"]["toolStates"]["look"]["reason"].as_str().unwrap().to_owned()
    };
    assert_eq!(
        (looks("ann", "t1").await, looks("ann", "t2").await),
        ("executed successfully".into(), "never run".into())
    );
    assert_eq!(server.request("bob", "GET /api/v1/threads", None, &[]).await.items("id"), [""; 0]);
    server.request("bob", "POST /api/v1/threads", Some(json!({"id": "t2"})), &[]).await.expect_status(201);
    assert_eq!(looks("bob", "t2").await, "never run", "another tenant sees nothing of it");
    // A thread of the same name belongs to each tenant for itself.
    server.request("bob", "POST /api/v1/tools/look/reports", Some(body), &[]).await.expect_status(200);
    assert_eq!(server.request("bob", "GET /api/v1/threads", None, &[]).await.items("id"), ["t1", "t2"]);
    let wrong = json!({"threadId": "a/b", "success": true});
    server.send_json("POST /api/v1/tools/look/reports", wrong).await.expect_problem(422, "invalid_request");
}

#[tokio::test]
async fn a_status_that_would_have_ended_already_is_refused() {
    let server = state_fixture().await;
    let set = async |body: Value| server.request("boss", "PUT /api/v1/tools/look/status", Some(body), &[]).await;
    for status in ["unavailable", "maintenance", "failed"] {
        let problem = set(json!({"status": status, "until": "2020-01-01T00:00:00Z"})).await;
        let problem = problem.expect_problem(422, "invalid_request");
        assert_eq!(problem["errors"][0]["pointer"], "/until");
        assert!(problem["detail"].as_str().unwrap().contains("not in the future"), "{problem}");
    }
    let held = set(json!({"status": "unavailable", "until": "2999-01-01T00:00:00Z"})).await.expect_status(200);
    assert_eq!(held["status"], "unavailable");
}

#[tokio::test]
async fn every_export_over_http_is_told_to_listeners() {
    let server = state_fixture().await;
    let mut events = EventRecorder::new(&server.hub);
    for query in ["format=openai", "format=openai&threadId=t1"] {
        server.get(&format!("/api/v1/tools/export?{query}")).await.expect_status(200);
        assert_eq!(events.names(), ["tool.executor.exported"], "{query}");
        events = EventRecorder::new(&server.hub);
    }
}

#[tokio::test]
async fn an_error_that_does_not_count_changes_nothing() {
    let server = state_fixture().await;
    server.send_json("POST /api/v1/threads", json!({"id": "t1"})).await.expect_status(201);
    for _ in 0..4 {
        let error = json!({"kind": "tool_error", "message": "not found", "counts": false});
        let status = server
            .send_json("POST /api/v1/tools/look/reports", json!({"threadId": "t1", "error": error}))
            .await
            .expect_status(200);
        assert_eq!((&status["consecutiveFailures"], &status["status"]), (&json!(0), &json!("available")));
    }
}

#[tokio::test]
async fn only_an_admin_reports_what_counts_for_everybody() {
    let server = state_fixture().await;
    server.send_json("POST /api/v1/threads", json!({"id": "t1"})).await.expect_status(201);
    let error = |kind: &str| json!({"kind": kind, "message": "gone"});
    for body in [
        json!({"error": error("tool_error")}),
        json!({"success": true}),
        json!({"threadId": "t1", "error": error("upstream_error")}),
        json!({"threadId": "t1", "error": error("timeout")}),
    ] {
        server.send_json("POST /api/v1/tools/look/reports", body.clone()).await.expect_problem(403, "forbidden");
        server.request("boss", "POST /api/v1/tools/look/reports", Some(body), &[]).await.expect_status(200);
    }
}

#[tokio::test]
async fn a_report_that_says_nothing_or_both_is_refused() {
    let server = state_fixture().await;
    for body in [
        json!({}),
        json!({"success": true, "error": {"message": "no"}}),
        json!({"error": {}}),
        json!({"error": {"message": "x", "kind": "forbidden"}}),
        json!({"error": {"message": "x", "kind": "overloaded", "counts": true}}),
        json!({"sucess": true}),
    ] {
        server.send_json("POST /api/v1/tools/look/reports", body).await.expect_problem(422, "invalid_request");
    }
    server
        .send_json("POST /api/v1/tools/lok/reports", json!({"success": true}))
        .await
        .expect_problem(404, "tool_not_found");
}

#[tokio::test]
async fn an_explanation_names_what_is_missing_in_the_language_that_is_wanted() {
    let server = state_fixture().await;
    let explain = async |tool: &str, language: &str| {
        server
            .request("ann", &format!("GET /api/v1/tools/{tool}/explain"), None, &[("accept-language", language)])
            .await
    };
    let report = explain("report", "en").await;
    assert_eq!(report.header("content-language"), "en");
    assert_eq!(report.expect_status(200)["missing"], json!(["look"]));
    let chinese = explain("report", "zh-CN,zh;q=0.9").await;
    assert_eq!(chinese.header("content-language"), "zh");
    assert!(chinese.expect_status(200)["text"].as_str().unwrap().contains("暂不可用"));
    assert!(explain("never", "en").await.expect_status(200)["deniedBy"].is_string());
    explain("lok", "en").await.expect_problem(404, "tool_not_found");
    assert_eq!(server.get("/api/v1/threads").await.items("id"), [""; 0], "explain creates no thread");
    server.get("/api/v1/tools/look/explain?threadId=unknown").await.expect_problem(404, "thread_not_found");
}

#[tokio::test]
async fn a_tools_numbers_are_told() {
    let server = state_fixture().await;
    for _ in 0..3 {
        server.call("look", "t1", json!({})).await;
    }
    let stats = server.get("/api/v1/tools/look/stats").await.expect_status(200);
    assert_eq!((&stats["calls"], &stats["latency"]["count"]), (&json!(3), &json!(3)));
    let problem = server.get("/api/v1/tools/loook/stats").await.expect_problem(404, "tool_not_found");
    assert_eq!(problem["suggestions"], json!(["look"]));
}

#[tokio::test]
async fn a_tools_numbers_within_a_time_come_from_the_journal() {
    let server = state_fixture().await;
    for _ in 0..3 {
        server.call("long", "t1", json!({})).await;
    }
    server.call("browse", "t1", json!({})).await;
    for window in ["90s", "1h", "30d"] {
        let stats = server.get(&format!("/api/v1/tools/long/stats?window={window}")).await.expect_status(200);
        assert_eq!((&stats["calls"], &stats["latency"]["count"]), (&json!(3), &json!(3)), "{stats}");
        assert_eq!((&stats["complete"], &stats["errors"]), (&json!(true), &json!({})), "{stats}");
        assert!(stats["from"].as_str() < stats["until"].as_str(), "{stats}");
    }
    for window in ["", "1", "0s", "hour", "-1h"] {
        server.get(&format!("/api/v1/tools/long/stats?window={window}")).await.expect_problem(422, "invalid_request");
    }
    let long = server.get("/api/v1/tools/long/stats?window=31d").await.expect_problem(422, "invalid_request");
    assert!(long["detail"].as_str().unwrap().contains("30d"), "{long}");
    server.get("/api/v1/tools/loong/stats?window=1h").await.expect_problem(404, "tool_not_found");
}

#[tokio::test]
async fn policies_name_rules_and_limits_of_each_tool() {
    let server = state_fixture().await;
    let first = server.get("/api/v1/policies?limit=4").await;
    assert_eq!(first.items("tool"), ["browse", "cart", "long", "look"]);
    assert_eq!(first.expect_status(200)["items"][3]["limits"]["rateLimits"][0]["requests"], 20);
    let second = server.get(&first.next_link().unwrap()).await;
    assert_eq!(second.items("tool"), ["never", "report"]);
    let never = second.expect_status(200)["items"][0].clone();
    assert!(never["deniedBy"].is_string() && never["rules"].as_array().unwrap().len() == 2, "{never}");
    assert_eq!(second.next_link(), None);
}

#[tokio::test]
async fn the_graph_has_every_tool_and_an_edge_for_each_that_waits() {
    let server = state_fixture().await;
    let graph = server.get("/api/v1/graph").await.expect_status(200);
    let names: Vec<&str> =
        graph["nodes"].as_array().unwrap().iter().map(|node| node["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["browse", "cart", "long", "look", "never", "report"]);
    assert_eq!(graph["edges"], json!([{"from": "look", "to": "report", "group": 0, "needs": "all"}]));
    server.hub.unregister("look").await;
    let graph = server.get("/api/v1/graph").await.expect_status(200);
    let unregistered = json!({"name": "look", "kind": null, "root": true, "status": null, "reason": null});
    assert_eq!(graph["nodes"][3], unregistered);
}

#[tokio::test]
async fn the_graph_has_the_statuses_of_a_thread_or_those_of_all() {
    let server = state_fixture().await;
    server.call("look", "t1", json!({})).await;
    server.send_json("POST /api/v1/threads", json!({"id": "t2"})).await.expect_status(201);
    let look = json!({"status": "maintenance", "reason": "repairs", "threadId": "t1"});
    server.send_json("PUT /api/v1/tools/look/status", look).await.expect_status(200);
    let statuses = async |query: &str| {
        let graph = server.get(&format!("/api/v1/graph{query}")).await.expect_status(200);
        let nodes = graph["nodes"].as_array().unwrap().clone();
        let of = |name: &str| nodes.iter().find(|node| node["name"] == name).unwrap()["status"].clone();
        [of("look"), of("report")]
    };
    assert_eq!(statuses("").await, ["available", "available"], "without a thread nothing waits");
    assert_eq!(statuses("?threadId=t1").await, ["maintenance", "available"]);
    assert_eq!(statuses("?threadId=t2").await, ["available", "unavailable"]);
    let met = async |query: &str| {
        let graph = server.get(&format!("/api/v1/graph{query}")).await.expect_status(200);
        graph["edges"][0]["met"].as_bool()
    };
    assert_eq!([met("").await, met("?threadId=t1").await, met("?threadId=t2").await], [None, Some(true), Some(false)]);
    let chinese = [("accept-language", "zh")];
    let graph = server.request("ann", "GET /api/v1/graph?threadId=t2", None, &chinese).await.expect_status(200);
    assert!(!graph["nodes"][5]["reason"].as_str().unwrap().is_ascii(), "{graph}");
    server.get("/api/v1/graph?threadId=t3").await.expect_problem(404, "thread_not_found");
    server.get("/api/v1/graph?thread=t2").await.expect_problem(422, "invalid_request");
}

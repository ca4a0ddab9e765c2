//! Approvals and grants over the API.

use serde_json::{Value, json};
use toolhub_core::ids::Tenant;

use crate::support_api::{ApiFixture, Reply, api_fixture};

async fn request_order(api: &ApiFixture, what: &str) -> Value {
    let body = json!({"arguments": {"what": what}, "threadId": "t1"});
    api.post("/api/v1/tools/order/calls", body).await.expect_status(202)
}

async fn answer_approval(api: &ApiFixture, call: &Value, body: Value) -> Reply {
    api.post(&format!("/api/v1/approvals/{}", call["approval"]["id"].as_str().unwrap()), body).await
}

async fn wait_ended(api: &ApiFixture, call: &Value) -> Value {
    let path = format!("/api/v1/calls/{}/events", call["id"].as_str().unwrap());
    api.stream(&path, &[]).await.collect_rest().await.pop().unwrap().1
}

#[tokio::test]
async fn open_questions_are_listed_newest_first() {
    let api = api_fixture().await;
    let (tea, cake) = (request_order(&api, "tea").await, request_order(&api, "cake").await);
    let page = api.get("/api/v1/approvals?state=pending&limit=1").await.expect_status(200);
    assert_eq!(page["items"][0]["id"], cake["approval"]["id"]);
    let cursor = page["nextCursor"].as_str().unwrap();
    let rest = api.get(&format!("/api/v1/approvals?state=pending&limit=1&cursor={cursor}")).await.expect_status(200);
    let question = &rest["items"][0];
    assert_eq!((&question["callId"], &rest["nextCursor"]), (&tea["id"], &Value::Null));
    assert_eq!((&question["tool"], &question["arguments"]), (&json!("order"), &json!({"what": "tea"})));
    assert_eq!((&question["state"], &question["answer"]), (&json!("pending"), &Value::Null));
    assert!(question["url"].as_str().unwrap().ends_with(question["id"].as_str().unwrap()));
    answer_approval(&api, &tea, json!({"outcome": "proceed_once"})).await.expect_status(200);
    assert_eq!(
        api.get("/api/v1/approvals?state=pending").await.expect_status(200)["items"].as_array().unwrap().len(),
        1
    );
    assert_eq!(api.get("/api/v1/approvals").await.expect_status(200)["items"].as_array().unwrap().len(), 2);
    api.get("/api/v1/approvals?state=lost").await.expect_problem(422, "invalid_request");
}

#[tokio::test]
async fn a_question_is_answered_once() {
    let api = api_fixture().await;
    let call = request_order(&api, "tea").await;
    let answered =
        answer_approval(&api, &call, json!({"outcome": "cancel", "reason": "too sweet"})).await.expect_status(200);
    assert_eq!((&answered["state"], &answered["answer"]["reason"]), (&json!("denied"), &json!("too sweet")));
    assert_eq!(answered["answer"]["by"], "local");
    let repeated =
        answer_approval(&api, &call, json!({"outcome": "proceed_once"})).await.expect_problem(409, "already_resolved");
    assert_eq!(repeated["state"], "denied");
    let ended = wait_ended(&api, &call).await;
    assert_eq!(ended["error"]["code"], "approval_denied");
    assert!(ended["error"]["model"].as_str().unwrap().contains("too sweet"), "{ended}");
}

#[tokio::test]
async fn arguments_may_be_edited_and_nothing_else_with_them() {
    let api = api_fixture().await;
    let call = request_order(&api, "tea").await;
    let both = json!({"outcome": "proceed_once", "arguments": {}});
    answer_approval(&api, &call, both).await.expect_problem(422, "invalid_request");
    answer_approval(&api, &call, json!({"outcome": "maybe"})).await.expect_problem(422, "invalid_request");
    let edited = json!({"outcome": "modify_with_editor", "arguments": {"what": "water"}});
    answer_approval(&api, &call, edited).await.expect_status(200);
    assert_eq!(wait_ended(&api, &call).await["output"], json!({"ordered": "water"}));
}

#[tokio::test]
async fn what_was_allowed_for_good_is_listed_and_taken_back() {
    let api = api_fixture().await;
    let call = request_order(&api, "tea").await;
    answer_approval(&api, &call, json!({"outcome": "proceed_always"})).await.expect_status(200);
    wait_ended(&api, &call).await;
    let body = json!({"arguments": {"what": "cake"}, "threadId": "t1"});
    assert_eq!(api.post("/api/v1/tools/order/calls", body).await.expect_status(200)["status"], "success");
    let grants = api.get("/api/v1/grants").await.expect_status(200);
    let grant = &grants["items"][0];
    assert_eq!((&grant["covers"]["threadId"], &grant["tools"]), (&json!("t1"), &json!(["order"])));
    let path = format!("/api/v1/grants/{}", grant["id"].as_str().unwrap());
    assert_eq!(api.request("DELETE", &path, None, &[]).await.status, 204);
    api.request("DELETE", &path, None, &[]).await.expect_problem(404, "grant_not_found");
    request_order(&api, "more").await;
}

#[tokio::test]
async fn a_question_of_another_tenant_is_nowhere_to_be_seen() {
    let api = api_fixture().await;
    let foreign = api.hub.call("order", json!({})).tenant(Tenant::new("other").unwrap()).no_wait().await;
    let id = foreign.error.unwrap().approval().unwrap();
    for id in [id.to_string(), "apr_1".into()] {
        api.get(&format!("/api/v1/approvals/{id}")).await.expect_problem(404, "approval_not_found");
        let yes = api.post(&format!("/api/v1/approvals/{id}"), json!({"outcome": "proceed_once"})).await;
        yes.expect_problem(404, "approval_not_found");
    }
    assert_eq!(api.get("/api/v1/approvals").await.expect_status(200)["items"], json!([]));
}

#[tokio::test]
async fn a_server_that_goes_away_promises_the_call_whose_client_waits_for_a_person() {
    let api = api_fixture().await;
    let body = json!({"arguments": {"what": "tea"}, "threadId": "t1"});
    let headers = [("prefer", "wait=60")];
    let waiting = api.request("POST", "/api/v1/tools/order/calls", Some(body), &headers);
    let stop = async {
        while api.get("/api/v1/approvals?state=pending").await.expect_status(200)["items"] == json!([]) {
            tokio::task::yield_now().await;
        }
        api.hub.shutdown(std::time::Duration::ZERO).await;
    };
    let (reply, ()) = tokio::join!(waiting, stop);
    let call = reply.expect_status(202);
    assert_eq!(call["status"], "awaiting_approval", "the call continues after a restart: {call}");
    assert_eq!(reply.header("location"), format!("/api/v1/calls/{}", call["id"].as_str().unwrap()));
}

//! Questions and their answers over the API, and what was allowed for good.

use serde_json::{Value, json};
use toolhub_core::ids::Tenant;

use crate::support_api::{ApiFixture, Reply, api_fixture};

async fn request_order(shop: &ApiFixture, what: &str) -> Value {
    let body = json!({"arguments": {"what": what}, "threadId": "t1"});
    shop.post("/api/v1/tools/order/calls", body).await.expect_status(202)
}

async fn answer_approval(shop: &ApiFixture, call: &Value, body: Value) -> Reply {
    shop.post(&format!("/api/v1/approvals/{}", call["approval"]["id"].as_str().unwrap()), body).await
}

async fn wait_ended(shop: &ApiFixture, call: &Value) -> Value {
    let path = format!("/api/v1/calls/{}/events", call["id"].as_str().unwrap());
    shop.stream(&path, &[]).await.collect_rest().await.pop().unwrap().1
}

#[tokio::test]
async fn open_questions_are_listed_newest_first() {
    let shop = api_fixture().await;
    let (tea, cake) = (request_order(&shop, "tea").await, request_order(&shop, "cake").await);
    let page = shop.get("/api/v1/approvals?state=pending&limit=1").await.expect_status(200);
    assert_eq!(page["items"][0]["id"], cake["approval"]["id"]);
    let cursor = page["nextCursor"].as_str().unwrap();
    let rest = shop.get(&format!("/api/v1/approvals?state=pending&limit=1&cursor={cursor}")).await.expect_status(200);
    let question = &rest["items"][0];
    assert_eq!((&question["callId"], &rest["nextCursor"]), (&tea["id"], &Value::Null));
    assert_eq!((&question["tool"], &question["arguments"]), (&json!("order"), &json!({"what": "tea"})));
    assert_eq!((&question["state"], &question["answer"]), (&json!("pending"), &Value::Null));
    assert!(question["url"].as_str().unwrap().ends_with(question["id"].as_str().unwrap()));
    answer_approval(&shop, &tea, json!({"outcome": "proceed_once"})).await.expect_status(200);
    assert_eq!(
        shop.get("/api/v1/approvals?state=pending").await.expect_status(200)["items"].as_array().unwrap().len(),
        1
    );
    assert_eq!(shop.get("/api/v1/approvals").await.expect_status(200)["items"].as_array().unwrap().len(), 2);
    shop.get("/api/v1/approvals?state=lost").await.expect_problem(422, "invalid_request");
}

#[tokio::test]
async fn a_question_is_answered_once() {
    let shop = api_fixture().await;
    let call = request_order(&shop, "tea").await;
    let answered =
        answer_approval(&shop, &call, json!({"outcome": "cancel", "reason": "too sweet"})).await.expect_status(200);
    assert_eq!((&answered["state"], &answered["answer"]["reason"]), (&json!("denied"), &json!("too sweet")));
    assert_eq!(answered["answer"]["by"], "local");
    let again =
        answer_approval(&shop, &call, json!({"outcome": "proceed_once"})).await.expect_problem(409, "already_resolved");
    assert_eq!(again["state"], "denied");
    let told = wait_ended(&shop, &call).await;
    assert_eq!(told["error"]["code"], "approval_denied");
    assert!(told["error"]["model"].as_str().unwrap().contains("too sweet"), "{told}");
}

#[tokio::test]
async fn arguments_may_be_edited_and_nothing_else_with_them() {
    let shop = api_fixture().await;
    let call = request_order(&shop, "tea").await;
    let both = json!({"outcome": "proceed_once", "arguments": {}});
    answer_approval(&shop, &call, both).await.expect_problem(422, "invalid_request");
    answer_approval(&shop, &call, json!({"outcome": "maybe"})).await.expect_problem(422, "invalid_request");
    let edited = json!({"outcome": "modify_with_editor", "arguments": {"what": "water"}});
    answer_approval(&shop, &call, edited).await.expect_status(200);
    assert_eq!(wait_ended(&shop, &call).await["output"], json!({"ordered": "water"}));
}

#[tokio::test]
async fn what_was_allowed_for_good_is_listed_and_taken_back() {
    let shop = api_fixture().await;
    let call = request_order(&shop, "tea").await;
    answer_approval(&shop, &call, json!({"outcome": "proceed_always"})).await.expect_status(200);
    wait_ended(&shop, &call).await;
    let body = json!({"arguments": {"what": "cake"}, "threadId": "t1"});
    assert_eq!(shop.post("/api/v1/tools/order/calls", body).await.expect_status(200)["status"], "success");
    let grants = shop.get("/api/v1/grants").await.expect_status(200);
    let grant = &grants["items"][0];
    assert_eq!((&grant["covers"]["threadId"], &grant["tools"]), (&json!("t1"), &json!(["order"])));
    let path = format!("/api/v1/grants/{}", grant["id"].as_str().unwrap());
    assert_eq!(shop.request("DELETE", &path, None, &[]).await.status, 204);
    shop.request("DELETE", &path, None, &[]).await.expect_problem(404, "grant_not_found");
    request_order(&shop, "more").await;
}

#[tokio::test]
async fn a_question_of_another_tenant_is_nowhere_to_be_seen() {
    let shop = api_fixture().await;
    let foreign = shop.hub.call("order", json!({})).tenant(Tenant::new("other").unwrap()).no_wait().await;
    let id = foreign.error.unwrap().approval().unwrap();
    for id in [id.to_string(), "apr_1".into()] {
        shop.get(&format!("/api/v1/approvals/{id}")).await.expect_problem(404, "approval_not_found");
        let yes = shop.post(&format!("/api/v1/approvals/{id}"), json!({"outcome": "proceed_once"})).await;
        yes.expect_problem(404, "approval_not_found");
    }
    assert_eq!(shop.get("/api/v1/approvals").await.expect_status(200)["items"], json!([]));
}

#[tokio::test]
async fn a_server_that_goes_away_promises_the_call_whose_client_waits_for_a_person() {
    let shop = api_fixture().await;
    let body = json!({"arguments": {"what": "tea"}, "threadId": "t1"});
    let headers = [("prefer", "wait=60")];
    let waiting = shop.request("POST", "/api/v1/tools/order/calls", Some(body), &headers);
    let stop = async {
        while shop.get("/api/v1/approvals?state=pending").await.expect_status(200)["items"] == json!([]) {
            tokio::task::yield_now().await;
        }
        shop.hub.shutdown(std::time::Duration::ZERO).await;
    };
    let (reply, ()) = tokio::join!(waiting, stop);
    let call = reply.expect_status(202);
    assert_eq!(call["status"], "awaiting_approval", "after a restart it goes on: {call}");
    assert_eq!(reply.header("location"), format!("/api/v1/calls/{}", call["id"].as_str().unwrap()));
}

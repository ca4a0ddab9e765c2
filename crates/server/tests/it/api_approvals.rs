//! Approvals and grants over the API.

use serde_json::{Value, json};
use toolhub_core::{CallContext, ToolError, dynamic, ids::Tenant};

use crate::{
    support_api::{ApiFixture, Reply, api_fixture},
    support_state::state_fixture,
};

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
    assert_eq!((&repeated["state"], &repeated["callId"]), (&json!("denied"), &call["id"]));
    let ended = wait_ended(&api, &call).await;
    assert_eq!(ended["error"]["code"], "approval_denied");
    assert!(ended["error"]["model"].as_str().unwrap().contains("too sweet"), "{ended}");
}

#[tokio::test]
async fn arguments_may_be_edited_and_nothing_else_with_them() {
    let api = api_fixture().await;
    let call = request_order(&api, "tea").await;
    let both = json!({"outcome": "proceed_once", "arguments": {}});
    let problem = answer_approval(&api, &call, both).await.expect_problem(422, "invalid_request");
    assert_eq!(problem["detail"], "`arguments` are allowed only with `modify_with_editor`");
    let neither = json!({"outcome": "modify_with_editor"});
    let problem = answer_approval(&api, &call, neither).await.expect_problem(422, "invalid_request");
    assert!(problem["detail"].as_str().unwrap().starts_with("`modify_with_editor` needs `arguments`"), "{problem}");
    assert_eq!(problem["errors"], json!([{"pointer": "/arguments", "detail": "is required"}]));
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
async fn a_grant_does_not_list_a_changed_tool_as_covered() {
    let api = api_fixture().await;
    let call = request_order(&api, "tea").await;
    answer_approval(&api, &call, json!({"outcome": "proceed_always"})).await.expect_status(200);
    wait_ended(&api, &call).await;
    let tools = async || {
        let grant = api.get("/api/v1/grants").await.expect_status(200)["items"][0].clone();
        (grant["tools"].clone(), grant["changedTools"].clone())
    };
    assert_eq!(tools().await, (json!(["order"]), json!([])));
    api.hub.unregister("order").await.unwrap();
    assert_eq!(tools().await, (json!(["order"]), json!([])), "it may come back as it was");
    let schema = json!({"type": "object"});
    let changed = dynamic("order", schema, |_: Value, _: CallContext| async { Ok::<_, ToolError>(json!({})) });
    api.hub.register(changed.description("Orders more.").confirm().pending_approval("it has changed")).unwrap();
    assert_eq!(tools().await, (json!([]), json!(["order"])));
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
async fn the_link_of_an_approval_leads_to_a_page_that_shows_it_and_answers_nothing() {
    let api = api_fixture().await;
    let arguments = json!({"what": "<img src=x onerror=alert(1)>", "password": "hunter2", "back": "a\u{202e}b"});
    let body = json!({"arguments": arguments, "threadId": "t1"});
    let call = api.post("/api/v1/tools/order/calls", body).await.expect_status(202);
    let (id, url) = (call["approval"]["id"].as_str().unwrap(), call["approval"]["url"].as_str().unwrap());
    let path = url.strip_prefix("http://localhost").unwrap();
    assert_eq!(path, format!("/ui/approvals/{id}"));
    assert_eq!(api.get(&format!("/api/v1/approvals/{id}")).await.expect_status(200)["url"], url);
    assert!(api.get(path).await.header("content-security-policy").contains("script-src 'self'"), "the dashboard");
    // What a link leads to without the dashboard.
    let path = &format!("/pages/approvals/{id}");
    let page = api.get(path).await;
    assert_eq!((page.status, page.header("content-type")), (200, "text/html; charset=utf-8"));
    let csp = page.header("content-security-policy");
    assert!(
        csp.contains("default-src 'none'") && csp.contains("form-action 'none'") && !csp.contains("script"),
        "{csp}"
    );
    let approve = format!("toolhub approvals approve {id} --server http://localhost");
    for shown in
        ["order", "t1", "pending", "the tool requires approval", "&lt;img src=x", "[redacted]", "\\u{202e}", &approve]
    {
        assert!(page.text.contains(shown), "`{shown}` is missing: {}", page.text);
    }
    for hidden in ["hunter2", "<img", "<script", "<form", "\u{202e}"] {
        assert!(!page.text.contains(hidden), "`{hidden}` is there: {}", page.text);
    }
    for method in ["POST", "PUT", "DELETE"] {
        let reply = api.request(method, path, Some(json!({"outcome": "proceed_once"})), &[]).await;
        reply.expect_problem(405, "method_not_allowed");
    }
    answer_approval(&api, &call, json!({"outcome": "cancel", "reason": "too sweet"})).await.expect_status(200);
    let page = api.get(path).await;
    assert!(page.text.contains("denied") && page.text.contains("too sweet") && !page.text.contains(&approve));
    api.get("/pages/approvals/apr_1").await.expect_problem(404, "approval_not_found");
}

#[tokio::test]
async fn an_answer_says_whether_the_call_goes_on_by_itself() {
    let api = api_fixture().await;
    let call = request_order(&api, "tea").await;
    let path = format!("/api/v1/approvals/{}", call["approval"]["id"].as_str().unwrap());
    assert_eq!(api.get(&path).await.expect_status(200)["callWaits"], true);
    assert_eq!(
        answer_approval(&api, &call, json!({"outcome": "proceed_once"})).await.expect_status(200)["callWaits"],
        true
    );
    let refused = api.hub.call("order", json!({"what": "cake"})).no_wait().await.error.unwrap();
    let path = format!("/api/v1/approvals/{}", refused.approval().unwrap());
    let answered = api.post(&path, json!({"outcome": "proceed_once"})).await.expect_status(200);
    assert_eq!((&answered["callWaits"], &answered["state"]), (&json!(false), &json!("approved")));
    let explained = api.get("/api/v1/tools/order/explain").await.expect_status(200);
    assert_eq!(explained.get("grants"), None);
}

#[tokio::test]
async fn the_event_of_a_request_has_the_link_to_its_page() {
    let api = api_fixture().await;
    let mut live = api.stream("/api/v1/events?types=approval.*", &[]).await;
    let call = request_order(&api, "tea").await;
    let (event, data) = live.next_named("approval.requested").await;
    assert_eq!(data["url"], call["approval"]["url"]);
    let before = (event.parse::<u64>().unwrap() - 1).to_string();
    let mut stored = api.stream("/api/v1/events?types=approval.*", &[("last-event-id", &before)]).await;
    assert_eq!(stored.next_named("approval.requested").await.1["url"], call["approval"]["url"]);
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

#[tokio::test]
async fn a_browser_without_a_key_is_told_which_commands_answer_an_approval_and_nothing_about_it() {
    let server = state_fixture().await;
    let browser = [("accept", "text/html,application/xhtml+xml,*/*;q=0.8")];
    let id = "apr_00000000-0000-7000-8000-000000000001";
    let path = format!("GET /pages/approvals/{id}");
    let page = server.request("nobody", &path, None, &browser).await;
    assert_eq!((page.status, page.header("content-type")), (401, "text/html; charset=utf-8"));
    assert_eq!(page.header("www-authenticate"), "Bearer");
    let commands = [
        "a key".to_owned(),
        "TOOLHUB_TOKEN".to_owned(),
        format!("toolhub approvals show {id} --server http://localhost"),
        format!("toolhub approvals approve {id} --server http://localhost"),
    ];
    for shown in commands {
        assert!(page.text().contains(&shown), "`{shown}` is missing: {}", page.text());
    }
    let injected = server.request("nobody", "GET /pages/approvals/%3Cb%3E", None, &browser).await;
    assert!(injected.status == 401 && !injected.text().contains("<b>") && !injected.text().contains("%3Cb"));
    server.request("nobody", &path, None, &[]).await.expect_problem(401, "unauthenticated");
    server.request("ann", &path, None, &browser).await.expect_problem(404, "approval_not_found");
}

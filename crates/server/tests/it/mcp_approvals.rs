//! Approvals of calls of MCP clients: in a form, by a link, or not at all.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::Router;
use serde_json::{Value, json};
use toolhub_core::{
    ApprovalState, CallContext, ToolBuilder, ToolError, ToolHub, backend::Memory, dynamic, ids::Tenant,
    testing::TestClock,
};
use toolhub_server::{KeySetting, McpApproval, Scope, Server};
use toolhub_testkit::soak;

use crate::{
    support_api::{ApiFixture, api_fixture, settings},
    support_listener::{make_key, settings_with_keys},
    support_mcp::{McpClient, next, text},
};

/// A hub with a tool `pay` that needs approval and counts its executions.
async fn paying_fixture() -> (ApiFixture, Arc<AtomicUsize>) {
    let (fixture, (pay, paid)) = (api_fixture().await, pay());
    fixture.hub.register(pay).unwrap();
    (fixture, paid)
}

fn pay() -> (ToolBuilder, Arc<AtomicUsize>) {
    let paid = Arc::new(AtomicUsize::new(0));
    let counter = paid.clone();
    let pay = dynamic("pay", json!({"type": "object"}), move |given: Value, _: CallContext| {
        counter.fetch_add(1, Ordering::Relaxed);
        async move { Ok::<_, ToolError>(json!({"paid": given["sum"]})) }
    });
    (pay.confirm(), paid)
}

fn forms() -> Value {
    json!({"elicitation": {"form": {}}})
}

fn modern(router: &Router) -> McpClient {
    McpClient::modern(router, "/mcp").can(forms())
}

/// The same call again, with the state and the answer of the form.
fn answered(asked: &Value, arguments: &Value, answer: &Value) -> Value {
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    json!({
        "name": "pay", "arguments": arguments,
        "inputResponses": {"approval": answer}, "requestState": asked["requestState"],
    })
}

fn decide(content: &Value) -> Value {
    json!({"action": "accept", "content": content})
}

fn once() -> Value {
    decide(&json!({"decision": "proceed_once"}))
}

#[tokio::test]
async fn the_user_of_a_client_without_a_session_decides_in_a_form() {
    let (fixture, paid) = paying_fixture().await;
    let client = modern(&fixture.router);
    let arguments = json!({"sum": 5, "password": "planted"});
    let asked = client.call("pay", arguments.clone()).await;
    let form = &asked["inputRequests"]["approval"]["params"];
    let message = form["message"].as_str().unwrap();
    assert!(message.contains("`pay`") && message.contains("\"sum\":5") && message.contains("Rule: "), "{message}");
    assert!(!asked.to_string().contains("planted"), "{asked}");
    assert_eq!(form["requestedSchema"]["required"], json!(["decision"]));
    let done = client.result("tools/call", answered(&asked, &arguments, &once())).await;
    assert_eq!(text(&done), "{\"paid\":5}");
    // The next call asks again, until it is allowed for ever.
    let asked = client.call("pay", arguments.clone()).await;
    let always = decide(&json!({"decision": "proceed_always_tool"}));
    client.result("tools/call", answered(&asked, &arguments, &always)).await;
    assert_eq!(client.call("pay", arguments).await["isError"], false);
    assert_eq!(paid.load(Ordering::Relaxed), 3);
    let audited = fixture.get("/api/v1/audit").await.expect_status(200);
    let answers = audited["items"].as_array().unwrap().iter().filter(|entry| entry["act"] == "approval.answer");
    assert!(answers.count() == 2, "{audited}");
}

#[tokio::test]
async fn the_user_of_a_session_decides_in_a_form() {
    let (fixture, paid) = paying_fixture().await;
    let client = modern(&fixture.router).initialize().await;
    let mut stream = client.open(&fixture, "pay", json!({"sum": 7})).await;
    let form = next(&mut stream).await;
    assert_eq!(form["method"], "elicitation/create", "{form}");
    assert_eq!(paid.load(Ordering::Relaxed), 0);
    let answer = json!({"jsonrpc": "2.0", "id": form["id"], "result": once()});
    assert_eq!(client.post(&answer).await.status, 202);
    let done = next(&mut stream).await;
    assert_eq!(text(&done["result"]), "{\"paid\":7}", "{done}");
    assert_eq!(paid.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_form_can_change_the_call_refuse_it_or_be_closed() {
    let (fixture, paid) = paying_fixture().await;
    let client = modern(&fixture.router);
    let run = async |sum: i64, answer: Value| {
        let asked = client.call("pay", json!({"sum": sum})).await;
        client.result("tools/call", answered(&asked, &json!({"sum": sum}), &answer)).await
    };
    let edited = decide(&json!({"decision": "modify_with_editor", "arguments": "{\"sum\": 2}"}));
    assert_eq!(text(&run(1, edited).await), "{\"paid\":2}");
    assert_eq!(paid.load(Ordering::Relaxed), 1);
    let refused = run(3, decide(&json!({"decision": "cancel", "message": "not today"}))).await;
    assert!(refused["isError"] == true && text(&refused).contains("not today"), "{refused}");
    let declined = run(4, json!({"action": "decline"})).await;
    assert!(declined["isError"] == true && text(&declined).contains("refused"), "{declined}");
    for answer in [
        json!({"action": "cancel"}),
        decide(&json!({"decision": "perhaps"})),
        decide(&json!({"decision": "modify_with_editor", "arguments": "{"})),
        json!("yes"),
        Value::Null,
    ] {
        let undecided = run(6, answer).await;
        assert!(undecided["isError"] == true && text(&undecided).contains("apr_"), "{undecided}");
        assert!(undecided["_meta"]["dev.toolhub/approvalUrl"].is_string(), "{undecided}");
    }
    assert_eq!(paid.load(Ordering::Relaxed), 1);
}

fn refuse(message: &str) -> Value {
    decide(&json!({"decision": "cancel", "message": message}))
}

#[tokio::test]
async fn the_answer_of_a_form_counts_for_its_own_call_and_no_identical_one() {
    let (fixture, paid) = paying_fixture().await;
    let (client, arguments) = (modern(&fixture.router), json!({"sum": 1}));
    let ask = async || client.call("pay", arguments.clone()).await;
    let answer =
        async |asked: &Value, answer: &Value| client.result("tools/call", answered(asked, &arguments, answer)).await;
    let (one, other) = (ask().await, ask().await);
    let refused = answer(&other, &refuse("not me")).await;
    assert!(refused["isError"] == true && text(&refused).contains("not me"), "{refused}");
    assert_eq!(text(&answer(&one, &once()).await), "{\"paid\":1}");
    assert_eq!(paid.load(Ordering::Relaxed), 1);
    // All at once: each user gets what was decided in the own form.
    let users = (0..soak(12, 30)).map(async |user| {
        let asked = ask().await;
        if user % 2 == 0 {
            let done = answer(&asked, &once()).await;
            assert!(done["isError"] == false, "{user}: {done}");
        } else {
            let message = format!("user {user} refuses");
            let refused = answer(&asked, &refuse(&message)).await;
            assert!(refused["isError"] == true && text(&refused).contains(&message), "{user}: {refused}");
        }
        user % 2 == 0
    });
    let allowed = futures_util::future::join_all(users).await.into_iter().filter(|it| *it).count();
    assert_eq!(paid.load(Ordering::Relaxed), 1 + allowed);
    // A grant that another user gives does not overrule a refusal.
    let (one, other) = (ask().await, ask().await);
    answer(&one, &decide(&json!({"decision": "proceed_always_tool"}))).await;
    let refused = answer(&other, &refuse("still not me")).await;
    assert!(refused["isError"] == true && text(&refused).contains("still not me"), "{refused}");
    assert_eq!(paid.load(Ordering::Relaxed), 2 + allowed);
}

#[tokio::test]
async fn sessions_in_one_thread_decide_about_identical_calls_apart() {
    let (fixture, paid) = paying_fixture().await;
    let in_thread = json!({"name": "add", "arguments": {"a": 1, "b": 1}, "_meta": {"dev.toolhub/threadId": "t-1"}});
    modern(&fixture.router).result("tools/call", in_thread).await;
    let session = async || McpClient::modern(&fixture.router, "/mcp/t/t-1").can(forms()).initialize().await;
    let (ann, bob) = (session().await, session().await);
    let mut for_ann = ann.open(&fixture, "pay", json!({"sum": 1})).await;
    let ann_form = next(&mut for_ann).await;
    let mut for_bob = bob.open(&fixture, "pay", json!({"sum": 1})).await;
    let bob_form = next(&mut for_bob).await;
    let reply = async |client: &McpClient, form: &Value, answer: Value| {
        assert_eq!(form["method"], "elicitation/create", "{form}");
        let message = json!({"jsonrpc": "2.0", "id": form["id"], "result": answer});
        assert_eq!(client.post(&message).await.status, 202);
    };
    reply(&bob, &bob_form, refuse("not me")).await;
    let refused = next(&mut for_bob).await;
    assert!(text(&refused["result"]).contains("not me"), "{refused}");
    reply(&ann, &ann_form, once()).await;
    let done = next(&mut for_ann).await;
    assert_eq!(text(&done["result"]), "{\"paid\":1}", "{done}");
    assert_eq!(paid.load(Ordering::Relaxed), 1);
}

/// A call of `pay` in the thread `t-1`.
fn pay_in_thread(sum: i64) -> Value {
    json!({"name": "pay", "arguments": {"sum": sum}, "_meta": {"dev.toolhub/threadId": "t-1"}})
}

/// More than there may be identical calls that wait for approval.
const MANY: usize = 40;

#[tokio::test]
async fn forms_that_were_closed_or_left_take_no_place() {
    let (fixture, paid) = paying_fixture().await;
    let client = modern(&fixture.router);
    for round in 0..MANY {
        let asked = client.result("tools/call", pay_in_thread(1)).await;
        assert_eq!(asked["resultType"], "input_required", "{round}: {asked}");
        let mut closed = answered(&asked, &json!({"sum": 1}), &json!({"action": "cancel"}));
        closed["_meta"] = pay_in_thread(1)["_meta"].clone();
        let undecided = client.result("tools/call", closed).await;
        assert!(undecided["_meta"]["dev.toolhub/approvalUrl"].is_string(), "{undecided}");
    }
    let pending = async || {
        let pending = fixture.get("/api/v1/approvals?state=pending&limit=500").await.expect_status(200);
        pending["items"].as_array().unwrap().len()
    };
    assert_eq!(pending().await, 1, "the one that the results have linked");
    // A client that shows a form and never answers is not heard of again.
    for round in 0..MANY {
        let asked = client.result("tools/call", pay_in_thread(2)).await;
        assert_eq!(asked["resultType"], "input_required", "{round}: {asked}");
    }
    let asked = client.result("tools/call", pay_in_thread(2)).await;
    let mut allowed = answered(&asked, &json!({"sum": 2}), &once());
    allowed["_meta"] = pay_in_thread(2)["_meta"].clone();
    assert_eq!(text(&client.result("tools/call", allowed).await), "{\"paid\":2}");
    assert_eq!(paid.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn forms_of_a_session_that_were_closed_or_cancelled_take_no_place() {
    let (fixture, paid) = paying_fixture().await;
    let client = modern(&fixture.router).initialize().await;
    for round in 0..MANY {
        let mut stream = client.open(&fixture, "pay", json!({"sum": 1})).await;
        let form = next(&mut stream).await;
        assert_eq!(form["method"], "elicitation/create", "{round}: {form}");
        if round % 2 == 0 {
            let closed = json!({"jsonrpc": "2.0", "id": form["id"], "result": {"action": "cancel"}});
            assert_eq!(client.post(&closed).await.status, 202);
            let undecided = next(&mut stream).await;
            assert!(undecided["result"]["_meta"]["dev.toolhub/approvalUrl"].is_string(), "{undecided}");
        } else {
            let params = json!({"requestId": 1, "reason": "not needed"});
            let cancelled = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
            assert_eq!(client.post(&cancelled).await.status, 202);
            while stream.next_chunk().await.is_some() {}
        }
    }
    assert_eq!(paid.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_client_without_forms_does_not_wait_for_the_form_of_another() {
    let (fixture, paid) = paying_fixture().await;
    let (ann, plain) = (modern(&fixture.router), McpClient::modern(&fixture.router, "/mcp"));
    let asked = ann.result("tools/call", pay_in_thread(1)).await;
    let linked = plain.result("tools/call", pay_in_thread(1)).await;
    let url = linked["_meta"]["dev.toolhub/approvalUrl"].as_str().unwrap();
    let form = &asked["inputRequests"]["approval"]["params"]["_meta"]["dev.toolhub/approval"];
    assert!(!url.ends_with(form.as_str().unwrap()), "{linked}");
    let again = plain.result("tools/call", pay_in_thread(1)).await;
    assert_eq!(again["_meta"]["dev.toolhub/approvalUrl"], url, "made again, it waits for the same approval");
    // Each decision is for its own call.
    let mut refused = answered(&asked, &json!({"sum": 1}), &refuse("not me"));
    refused["_meta"] = pay_in_thread(1)["_meta"].clone();
    assert!(text(&ann.result("tools/call", refused).await).contains("not me"));
    let id = url.rsplit('/').next().unwrap();
    fixture.post(&format!("/api/v1/approvals/{id}"), json!({"outcome": "proceed_once"})).await.expect_status(200);
    assert_eq!(text(&plain.result("tools/call", pay_in_thread(1)).await), "{\"paid\":1}");
    assert_eq!(paid.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_form_in_a_session_is_answered_by_a_key_that_may_approve_only() {
    let (fixture, paid) = paying_fixture().await;
    let scopes = [Scope::ToolsRead, Scope::ToolsCall, Scope::ApprovalsWrite];
    let (ann, ann_key) = make_key("ann", "a", &scopes);
    let (plain, plain_key) = make_key("plain", "a", &scopes[..2]);
    let keys = settings_with_keys([ann.clone(), plain.clone()]);
    let server = Server::new(fixture.hub.clone(), fixture.store.clone(), keys);
    let (ring, router) = (server.key_ring(), server.router());
    let fixture = ApiFixture { router: router.clone(), ..fixture };
    // A key that may not approve is not asked.
    let plain_client = modern(&router).key(&plain_key).initialize().await;
    let linked = plain_client.call("pay", json!({"sum": 1})).await;
    assert!(linked["isError"] == true && text(&linked).contains("apr_"), "{linked}");
    let client = modern(&router).key(&ann_key).initialize().await;
    let mut stream = client.open(&fixture, "pay", json!({"sum": 1})).await;
    let form = next(&mut stream).await;
    let answer = json!({"jsonrpc": "2.0", "id": form["id"], "result": once()});
    // Its answer counts neither in its own session nor in that of another key.
    plain_client.post(&answer).await;
    let thief = McpClient { headers: plain_client.headers.clone(), ..client.clone() };
    assert_eq!(thief.post(&answer).await.status, 404);
    // Nor does that of a key that has lost the scope since the form was shown.
    let set_scopes = |scopes: &[Scope]| {
        ring.replace(&[KeySetting { scopes: scopes.to_vec(), ..ann.clone() }, plain.clone()]).unwrap();
    };
    set_scopes(&scopes[..2]);
    client.post(&answer).await.expect_problem(403, "forbidden");
    assert_eq!(paid.load(Ordering::Relaxed), 0);
    set_scopes(&scopes);
    assert_eq!(client.post(&answer).await.status, 202);
    assert_eq!(text(&next(&mut stream).await["result"]), "{\"paid\":1}");
    assert_eq!(paid.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_sealed_state_approves_nothing_but_its_own_call_and_that_once() {
    let (fixture, paid) = paying_fixture().await;
    let scopes = [Scope::ToolsRead, Scope::ToolsCall, Scope::ApprovalsWrite];
    let (ann, ann_key) = make_key("ann", "a", &scopes);
    let (eve, eve_key) = make_key("eve", "a", &scopes);
    let (bob, bob_key) = make_key("bob", "b", &scopes);
    let (plain, plain_key) = make_key("plain", "a", &scopes[..2]);
    let settings = || settings_with_keys([ann.clone(), eve.clone(), bob.clone(), plain.clone()]);
    let router = || Server::new(fixture.hub.clone(), fixture.store.clone(), settings()).router();
    let server = router();
    let client = |key: &str| modern(&server).key(key);
    let (ann, arguments) = (client(&ann_key), json!({"sum": 1}));
    let asked = ann.call("pay", arguments.clone()).await;
    let params = answered(&asked, &arguments, &once());
    let with = |name: &str, value: Value| {
        let mut params = params.clone();
        params[name] = value;
        params
    };
    let mut foreign: Vec<(McpClient, Value)> = vec![
        (client(&eve_key), params.clone()),
        (client(&bob_key), params.clone()),
        (client(&plain_key), params.clone()),
        (ann.clone(), with("arguments", json!({"sum": 1_000_000}))),
        (ann.clone(), with("name", json!("order"))),
        (ann.clone(), with("_meta", json!({"dev.toolhub/threadId": "t-1"}))),
    ];
    // States of other calls of the same caller: with other arguments, in another thread, of another tool.
    let in_thread = json!({"name": "pay", "arguments": arguments, "_meta": {"dev.toolhub/threadId": "t-1"}});
    for other in [
        ann.call("pay", json!({"sum": 2})).await,
        ann.result("tools/call", in_thread).await,
        ann.call("order", arguments.clone()).await,
    ] {
        assert_eq!(other["resultType"], "input_required", "{other}");
        foreign.push((ann.clone(), with("requestState", other["requestState"].clone())));
    }
    let state = asked["requestState"].as_str().unwrap().as_bytes().to_owned();
    let mutants = soak(100, 1_000);
    foreign.extend((0..mutants).map(|round| {
        let (mut bytes, at) = (state.clone(), round % state.len());
        match round / state.len() {
            0 => bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' },
            1 => bytes.truncate(at),
            2 => bytes[at] ^= 1,
            3 => bytes.insert(at, b'x'),
            _ => bytes.swap(at, 0),
        }
        (ann.clone(), with("requestState", String::from_utf8_lossy(&bytes).into()))
    }));
    foreign.retain(|(client, sent)| client.headers != ann.headers || *sent != params);
    for (client, params) in &foreign {
        let error = client.error("tools/call", params.clone()).await;
        assert!(error["code"] == -32602 && error["message"].as_str().unwrap().contains("start again"), "{error}");
    }
    assert_eq!(paid.load(Ordering::Relaxed), 0);
    // Answers without a state are a new call, which asks.
    let mut unsealed = params.clone();
    unsealed.as_object_mut().unwrap().remove("requestState");
    assert_eq!(ann.result("tools/call", unsealed).await["resultType"], "input_required");
    // The server may be restarted while the user decides; a state that is used by many at once runs once.
    let after_restart = McpClient { router: router(), ..ann.clone() };
    let replies =
        futures_util::future::join_all((0..8).map(|_| after_restart.request("tools/call", params.clone()))).await;
    let done = replies.iter().filter(|reply| reply["result"]["isError"] == false).count();
    assert_eq!((done, paid.load(Ordering::Relaxed)), (1, 1), "{replies:?}");
    assert_eq!(ann.error("tools/call", params).await["code"], -32602);
    // A key that may not approve is never asked.
    let linked = client(&plain_key).call("pay", arguments).await;
    assert!(linked["isError"] == true && text(&linked).contains("apr_"), "{linked}");
    assert_eq!(paid.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_sealed_state_is_accepted_for_ten_minutes() {
    let ((pay, paid), store) = (pay(), Arc::new(Memory::default()));
    let hub = ToolHub::builder().store(store.clone()).clock(TestClock::new()).tool(pay).build().await.unwrap();
    let client = modern(&Server::new(hub.clone(), store, settings()).router());
    let (arguments, lifetime) = (json!({"sum": 1}), Duration::from_secs(600));
    let answered_after = async |time: Duration| {
        let asked = client.call("pay", arguments.clone()).await;
        tokio::time::sleep(time).await;
        client.request("tools/call", answered(&asked, &arguments, &once())).await
    };
    let done = answered_after(lifetime - Duration::from_secs(1)).await;
    assert_eq!(text(&done["result"]), "{\"paid\":1}", "{done}");
    let error = answered_after(lifetime).await["error"].clone();
    assert!(error["code"] == -32602 && error["message"].as_str().unwrap().contains("start again"), "{error}");
    assert_eq!(paid.load(Ordering::Relaxed), 1);
    // The approval itself lasts longer.
    let approvals = hub.approvals(&Tenant::default(), Some(ApprovalState::Pending)).await.unwrap();
    assert_eq!(approvals.len(), 1);
}

#[tokio::test]
async fn what_a_form_cannot_show_whole_is_not_approved_in_it() {
    let (fixture, _) = paying_fixture().await;
    let call = async || modern(&fixture.router).call("pay", json!({"note": "x".repeat(20_000)})).await;
    let result = call().await;
    assert!(result["isError"] == true && text(&result).contains("apr_"), "{}", text(&result));
    assert_eq!(text(&call().await), text(&result), "a call that is made again waits for the same approval");
}

#[tokio::test]
async fn approvals_can_be_linked_only_or_refused() {
    let (fixture, paid) = paying_fixture().await;
    let router = |approval| {
        let mut settings = settings();
        settings.mcp.approval = approval;
        Server::new(fixture.hub.clone(), fixture.store.clone(), settings).router()
    };
    let (link, deny) = (router(McpApproval::Link), router(McpApproval::Deny));
    let refused = modern(&deny).call("pay", json!({"sum": 1})).await;
    assert_eq!(refused["_meta"]["dev.toolhub/code"], "forbidden", "{refused}");
    let approvals = fixture.get("/api/v1/approvals").await.expect_status(200);
    assert_eq!(approvals["items"], json!([]));
    let linked = modern(&link).call("pay", json!({"sum": 1})).await;
    let id = linked["_meta"]["dev.toolhub/approvalUrl"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    // A standing grant holds where approvals are refused.
    let always = json!({"outcome": "proceed_always_tool"});
    fixture.post(&format!("/api/v1/approvals/{id}"), always).await.expect_status(200);
    assert_eq!(modern(&deny).call("pay", json!({"sum": 2})).await["isError"], false);
    assert_eq!(paid.load(Ordering::Relaxed), 1);
}

//! Tasks: calls that MCP clients look up later.

use std::{sync::Arc, time::Duration};

use axum::Router;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use toolhub_core::{
    CallContext, InputKind, InputRequest, ToolError, ToolHub, backend::Memory, dynamic, dynamic_stateful, ids::Tenant,
};
use toolhub_server::{KeySetting, Scope, Server};

use crate::{
    support_api::{ApiFixture, api_fixture},
    support_listener::{make_key, settings_with_keys},
    support_mcp::{McpClient, text},
};

/// A server on which calls become tasks after `after`.
fn router(fixture: &ApiFixture, after: Duration, keys: &[KeySetting]) -> Router {
    let mut settings = settings_with_keys(keys.to_vec());
    settings.mcp.task_after = after;
    Server::new(fixture.hub.clone(), fixture.store.clone(), settings).router()
}

fn client(router: &Router, key: &str) -> McpClient {
    let tasks = json!({"io.modelcontextprotocol/tasks": {}});
    McpClient::modern(router, "/mcp").key(key).can(json!({"extensions": tasks, "elicitation": {"form": {}}}))
}

const SOON: Duration = Duration::from_millis(1);
const NEVER: Duration = Duration::from_secs(3_600);
const ALL: [Scope; 3] = [Scope::ToolsRead, Scope::ToolsCall, Scope::ApprovalsWrite];

/// Looks a task up until it has this status.
async fn until(client: &McpClient, task: &Value, status: &str) -> Value {
    loop {
        let found = client.result("tasks/get", json!({"taskId": task["taskId"]})).await;
        if found["status"] == status {
            return found;
        }
        let is_open = ["working", "input_required"].contains(&found["status"].as_str().unwrap());
        assert!(is_open, "{found}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_call_that_takes_long_becomes_a_task_of_its_caller() {
    let fixture = api_fixture().await;
    let ((ann, ann_key), (eve, eve_key)) = (make_key("ann", "a", &ALL), make_key("eve", "a", &ALL));
    let keys = [ann, eve];
    let server = router(&fixture, SOON, &keys);
    let ann = client(&server, &ann_key);
    let task = ann.call("slow", json!({})).await;
    assert_eq!((&task["resultType"], &task["status"]), (&json!("task"), &json!("working")), "{task}");
    let by_id = json!({"taskId": task["taskId"]});
    // The server may be restarted; for others the task does not exist.
    let (ann, eve) = (client(&router(&fixture, SOON, &keys), &ann_key), client(&server, &eve_key));
    for (method, params) in [
        ("tasks/get", by_id.clone()),
        ("tasks/cancel", by_id.clone()),
        ("tasks/update", json!({"taskId": task["taskId"], "inputResponses": {}})),
    ] {
        assert_eq!(eve.error(method, params).await["code"], -32602, "{method}");
    }
    assert_eq!(ann.error("tasks/get", json!({"taskId": "x"})).await["code"], -32602);
    assert_eq!(ann.result("tasks/get", by_id).await["status"], "working");
    fixture.release.add_permits(1);
    let done = until(&ann, &task, "completed").await;
    assert_eq!((text(&done["result"]), &done["result"]["isError"]), ("done", &json!(false)), "{done}");

    let task = ann.call("slow", json!({})).await;
    ann.result("tasks/cancel", json!({"taskId": task["taskId"]})).await;
    until(&ann, &task, "cancelled").await;
}

#[tokio::test]
async fn a_short_call_and_a_client_without_tasks_get_results() {
    let fixture = api_fixture().await;
    let (ann, key) = make_key("ann", "a", &ALL);
    let keys = [ann];
    let patient = client(&router(&fixture, NEVER, &keys), &key);
    assert_eq!(text(&patient.call("add", json!({"a": 1, "b": 2})).await), "3");
    let failed = patient.call("broken", json!({})).await;
    assert_eq!(failed["isError"], true, "{failed}");
    let plain = McpClient::modern(&router(&fixture, SOON, &keys), "/mcp").key(&key);
    fixture.release.add_permits(1);
    assert_eq!(text(&plain.call("slow", json!({})).await), "done");
    assert_ne!(plain.error("tasks/get", json!({"taskId": "x"})).await["code"], Value::Null);
}

#[tokio::test]
async fn a_call_that_waits_for_a_person_is_a_task_and_its_user_may_decide() {
    let fixture = api_fixture().await;
    let ((ann, ann_key), (plain, plain_key)) = (make_key("ann", "a", &ALL), make_key("plain", "a", &ALL[..2]));
    let server = router(&fixture, NEVER, &[ann, plain]);
    let ann = client(&server, &ann_key);
    let task = ann.call("order", json!({"what": "tea"})).await;
    assert_eq!((&task["resultType"], &task["status"]), (&json!("task"), &json!("input_required")), "{task}");
    let asked = until(&ann, &task, "input_required").await;
    assert_eq!(asked["inputRequests"]["approval"]["method"], "elicitation/create", "{asked}");
    let update = |task: &Value| {
        let answer = json!({"action": "accept", "content": {"decision": "proceed_once"}});
        json!({"taskId": task["taskId"], "inputResponses": {"approval": answer}})
    };
    ann.result("tasks/update", update(&task)).await;
    let done = until(&ann, &task, "completed").await;
    assert_eq!(done["result"]["structuredContent"], json!({"ordered": "tea"}), "{done}");
    // A key that may not approve is not asked, and its answer decides nothing.
    let plain = client(&server, &plain_key);
    let task = plain.call("order", json!({"what": "tea"})).await;
    assert_eq!(task["status"], "working", "{task}");
    plain.result("tasks/update", update(&task)).await;
    assert!(until(&plain, &task, "working").await["statusMessage"].as_str().unwrap().contains("approval"));
}

#[tokio::test]
async fn a_task_whose_tool_asks_gets_the_answer_of_its_client() {
    let fixture = api_fixture().await;
    let gate = fixture.release.clone();
    let ask = dynamic("ask", json!({"type": "object"}), move |_: Value, context: CallContext| {
        ask_after(gate.clone(), context)
    });
    fixture.hub.register(ask).unwrap();
    let (ann, key) = make_key("ann", "a", &ALL);
    let ann = client(&router(&fixture, SOON, &[ann]), &key);
    let task = ann.call("ask", json!({})).await;
    assert_eq!((&task["resultType"], &task["status"]), (&json!("task"), &json!("working")), "{task}");
    fixture.release.add_permits(1);
    let asked = until(&ann, &task, "input_required").await;
    let (key, request) = asked["inputRequests"].as_object().unwrap().iter().next().unwrap();
    assert_eq!(request["params"]["message"], "Name?");
    // As the protocol says, answers to what is not asked are ignored: they may have been sent twice.
    let other = json!({"other": {"action": "accept", "content": {"name": "Eve"}}});
    ann.result("tasks/update", json!({"taskId": task["taskId"], "inputResponses": other})).await;
    let answer = json!({key.as_str(): {"action": "accept", "content": {"name": "Ann"}}});
    ann.result("tasks/update", json!({"taskId": task["taskId"], "inputResponses": answer})).await;
    assert_eq!(text(&until(&ann, &task, "completed").await["result"]), "Ann");
}

#[tokio::test]
async fn a_task_says_when_its_status_changed() {
    let fixture = api_fixture().await;
    let gate = fixture.release.clone();
    let ask = dynamic("ask", json!({"type": "object"}), move |_: Value, context: CallContext| {
        let gate = gate.clone();
        async move {
            let name = ask_after(gate.clone(), context).await?;
            gate.acquire().await.map_err(|_| ToolError::new("the gate is gone"))?.forget();
            Ok::<_, ToolError>(name)
        }
    });
    fixture.hub.register(ask).unwrap();
    let (ann, key) = make_key("ann", "a", &ALL);
    let ann = client(&router(&fixture, SOON, &[ann]), &key);
    let mut times: Vec<String> = Vec::new();
    // Status changes are in different milliseconds.
    let mut changed = async |task: &Value| {
        times.push(task["lastUpdatedAt"].as_str().unwrap().to_owned());
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    let task = ann.call("ask", json!({})).await;
    changed(&task).await;
    fixture.release.add_permits(1);
    let asked = until(&ann, &task, "input_required").await;
    changed(&asked).await;
    let again = until(&ann, &task, "input_required").await;
    assert_eq!(again["lastUpdatedAt"], asked["lastUpdatedAt"], "reading changes nothing");
    let (key, _) = asked["inputRequests"].as_object().unwrap().iter().next().unwrap();
    let answer = json!({key.as_str(): {"action": "accept", "content": {"name": "Ann"}}});
    ann.result("tasks/update", json!({"taskId": task["taskId"], "inputResponses": answer})).await;
    changed(&until(&ann, &task, "working").await).await;
    fixture.release.add_permits(1);
    changed(&until(&ann, &task, "completed").await).await;
    assert!(times.is_sorted_by(|before, after| before < after), "{times:?}");

    let order = ann.call("order", json!({"what": "tea"})).await;
    let approval = json!({"action": "accept", "content": {"decision": "proceed_once"}});
    tokio::time::sleep(Duration::from_millis(5)).await;
    ann.result("tasks/update", json!({"taskId": order["taskId"], "inputResponses": {"approval": approval}})).await;
    let done = until(&ann, &order, "completed").await;
    assert!(done["lastUpdatedAt"].as_str() > order["lastUpdatedAt"].as_str(), "{done}");
}

#[tokio::test]
async fn a_task_is_asked_and_answered_on_whichever_node_its_client_is() {
    let store = Arc::new(Memory::default());
    let (ann, key) = make_key("ann", "a", &ALL);
    let node = async || {
        let hub = ToolHub::builder().shared_store(store.clone()).build().await.unwrap();
        let ask = dynamic("ask", json!({"type": "object"}), |_: Value, context: CallContext| async move {
            tokio::time::sleep(Duration::from_millis(100)).await;
            ask_name(&context, "who").await
        });
        hub.register(ask).unwrap();
        let mut settings = settings_with_keys(vec![ann.clone()]);
        settings.mcp.task_after = SOON;
        let router = Server::new(hub.clone(), store.clone(), settings).router();
        (hub, client(&router, &key))
    };
    let ((hub, here), (_other, there)) = (node().await, node().await);
    let task = here.call("ask", json!({})).await;
    assert_eq!(task["resultType"], "task", "{task}");
    let asked = until(&there, &task, "input_required").await;
    assert_eq!(asked["inputRequests"]["who"]["method"], "elicitation/create", "{asked}");
    assert_eq!(asked["lastUpdatedAt"], until(&here, &task, "input_required").await["lastUpdatedAt"]);
    let update = |task: &Value| json!({"taskId": task["taskId"], "inputResponses": named("Ann")});
    there.result("tasks/update", update(&task)).await;
    assert_eq!(text(&until(&there, &task, "completed").await["result"]), "Ann");

    let task = here.call("ask", json!({})).await;
    until(&there, &task, "input_required").await;
    let stopping = hub.shutdown(Duration::ZERO);
    stopping.await;
    // The question was declined, or the call interrupted.
    let found = there.result("tasks/get", json!({"taskId": task["taskId"]})).await;
    assert!(found["status"] != "input_required", "{found}");
}

/// Adds a tool `greet` that asks for a name, under the key `who`, and then waits for the gate.
fn add_greet(fixture: &ApiFixture) {
    let gate = fixture.release.clone();
    let greet = dynamic("greet", json!({"type": "object"}), move |_: Value, context: CallContext| {
        let gate = gate.clone();
        async move {
            let answer = ask_name(&context, "who").await?;
            gate.acquire().await.map_err(|_| ToolError::new("the gate is gone"))?.forget();
            Ok::<_, ToolError>(answer)
        }
    });
    fixture.hub.register(greet).unwrap();
}

fn named(name: &str) -> Value {
    json!({"who": {"action": "accept", "content": {"name": name}}})
}

#[tokio::test(start_paused = true)]
async fn a_call_that_asked_before_it_took_long_becomes_a_task_after_the_answer() {
    let fixture = api_fixture().await;
    add_greet(&fixture);
    let (ann, key) = make_key("ann", "a", &ALL);
    let ann = client(&router(&fixture, Duration::from_secs(5), &[ann]), &key);
    let greet = async |name: &str| {
        let asked = ann.call("greet", json!({})).await;
        assert_eq!(asked["resultType"], "input_required", "{asked}");
        let again = json!({
            "name": "greet", "arguments": {}, "inputResponses": named(name), "requestState": asked["requestState"],
        });
        let task = ann.result("tools/call", again).await;
        assert_eq!((&task["resultType"], &task["status"]), (&json!("task"), &json!("working")), "{task}");
        task
    };
    let task = greet("Ann").await;
    fixture.release.add_permits(1);
    assert_eq!(text(&until(&ann, &task, "completed").await["result"]), "Ann");
    let task = greet("Bob").await;
    ann.result("tasks/cancel", json!({"taskId": task["taskId"]})).await;
    until(&ann, &task, "cancelled").await;
}

#[tokio::test]
async fn a_client_with_tasks_may_answer_early_and_hears_which_capability_is_missing() {
    let fixture = api_fixture().await;
    add_greet(&fixture);
    fixture.release.add_permits(1);
    let (ann, key) = make_key("ann", "a", &ALL);
    let ann = client(&router(&fixture, NEVER, &[ann]), &key);
    let greet = json!({"name": "greet", "arguments": {}, "inputResponses": named("Ann")});
    assert_eq!(text(&ann.result("tools/call", greet.clone()).await), "Ann");
    let unable = ann.can(json!({"extensions": {"io.modelcontextprotocol/tasks": {}}}));
    let error = unable.error("tools/call", greet).await;
    assert!(error["code"] == -32021 && error["data"]["requiredCapabilities"]["elicitation"].is_object(), "{error}");
}

/// An answer with the key of our own form decides about an approval, so no question of a tool has it.
#[tokio::test]
async fn a_question_named_like_the_form_of_an_approval_has_another_key() {
    let fixture = api_fixture().await;
    let gate = fixture.release.clone();
    let ask = dynamic("ask", json!({"type": "object"}), move |_: Value, context: CallContext| {
        let gate = gate.clone();
        async move {
            gate.acquire().await.map_err(|_| ToolError::new("the gate is gone"))?.forget();
            ask_name(&context, "approval").await
        }
    });
    fixture.hub.register(ask).unwrap();
    let (ann, key) = make_key("ann", "a", &ALL);
    let ann = client(&router(&fixture, SOON, &[ann]), &key);
    let task = ann.call("ask", json!({})).await;
    fixture.release.add_permits(1);
    let asked = until(&ann, &task, "input_required").await;
    let (key, _) = asked["inputRequests"].as_object().unwrap().iter().next().unwrap();
    assert_ne!(key, "approval");
    let answer = json!({key.as_str(): {"action": "accept", "content": {"name": "Ann"}}});
    ann.result("tasks/update", json!({"taskId": task["taskId"], "inputResponses": answer})).await;
    assert_eq!(text(&until(&ann, &task, "completed").await["result"]), "Ann");
}

#[tokio::test]
async fn a_task_names_the_page_of_its_approval_and_the_thread_that_was_chosen_for_it() {
    let fixture = api_fixture().await;
    let buy = dynamic_stateful("buy", "basket", json!({"type": "object"}), |_: Value, _: CallContext| async move {
        Ok::<_, ToolError>(json!("bought"))
    });
    fixture.hub.register(buy.confirm()).unwrap();
    let (plain, key) = make_key("plain", "a", &ALL[..2]);
    let plain = client(&router(&fixture, NEVER, &[plain]), &key);
    let task = plain.call("buy", json!({})).await;
    let found = until(&plain, &task, "working").await;
    let approvals = fixture.hub.approvals(&Tenant::new("a").unwrap(), None).await.unwrap();
    let [approval] = &approvals[..] else { panic!("{approvals:?}") };
    for task in [&task, &found] {
        let url = task["_meta"]["dev.toolhub/approvalUrl"].as_str().unwrap();
        assert!(url.ends_with(&format!("/ui/approvals/{}", approval.id)), "{task}");
        assert_eq!(task["_meta"]["dev.toolhub/threadId"], approval.thread.as_ref().unwrap().as_str(), "{task}");
    }
    let in_thread = json!({"name": "buy", "arguments": {}, "_meta": {"dev.toolhub/threadId": "t-1"}});
    let task = plain.result("tools/call", in_thread).await;
    assert!(task["_meta"]["dev.toolhub/threadId"].is_null(), "{task}");
    let task = plain.result("tasks/get", json!({"taskId": task["taskId"]})).await;
    assert!(task["_meta"]["dev.toolhub/threadId"].is_null(), "the client has named it: {task}");
}

/// Asks for a name once the gate is open.
async fn ask_after(gate: Arc<Semaphore>, context: CallContext) -> Result<Value, ToolError> {
    gate.acquire().await.map_err(|_| ToolError::new("the gate is gone"))?.forget();
    ask_name(&context, "name").await
}

async fn ask_name(context: &CallContext, key: &str) -> Result<Value, ToolError> {
    let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
    let params = json!({"message": "Name?", "requestedSchema": schema});
    let answer = context.request_input(InputRequest::new(InputKind::Form, params).key(key)).await;
    answer.map(|answer| answer["content"]["name"].clone()).map_err(|error| ToolError::refused(error.to_string()))
}

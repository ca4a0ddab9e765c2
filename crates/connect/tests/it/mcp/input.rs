//! Input requests of servers, answered by the callers of the calls they belong to.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};
use toolhub_connect::mcp::McpServer;
use toolhub_core::{
    BoxFuture, ErrorKind, InputHandler, InputKind, InputRequest, ToolHub,
    events::EventKind,
    ids::Tenant,
    testing::{AssertOutcome, EventRecorder},
};
use toolhub_testkit::soak;

use super::{HttpServer, TestServer, connected, text, tools};

/// Accepts every request of these kinds, and remembers it.
struct Caller {
    kinds: Vec<InputKind>,
    asked: Mutex<Vec<InputRequest>>,
}

impl Caller {
    fn new(kinds: &[InputKind]) -> Arc<Self> {
        Arc::new(Self { kinds: kinds.to_vec(), asked: Mutex::default() })
    }

    fn asked(&self) -> Vec<(InputKind, String)> {
        let asked = self.asked.lock().unwrap();
        asked.iter().map(|it| (it.kind, it.params["message"].as_str().unwrap_or("-").to_owned())).collect()
    }
}

impl InputHandler for Caller {
    fn accepts(&self, kind: InputKind) -> bool {
        self.kinds.contains(&kind)
    }

    fn answer(&self, request: InputRequest) -> BoxFuture<'_, Option<Value>> {
        let answer = match request.kind {
            InputKind::Sampling => {
                json!({"role": "assistant", "content": {"type": "text", "text": "hi"}, "model": "m"})
            }
            InputKind::Roots => json!({"roots": [{"uri": "file:///caller"}]}),
            _ => json!({"action": "accept", "content": {"for": request.params["message"]}}),
        };
        self.asked.lock().unwrap().push(request);
        Box::pin(async move { Some(answer) })
    }
}

const ALL: [InputKind; 4] = [InputKind::Form, InputKind::Url, InputKind::Sampling, InputKind::Roots];

async fn legacy(names: &[&str], change: impl Fn(McpServer) -> McpServer) -> (ToolHub, TestServer) {
    let server = TestServer::new(&tools(names)).flags(&["legacy"]);
    (connected(change(server.server())).await, server)
}

async fn call(hub: &ToolHub, tool: &str, arguments: Value, caller: &Arc<Caller>) -> Value {
    let outcome = hub.call(tool, arguments).input(caller.clone()).await;
    serde_json::from_str(outcome.assert_success().as_str().unwrap()).unwrap()
}

#[tokio::test]
async fn a_caller_answers_what_the_server_asks_during_its_call() {
    let (hub, _server) = legacy(&["elicit", "elicit_url", "sample"], |server| server).await;
    let caller = Caller::new(&ALL);
    let answer = call(&hub, "t__elicit", json!({}), &caller).await;
    assert_eq!(answer, json!({"action": "accept", "content": {"for": "Which city?"}}));
    call(&hub, "t__elicit_url", json!({}), &caller).await;
    assert_eq!(caller.asked(), [(InputKind::Form, "Which city?".into()), (InputKind::Url, "Open it".into())]);
    // Without the owner's word no server gets messages of a model.
    assert!(call(&hub, "t__sample", json!({}), &caller).await["message"].as_str().unwrap().contains("declined"));

    let declined = json!({"action": "decline"});
    let form_only = Caller::new(&[InputKind::Form]);
    assert_eq!(call(&hub, "t__elicit_url", json!({}), &form_only).await, declined);
    assert_eq!(text(&hub, "t__elicit", json!({})).await, r#"{"action": "decline"}"#);
    assert!(form_only.asked().is_empty());

    let (hub, _server) = legacy(&["sample"], McpServer::sampling).await;
    assert_eq!(call(&hub, "t__sample", json!({}), &caller).await["model"], "m");
}

#[tokio::test]
async fn a_server_asks_ten_times_during_a_call_at_most() {
    let (hub, _server) = legacy(&["elicit_often"], |server| server).await;
    let caller = Caller::new(&ALL);
    let answers = call(&hub, "t__elicit_often", json!({"count": 12}), &caller).await;
    let accepted = answers.as_array().unwrap().iter().filter(|answer| answer["action"] == "accept").count();
    assert_eq!((answers.as_array().unwrap().len(), accepted, caller.asked().len()), (12, 10, 10));

    let server = TestServer::new(&tools(&["input_forever"]));
    let hub = connected(server.server()).await;
    let outcome = hub.call("t__input_forever", json!({})).input(caller).await;
    let text = outcome.assert_error(ErrorKind::ToolRefused);
    assert!(text.contains("more than 10 times"), "{text}");
}

#[tokio::test]
async fn the_modern_era_asks_in_results_and_gets_all_answers_with_its_state() {
    let server = TestServer::new(&tools(&["input", "capabilities"]));
    let hub = connected(server.server().sampling()).await;
    let caller = Caller::new(&ALL);
    let result = call(&hub, "t__input", json!({"mark": "m1", "sample": true, "roots": true}), &caller).await;
    assert_eq!(result["state"], "state of m1");
    assert_eq!(result["responses"]["form"], json!({"action": "accept", "content": {"for": "m1"}}));
    assert_eq!(result["responses"]["model"]["model"], "m");
    assert_eq!(result["responses"]["roots"], json!({"roots": [{"uri": "file:///caller"}]}));

    // What a caller cannot answer is not declared, and ends the call.
    let capabilities = call(&hub, "t__capabilities", json!({}), &Caller::new(&[InputKind::Form])).await;
    assert_eq!(capabilities, json!({"elicitation": {"form": {}}}));
    assert_eq!(text(&hub, "t__capabilities", json!({})).await, "{}");
    let outcome = hub.call("t__input", json!({"mark": "m2"})).await;
    assert!(outcome.assert_error(ErrorKind::ToolRefused).contains("this caller cannot give"));

    // Roots of the config come first.
    let hub = connected(server.named("roots").root("file:///data")).await;
    let result = call(&hub, "roots__input", json!({"mark": "m3", "roots": true}), &caller).await;
    assert_eq!(result["responses"]["roots"], json!({"roots": [{"uri": "file:///data", "name": null}]}));
}

#[tokio::test]
async fn a_page_that_a_person_has_to_open_first_is_an_input_request() {
    let (hub, _server) = legacy(&["visit"], |server| server).await;
    let outcome = hub.call("t__visit", json!({})).await;
    let text = outcome.assert_error(ErrorKind::ToolRefused);
    assert!(text.contains("open a page") && !text.contains("example.org"), "{text}");
    let (hub, _server) = legacy(&["visit"], |server| server).await;
    let caller = Caller::new(&ALL);
    let outcome = hub.call("t__visit", json!({})).input(caller.clone()).await;
    assert_eq!(outcome.assert_success(), &json!("visited"));
    assert_eq!(caller.asked(), [(InputKind::Url, "Log in first".into())]);
    assert_eq!(caller.asked.lock().unwrap()[0].params["url"], "https://example.org/login");
}

/// Makes 64 calls of 8 tenants at once, each with an input request of its own. Returns how many of them had progress, and log lines.
async fn call_at_once(hub: &ToolHub, round: usize) -> (usize, usize) {
    let mut recorder = EventRecorder::new(hub);
    let calls: Vec<_> = (0..64)
        .map(|number| {
            let (tenant, mark) = (Tenant::new(format!("tenant{}", number % 8)).unwrap(), format!("{round}-{number}"));
            let caller = Caller::new(&[InputKind::Form]);
            let call = hub.call("t__input", json!({"mark": mark})).tenant(tenant).input(caller.clone()).start();
            (call, mark, caller)
        })
        .collect();
    let mut marks = HashMap::new();
    for (call, mark, caller) in calls {
        marks.insert(call.id(), mark.clone());
        let outcome = call.await;
        let result: Value = serde_json::from_str(outcome.assert_success().as_str().unwrap()).unwrap();
        assert_eq!(result["responses"]["form"]["content"]["for"], json!(mark));
        assert_eq!(caller.asked(), [(InputKind::Form, mark)]);
    }
    let (mut with_progress, mut with_logs) = (HashSet::new(), HashSet::new());
    for event in recorder.events() {
        let (call_id, message, seen) = match &event.kind {
            EventKind::CallProgress { call_id, message, .. } => (call_id, message, &mut with_progress),
            EventKind::CallLog { call_id, message, .. } => (call_id, message, &mut with_logs),
            _ => continue,
        };
        assert_eq!(marks.get(call_id), Some(message));
        seen.insert(*call_id);
    }
    (with_progress.len(), with_logs.len())
}

#[tokio::test]
async fn updates_and_input_requests_of_concurrent_calls_of_several_tenants_are_not_mixed_up() {
    let server = TestServer::new(&tools(&["input"]));
    let hub = connected(server.server()).await;
    for round in 0..soak(2, 20) {
        // On a pipe a log line belongs to a call only if no other is in flight.
        assert_eq!(call_at_once(&hub, round).await.0, 64);
    }
    let server = HttpServer::start(&["no-get", "tools=input"]);
    let hub = connected(server.server()).await;
    for round in 0..soak(2, 20) {
        assert_eq!(call_at_once(&hub, round).await, (64, 64));
    }
}

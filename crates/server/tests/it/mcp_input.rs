//! What running tools ask MCP clients for, and what they tell them, in both eras of the protocol.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use toolhub_core::{
    CallContext, InputKind, InputRequest, Prompt, ResourceTemplate, SourceLists, SourceReaders, ToolError, ToolHub,
    ToolName, backend::Memory, dynamic, testing::TestSource,
};
use toolhub_server::{Scope, Server};

use crate::{
    support_api::{ApiFixture, api_fixture, settings},
    support_listener::{make_key, settings_with_keys},
    support_mcp::{McpClient, events, next, text},
};

/// A form that the types of the modern era cannot express is declined, not asked for ever.
#[tokio::test]
async fn a_form_that_cannot_be_expressed_is_declined() {
    let fixture = api_fixture().await;
    let nested = json!({"type": "object", "properties": {"a": {"type": "object", "properties": {}}}});
    let ask = dynamic("nested", json!({"type": "object"}), move |_: Value, context: CallContext| {
        let params = json!({"message": "?", "requestedSchema": nested});
        async move {
            let answer = context.request_input(InputRequest::new(InputKind::Form, params)).await;
            answer.map_err(|error| ToolError::refused(error.to_string()))
        }
    });
    fixture.hub.register(ask.read_only()).unwrap();
    let client = McpClient::modern(&fixture.router, "/mcp").can(json!({"elicitation": {"form": {}}}));
    let result = client.call("nested", json!({})).await;
    assert!(result["isError"] == true && text(&result).contains("declined"), "{result}");
}

/// A hub with tools that ask for a name, twice, and that log.
async fn asking_fixture() -> ApiFixture {
    let fixture = api_fixture().await;
    register_asking_tools(&fixture.hub);
    fixture
}

fn register_asking_tools(hub: &ToolHub) {
    let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
    let ask = dynamic("ask", json!({"type": "object"}), move |_: Value, context: CallContext| {
        let params = |text: &str| json!({"message": text, "requestedSchema": schema});
        let questions = ["First name?", "Last name?"].map(|text| InputRequest::new(InputKind::Form, params(text)));
        async move {
            let mut names = Vec::new();
            for question in questions {
                let answer =
                    context.request_input(question).await.map_err(|error| ToolError::refused(error.to_string()))?;
                names.push(answer["content"]["name"].as_str().unwrap_or_default().to_owned());
            }
            Ok::<_, ToolError>(json!(names.join(" ")))
        }
    });
    let log = dynamic("log", json!({"type": "object"}), |_: Value, context: CallContext| async move {
        context.log("debug", "a detail");
        context.log("warning", "a warning");
        Ok::<_, ToolError>(json!("logged"))
    });
    hub.register_all([ask.read_only(), log.read_only()]).unwrap();
}

async fn accept(client: &McpClient, question: &Value, name: &str) {
    assert_eq!(question["method"], "elicitation/create", "{question}");
    let result = json!({"action": "accept", "content": {"name": name}});
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": result});
    assert_eq!(client.post(&answer).await.status, 202);
}

#[tokio::test]
async fn a_session_is_asked_on_the_stream_of_its_own_call() {
    let fixture = asking_fixture().await;
    let client = async || McpClient::modern(&fixture.router, "/mcp").can(json!({"elicitation": {}})).initialize().await;
    let (ann, bob) = (client().await, client().await);
    let (mut for_ann, mut for_bob) =
        (ann.open(&fixture, "ask", json!({})).await, bob.open(&fixture, "ask", json!({})).await);
    let (first, other) = (next(&mut for_ann).await, next(&mut for_bob).await);
    // An answer counts in its own session only.
    accept(&bob, &first, "Eve").await;
    accept(&bob, &other, "Bob").await;
    accept(&ann, &first, "Ann").await;
    let (second, other) = (next(&mut for_ann).await, next(&mut for_bob).await);
    assert_eq!(second["params"]["message"], "Last name?");
    accept(&ann, &second, "Lee").await;
    accept(&bob, &other, "Ray").await;
    assert_eq!(text(&next(&mut for_ann).await["result"]), "Ann Lee");
    assert_eq!(text(&next(&mut for_bob).await["result"]), "Bob Ray");
    // A client that cannot answer is not asked.
    let result = McpClient::legacy(&fixture.router, "/mcp").await.call("ask", json!({})).await;
    assert!(result["isError"] == true && text(&result).contains("cannot answer"), "{result}");
}

#[tokio::test]
async fn without_a_session_the_answers_come_with_the_same_call_again() {
    let fixture = asking_fixture().await;
    let (ann, ann_key) = make_key("ann", "a", &[Scope::ToolsRead, Scope::ToolsCall]);
    let (eve, eve_key) = make_key("eve", "a", &[Scope::ToolsRead, Scope::ToolsCall]);
    let router = Server::new(fixture.hub.clone(), fixture.store.clone(), settings_with_keys([ann, eve])).router();
    let client = |key: &str| McpClient::modern(&router, "/mcp").key(key).can(json!({"elicitation": {"form": {}}}));
    let (ann, eve) = (client(&ann_key), client(&eve_key));
    let asked = ann.call("ask", json!({})).await;
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let again = |tool: &str, asked: &Value, name: &str| {
        let (key, request) = asked["inputRequests"].as_object().unwrap().iter().next().unwrap();
        assert_eq!(request["method"], "elicitation/create");
        let answers = json!({key.as_str(): {"action": "accept", "content": {"name": name}}});
        json!({"name": tool, "arguments": {}, "inputResponses": answers, "requestState": asked["requestState"]})
    };
    let mut altered = again("ask", &asked, "Ann");
    altered["requestState"] = "0000".into();
    for (client, params) in [(&eve, again("ask", &asked, "Eve")), (&ann, altered)] {
        let error = client.error("tools/call", params).await;
        assert!(error["code"] == -32602 && error["message"].as_str().unwrap().contains("start again"), "{error}");
    }
    let second = ann.result("tools/call", again("ask", &asked, "Ann")).await;
    assert_eq!(second["inputRequests"].as_object().unwrap().len(), 1, "{second}");
    let replayed = ann.error("tools/call", again("ask", &asked, "Ann")).await;
    assert_eq!(replayed["code"], -32602);
    let done = ann.result("tools/call", again("ask", &second, "Lee")).await;
    assert_eq!((text(&done), &done["isError"]), ("Ann Lee", &json!(false)));
    // The state of another call is refused: of another tool, with other arguments, or in another thread.
    let asked = ann.call("ask", json!({})).await;
    let with = |name: &str, value: Value| {
        let mut params = again("ask", &asked, "Ann");
        params[name] = value;
        params
    };
    for params in [
        again("log", &asked, "Ann"),
        with("arguments", json!({"a": 1})),
        with("_meta", json!({"dev.toolhub/threadId": "t-1"})),
    ] {
        let error = ann.error("tools/call", params).await;
        assert!(error["code"] == -32602 && error["message"].as_str().unwrap().contains("start again"), "{error}");
    }
    let second = ann.result("tools/call", again("ask", &asked, "Ann")).await;
    assert_eq!(second["resultType"], "input_required", "{second}");
    let ask = json!({"name": "ask", "arguments": {}});
    let unable = McpClient::modern(&router, "/mcp").key(&ann_key).error("tools/call", ask).await;
    assert_eq!(unable["code"], -32021, "{unable}");
    assert!(unable["data"]["requiredCapabilities"]["elicitation"].is_object(), "{unable}");
}

#[tokio::test]
async fn without_a_session_no_stream_has_a_request_of_the_server() {
    let fixture = api_fixture().await;
    let ask = dynamic("ask_all", json!({"type": "object"}), |_: Value, context: CallContext| async move {
        context.progress("before");
        let form = json!({"message": "?", "requestedSchema": {"type": "object", "properties": {}}});
        let messages = json!([{"role": "user", "content": {"type": "text", "text": "?"}}]);
        let sampling = json!({"messages": messages, "maxTokens": 10});
        let ask = async |kind, params| context.request_input(InputRequest::new(kind, params)).await.is_ok();
        let answered = futures_util::join!(
            ask(InputKind::Form, form),
            ask(InputKind::Sampling, sampling),
            ask(InputKind::Roots, json!({}))
        );
        Ok::<_, ToolError>(json!(answered))
    });
    fixture.hub.register(ask).unwrap();
    let capabilities = json!({"elicitation": {"form": {}}, "sampling": {}, "roots": {}});
    let client = McpClient::modern(&fixture.router, "/mcp").can(capabilities);
    let mut listening = client.listen(&fixture, json!({"toolsListChanged": true})).await;
    for (tool, asks) in [
        ("ask_all", &["elicitation/create", "roots/list", "sampling/createMessage"][..]),
        ("order", &["elicitation/create"][..]),
    ] {
        let params = json!({"name": tool, "arguments": {}, "_meta": {"progressToken": "p"}});
        let reply = client.post(&client.message("tools/call", params)).await;
        let mut messages = if reply.text.starts_with('{') { vec![reply.json()] } else { events(&reply.text) };
        let answer = messages.pop().unwrap();
        assert!(messages.iter().all(|message| message["id"].is_null()), "{messages:?}");
        let requests = answer["result"]["inputRequests"].as_object().unwrap_or_else(|| panic!("{answer}"));
        let mut methods: Vec<&str> = requests.values().map(|request| request["method"].as_str().unwrap()).collect();
        methods.sort_unstable();
        assert_eq!((methods.as_slice(), &answer["method"]), (asks, &Value::Null));
    }
    fixture.hub.register(toolhub_core::testing::scripted("marker", []).0).unwrap();
    let event = next(&mut listening).await;
    assert_eq!((&event["method"], &event["id"]), (&json!("notifications/tools/list_changed"), &Value::Null));
}

#[tokio::test]
async fn a_resource_or_prompt_that_asked_goes_on_for_the_same_one_only() {
    let fixture = api_fixture().await;
    let reader = |name: &str, output: Value| {
        let reader = dynamic(name, json!({"type": "object"}), move |_: Value, context: CallContext| {
            let (params, output) =
                (json!({"message": "?", "requestedSchema": {"type": "object", "properties": {}}}), output.clone());
            async move {
                let answer = context.request_input(InputRequest::new(InputKind::Form, params).key("ok")).await;
                answer.map(|_| output).map_err(|error| ToolError::refused(error.to_string()))
            }
        });
        reader.read_only().unlisted()
    };
    let (source, mut control) = TestSource::new("docs");
    fixture.hub.add_source(Arc::new(source)).unwrap();
    let handle = control.handle().await;
    let contents = json!({"contents": [{"uri": "doc://a", "text": "the text"}]});
    handle.replace_tools(vec![reader("docs__read", contents), reader("docs__prompt", json!({"messages": []}))]).await;
    handle.connected().await;
    let prompt = |name: &str| (format!("docs__{name}"), Prompt { name: name.into(), ..Prompt::default() });
    let template = ResourceTemplate { uri_template: "doc://{id}".into(), name: "doc".into(), ..Default::default() };
    let tool = |name: &str| Some(ToolName::new(name).unwrap());
    handle.replace_lists(SourceLists {
        prompts: [prompt("one"), prompt("two")].into(),
        resources: Vec::new(),
        templates: vec![template],
        readers: SourceReaders { resource: tool("docs__read"), prompt: tool("docs__prompt"), completion: None },
    });
    let client = McpClient::modern(&fixture.router, "/mcp").can(json!({"elicitation": {"form": {}}}));
    for (method, right, wrong) in [
        ("resources/read", json!({"uri": "doc://a"}), json!({"uri": "doc://b"})),
        ("prompts/get", json!({"name": "docs__one"}), json!({"name": "docs__two"})),
    ] {
        let asked = client.result(method, right.clone()).await;
        assert_eq!(asked["resultType"], "input_required", "{asked}");
        let again = |params: &Value| {
            let mut params = params.clone();
            params["inputResponses"] = json!({"ok": {"action": "accept", "content": {}}});
            params["requestState"] = asked["requestState"].clone();
            params
        };
        let error = client.error(method, again(&wrong)).await;
        assert!(error["code"] == -32602 && error["message"].as_str().unwrap().contains("start again"), "{error}");
        let read = client.result(method, again(&right)).await;
        assert!(read["contents"].is_array() || read["messages"].is_array(), "{read}");
    }
}

/// 1,000 calls may wait for an answer. The tool of a further one hears that its caller declined.
#[tokio::test]
async fn the_questions_of_a_call_too_many_are_declined_and_it_goes_on() {
    let fixture = asking_fixture().await;
    let client = McpClient::modern(&fixture.router, "/mcp").can(json!({"elicitation": {"form": {}}}));
    for _ in 0..1_000 {
        assert_eq!(client.call("ask", json!({})).await["resultType"], "input_required");
    }
    let result = client.call("ask", json!({})).await;
    assert!(result["isError"] == true && text(&result).contains("declined"), "{result}");
}

#[tokio::test]
async fn log_lines_are_sent_from_the_level_that_the_client_wants() {
    let fixture = asking_fixture().await;
    let legacy = McpClient::legacy(&fixture.router, "/mcp").await;
    let lines = async |client: &McpClient, meta: Value| {
        let message = client.message("tools/call", json!({"name": "log", "arguments": {}, "_meta": meta}));
        let reply = client.post(&message).await;
        let lines = events(&reply.text).into_iter().filter(|message| message["method"] == "notifications/message");
        lines.map(|line| line["params"]["data"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(lines(&legacy, json!({})).await, ["a warning"]);
    legacy.result("logging/setLevel", json!({"level": "debug"})).await;
    assert_eq!(lines(&legacy, json!({})).await, ["a detail", "a warning"]);
    legacy.result("logging/setLevel", json!({"level": "error"})).await;
    assert!(lines(&legacy, json!({})).await.is_empty());
    let modern = McpClient::modern(&fixture.router, "/mcp");
    assert!(lines(&modern, json!({})).await.is_empty());
    let meta = json!({"io.modelcontextprotocol/logLevel": "debug"});
    assert_eq!(lines(&modern, meta).await, ["a detail", "a warning"]);
    assert_eq!(modern.error("logging/setLevel", json!({"level": "error"})).await["code"], -32601);
}

/// What a client sends to go on with a call that asked it.
fn answered(asked: &Value, name: &str) -> Value {
    let key = asked["inputRequests"].as_object().unwrap().keys().next().unwrap();
    let answers = json!({key.as_str(): {"action": "accept", "content": {"name": name}}});
    json!({"name": "ask", "arguments": {}, "inputResponses": answers, "requestState": asked["requestState"]})
}

#[tokio::test]
async fn a_suspended_call_goes_on_whichever_node_gets_the_answers() {
    let store = Arc::new(Memory::default());
    let node = async || {
        let hub = ToolHub::builder().shared_store(store.clone()).build().await.unwrap();
        register_asking_tools(&hub);
        let router = Server::new(hub.clone(), store.clone(), settings()).router();
        (hub, McpClient::modern(&router, "/mcp").can(json!({"elicitation": {"form": {}}})))
    };
    let ((hub, here), (_other, there)) = (node().await, node().await);
    let asked = here.call("ask", json!({})).await;
    assert!(!asked["requestState"].as_str().unwrap().contains(hub.node_id()), "clients do not learn which node it is");
    let mut altered = answered(&asked, "Eve");
    altered["arguments"] = json!({"a": 1});
    let error = there.error("tools/call", altered).await;
    assert!(error["message"].as_str().unwrap().contains("no such call waits"), "{error}");
    let second = there.result("tools/call", answered(&asked, "Ann")).await;
    assert_eq!(second["resultType"], "input_required", "{second}");
    let replayed = there.error("tools/call", answered(&asked, "Ann")).await;
    assert_eq!(replayed["code"], -32602);
    let done = there.result("tools/call", answered(&second, "Lee")).await;
    assert_eq!((text(&done), &done["isError"]), ("Ann Lee", &json!(false)));

    // Once more, and the node of the call goes on with it in between.
    let asked = here.call("ask", json!({})).await;
    let second = there.result("tools/call", answered(&asked, "Ann")).await;
    let done = here.result("tools/call", answered(&second, "Lee")).await;
    assert_eq!(text(&done), "Ann Lee");

    let asked = here.call("ask", json!({})).await;
    hub.shutdown(Duration::from_secs(1)).await;
    let error = there.error("tools/call", answered(&asked, "Ann")).await;
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("node of this hub that is gone") && message.contains("start again"), "{error}");
    let asked = there.call("ask", json!({})).await;
    assert_eq!(asked["resultType"], "input_required", "{asked}");
}

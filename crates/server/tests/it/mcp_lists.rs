//! Prompts, resources and artifacts, as MCP clients list and read them.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};
use toolhub_core::{
    CallContext, Prompt, Resource, ResourceTemplate, SourceHandle, SourceLists, SourceReaders, ToolBuilder, ToolError,
    ToolName, dynamic, testing::TestSource,
};
use toolhub_server::Server;

use crate::{
    support_api::{ApiFixture, api_fixture},
    support_mcp::{McpClient, both_eras, next},
};

/// A tool that returns an answer, or refuses what it does not know.
fn reader(name: &str, known: &'static str, answer: Value) -> ToolBuilder {
    let reader = dynamic(name, json!({"type": "object"}), move |given: Value, _: CallContext| {
        let answer = answer.clone();
        async move {
            if !given.to_string().contains(known) {
                return Err(ToolError::refused("there is nothing like this"));
            }
            Ok(answer)
        }
    });
    reader.read_only().unlisted()
}

/// Adds a source with a resource, a template and a prompt.
async fn add_source(fixture: &ApiFixture) -> SourceHandle {
    let (source, mut control) = TestSource::new("docs");
    fixture.hub.add_source(Arc::new(source)).unwrap();
    let handle = control.handle().await;
    let messages = json!([{"role": "user", "content": {"type": "text", "text": "Hello Ann"}}]);
    handle
        .replace_tools(vec![
            reader("docs__resources-read", "doc://", json!({"contents": [{"uri": "doc://a", "text": "the text"}]})),
            reader("docs__prompts-get", "Ann", json!({"messages": messages})),
            reader("docs__completion-complete", "ref", json!({"completion": {"values": ["Ann"]}})),
        ])
        .await;
    handle.connected().await;
    set_lists(&handle);
    handle
}

/// What the source brings besides tools.
fn set_lists(handle: &SourceHandle) {
    let name = |name: &str| Some(ToolName::new(name).unwrap());
    let prompt = Prompt { name: "hello".into(), ..Prompt::default() };
    let template = ResourceTemplate { uri_template: "doc://{id}".into(), name: "doc".into(), ..Default::default() };
    handle.replace_lists(SourceLists {
        prompts: BTreeMap::from([("docs__hello".to_owned(), prompt)]),
        resources: vec![Resource { uri: "doc://a".into(), name: "a".into(), ..Resource::default() }],
        templates: vec![template],
        readers: SourceReaders {
            resource: name("docs__resources-read"),
            prompt: name("docs__prompts-get"),
            completion: name("docs__completion-complete"),
        },
    });
}

#[tokio::test]
async fn prompts_and_resources_of_sources_are_listed_read_and_completed() {
    let fixture = api_fixture().await;
    add_source(&fixture).await;
    for client in both_eras(&fixture).await {
        let list = client.result("resources/list", json!({})).await;
        assert_eq!((&list["resources"][0]["uri"], &list["ttlMs"]), (&json!("doc://a"), &json!(60_000)));
        let list = client.result("resources/templates/list", json!({})).await;
        let templates: Vec<_> =
            list["resourceTemplates"].as_array().unwrap().iter().map(|it| &it["uriTemplate"]).collect();
        assert_eq!(templates, ["doc://{id}", "toolhub://artifacts/{id}"]);
        let read = client.result("resources/read", json!({"uri": "doc://7"})).await;
        assert_eq!(read["contents"][0]["text"], "the text");
        let not_found = if client.session.is_some() { -32002 } else { -32602 };
        assert_eq!(client.error("resources/read", json!({"uri": "other://7"})).await["code"], not_found);

        let list = client.result("prompts/list", json!({})).await;
        assert_eq!(list["prompts"][0]["name"], "docs__hello");
        let params = |who: &str| json!({"name": "docs__hello", "arguments": {"who": who}});
        let prompt = client.result("prompts/get", params("Ann")).await;
        assert_eq!(prompt["messages"][0]["content"]["text"], "Hello Ann");
        let refused = client.error("prompts/get", params("Bob")).await;
        assert!(refused["code"] == -32602 && refused["message"].as_str().unwrap().contains("nothing like this"));
        assert_eq!(client.error("prompts/get", json!({"name": "hello"})).await["code"], -32602);
        let complete =
            json!({"ref": {"type": "ref/prompt", "name": "docs__hello"}, "argument": {"name": "who", "value": "A"}});
        assert_eq!(client.result("completion/complete", complete).await["completion"]["values"], json!(["Ann"]));
        let names = client.names().await;
        assert!(names.iter().all(|name| !name.starts_with("docs__")), "readers are in no list: {names:?}");
    }
    let calls = fixture.get("/api/v1/calls?tool=docs__resources-read").await.expect_status(200);
    assert!(calls["items"].as_array().unwrap().len() >= 2, "reading is in the journal");
}

#[tokio::test]
async fn what_no_list_has_cannot_be_subscribed_to_completed_or_paged() {
    let fixture = api_fixture().await;
    add_source(&fixture).await;
    for client in [McpClient::legacy(&fixture.router, "/mcp").await, McpClient::modern(&fixture.router, "/mcp")] {
        // The only source would be asked to read it: it may have resources that it does not list.
        let (unknown, fitting) = ("other://7", "doc://7");
        if client.session.is_some() {
            let error = client.error("resources/subscribe", json!({"uri": unknown})).await;
            assert_eq!((&error["code"], &error["data"]["uri"]), (&json!(-32002), &json!(unknown)), "{error}");
            client.result("resources/subscribe", json!({"uri": fitting})).await;
        } else {
            let listen = json!({"notifications": {"resourceSubscriptions": [unknown]}});
            assert_eq!(client.error("subscriptions/listen", listen).await["code"], -32602);
        }
        let argument = json!({"name": "who", "value": "A"});
        for reference in [
            json!({"type": "ref/prompt", "name": "docs__unknown"}),
            json!({"type": "ref/resource", "uri": "other://{id}"}),
        ] {
            let error = client.error("completion/complete", json!({"ref": reference, "argument": argument})).await;
            assert_eq!(error["code"], -32602, "{error}");
        }
        let artifact = json!({"type": "ref/resource", "uri": "toolhub://artifacts/{id}"});
        let completed = client.result("completion/complete", json!({"ref": artifact, "argument": argument})).await;
        assert_eq!(completed["completion"]["values"], json!([]));
        for method in ["tools/list", "prompts/list", "resources/list", "resources/templates/list"] {
            let error = client.error(method, json!({"cursor": "nonsense"})).await;
            assert_eq!(error["code"], -32602, "{method}: {error}");
        }
    }
}

#[tokio::test]
async fn a_source_that_completes_nothing_has_no_suggestions() {
    let fixture = api_fixture().await;
    let handle = add_source(&fixture).await;
    let prompt = Prompt { name: "hello".into(), ..Prompt::default() };
    let template = ResourceTemplate { uri_template: "doc://{id}".into(), name: "doc".into(), ..Default::default() };
    let name = |name: &str| Some(ToolName::new(name).unwrap());
    let readers = SourceReaders {
        resource: name("docs__resources-read"),
        prompt: name("docs__prompts-get"),
        ..SourceReaders::default()
    };
    handle.replace_lists(SourceLists {
        prompts: BTreeMap::from([("docs__hello".to_owned(), prompt)]),
        templates: vec![template],
        readers,
        ..SourceLists::default()
    });
    let client = McpClient::modern(&fixture.router, "/mcp");
    for reference in
        [json!({"type": "ref/prompt", "name": "docs__hello"}), json!({"type": "ref/resource", "uri": "doc://{id}"})]
    {
        let complete = json!({"ref": reference, "argument": {"name": "who", "value": "A"}});
        assert_eq!(client.result("completion/complete", complete).await["completion"]["values"], json!([]));
    }
}

#[tokio::test]
async fn content_that_is_too_long_is_a_link_that_can_be_read() {
    let fixture = api_fixture().await;
    let long = dynamic("long", json!({"type": "object"}), |_: Value, _: CallContext| async {
        Ok::<_, ToolError>(json!("abc".repeat(100_000)))
    });
    let object = dynamic("object", json!({"type": "object"}), |_: Value, _: CallContext| async {
        Ok::<_, ToolError>(json!({"text": "abc".repeat(100_000)}))
    });
    fixture.hub.register_all([long.read_only(), object.read_only()]).unwrap();
    let client = McpClient::modern(&fixture.router, "/mcp");
    for tool in ["long", "object"] {
        let result = client.call(tool, json!({})).await;
        let link = result["content"].as_array().unwrap().iter().find(|block| block["type"] == "resource_link").unwrap();
        let uri = link["uri"].as_str().unwrap();
        assert!(uri.starts_with("toolhub://artifacts/") && result["structuredContent"].is_null(), "{link}");
        let read = client.result("resources/read", json!({"uri": uri})).await;
        assert!(read["contents"][0]["text"].as_str().unwrap().contains("abcabc"));
    }
    assert_eq!(client.error("resources/read", json!({"uri": "toolhub://artifacts/no"})).await["code"], -32602);
}

#[tokio::test]
async fn clients_hear_of_changed_lists_and_of_the_resources_they_subscribed_to() {
    let fixture = api_fixture().await;
    let source = add_source(&fixture).await;
    let uri = json!({"uri": "doc://a"});
    for client in both_eras(&fixture).await {
        if client.session.is_some() {
            client.result("resources/subscribe", uri.clone()).await;
        } else {
            assert_eq!(client.error("resources/subscribe", uri.clone()).await["code"], -32601);
        }
        let wanted = json!({"resourceSubscriptions": ["doc://a"], "promptsListChanged": true});
        let mut stream = client.listen(&fixture, wanted).await;
        source.resource_updated("doc://a");
        let updated = next(&mut stream).await;
        assert_eq!(updated["method"], "notifications/resources/updated", "{updated}");
        assert_eq!(updated["params"]["uri"], "doc://a");
        let prompt = |name: &str| (format!("docs__{name}"), Prompt { name: name.into(), ..Prompt::default() });
        let mut lists = SourceLists { prompts: BTreeMap::from([prompt("hello")]), ..SourceLists::default() };
        lists.resources = vec![Resource { uri: "doc://a".into(), name: "a".into(), ..Resource::default() }];
        lists.readers.resource = Some(ToolName::new("docs__resources-read").unwrap());
        lists.readers.prompt = Some(ToolName::new("docs__prompts-get").unwrap());
        source.replace_lists(lists.clone());
        lists.prompts.extend([prompt(if client.session.is_some() { "legacy" } else { "modern" })]);
        source.replace_lists(lists);
        let mut changed = next(&mut stream).await;
        if changed["method"] == "notifications/resources/list_changed" {
            changed = next(&mut stream).await;
        }
        assert_eq!(changed["method"], "notifications/prompts/list_changed", "{changed}");
        if client.session.is_some() {
            client.result("resources/unsubscribe", uri.clone()).await;
        }
    }
}

#[tokio::test]
async fn a_restored_session_has_its_subscriptions_and_its_log_level() {
    let fixture = api_fixture().await;
    let source = add_source(&fixture).await;
    let log = dynamic("log", json!({"type": "object"}), |_: Value, context: CallContext| async move {
        context.log("warning", "a warning");
        context.log("error", "an error");
        Ok::<_, ToolError>(json!("logged"))
    });
    fixture.hub.register(log.read_only()).unwrap();
    let client = McpClient::legacy(&fixture.router, "/mcp").await;
    for uri in ["doc://a", "doc://b", "doc://c"] {
        client.result("resources/subscribe", json!({"uri": uri})).await;
    }
    client.result("resources/unsubscribe", json!({"uri": "doc://b"})).await;
    client.result("logging/setLevel", json!({"level": "error"})).await;

    // After a restart, the source may have nothing yet.
    source.replace_lists(SourceLists::default());
    let settings = crate::support_api::settings();
    let router = Server::new(fixture.hub.clone(), fixture.store.clone(), settings).router();
    let restarted = McpClient { router: router.clone(), ..client };
    let fixture = ApiFixture { router, ..fixture };
    let mut messages = restarted.open(&fixture, "log", json!({})).await;
    let logged = next(&mut messages).await;
    assert_eq!(logged["params"]["data"], "an error", "{logged}");

    let mut stream = restarted.listen(&fixture, json!({})).await;
    set_lists(&source);
    let mut heard = Vec::new();
    while heard.len() < 2 {
        let event = next(&mut stream).await;
        if event["method"] == "notifications/resources/updated" {
            heard.push(event["params"]["uri"].as_str().unwrap().to_owned());
        }
    }
    assert_eq!(heard, ["doc://a", "doc://c"], "each may have changed meanwhile");
    source.resource_updated("doc://b");
    source.resource_updated("doc://c");
    let updated = next(&mut stream).await;
    assert_eq!(updated["params"]["uri"], "doc://c", "{updated}");
}

#[tokio::test]
async fn subscriptions_of_a_session_are_bounded() {
    let fixture = api_fixture().await;
    let _source = add_source(&fixture).await;
    let client = McpClient::legacy(&fixture.router, "/mcp").await;
    let subscribe = |uri: String| (client.message("resources/subscribe", json!({"uri": uri})), &client);
    for number in 0..16 {
        let (message, client) = subscribe(format!("doc://{number}{}", "x".repeat(4_000)));
        assert!(client.post(&message).await.expect_status(200)["error"].is_null());
    }
    for _ in 0..2 {
        let (message, client) = subscribe(format!("doc://long{}", "x".repeat(4_000)));
        let refused = client.post(&message).await.expect_status(200);
        assert!(refused["error"]["message"].as_str().unwrap().contains("65536 bytes"), "{refused}");
    }
    for number in 0..84 {
        let (message, client) = subscribe(format!("doc://n{number}"));
        assert!(client.post(&message).await.expect_status(200)["error"].is_null());
    }
    let (message, client) = subscribe("doc://more".into());
    assert_eq!(client.post(&message).await.expect_status(200)["error"]["code"], -32602);
}

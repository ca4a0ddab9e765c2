//! Prompts and resources of servers: listed, read, completed and watched.

use serde_json::{Value, json};
use toolhub_connect::mcp::{McpServer, Protocol};
use toolhub_core::{CompletionTarget, ErrorKind, Outcome, ReadCall, ToolHub, ids::Tenant};

use super::{TestServer, connected, info, names, source, text, tools, wait_connected};
use crate::command::wait_for;

/// A server with lists of both eras, and what the owner asks for.
fn servers() -> [(TestServer, Protocol); 2] {
    let server = || TestServer::new(&tools(&["touch_resource", "add_resource"])).flags(&["lists"]);
    [(server(), Protocol::Legacy), (server(), Protocol::Modern)]
}

fn uris(hub: &ToolHub) -> Vec<String> {
    hub.lists().resources().iter().map(|resource| resource.uri.clone()).collect()
}

async fn read(hub: &ToolHub, call: Option<ReadCall>) -> Outcome {
    let ReadCall { tool, arguments } = call.expect("it is listed");
    hub.call(tool.as_str(), arguments).await
}

async fn connected_with_lists(server: McpServer) -> ToolHub {
    let hub = connected(server.resources().prompts()).await;
    wait_for("the lists", || (!hub.lists().resources().is_empty()).then_some(())).await;
    hub
}

#[tokio::test]
async fn prompts_and_resources_are_listed_and_read_in_both_eras() {
    for (server, protocol) in servers() {
        let hub = connected_with_lists(server.server().protocol(protocol).env("API_TOKEN", "s3cr3t-token")).await;
        assert_eq!(uris(&hub), ["test://a", "test://b", "test://c"], "all pages");
        let lists = hub.lists();
        assert_eq!((lists.prompts()[0].name.as_str(), lists.prompts()[0].arguments.len()), ("t__greet", 1));
        assert_eq!(lists.templates()[0].uri_template, "item://{id}");
        assert_eq!(names(&hub), ["t__add_resource", "t__touch_resource"], "what reads them is in no list");

        let contents = |uri: &str, text: &str| json!({"contents": [{"uri": uri, "text": text}]});
        let outcome = read(&hub, lists.read_resource("test://b")).await;
        assert_eq!(outcome.output, contents("test://b", "contents of test://b"), "{outcome:?}");
        let outcome = read(&hub, lists.read_resource("item://7")).await;
        assert_eq!(outcome.output, contents("item://7", "contents of item://7"));
        let secret = read(&hub, lists.read_resource("test://secret")).await.output.to_string();
        assert!(!secret.contains("s3cr3t-token"), "{secret}");
        let missing = read(&hub, lists.read_resource("test://missing")).await;
        assert_eq!(missing.error_kind(), Some(ErrorKind::ToolRefused), "{missing:?}");

        let arguments = json!({"who": "you"}).as_object().cloned().unwrap();
        let prompt = read(&hub, lists.get_prompt("t__greet", arguments)).await.output;
        assert_eq!(prompt["messages"][0]["content"]["text"], "Hello you");
        let argument = json!({"name": "who", "value": "me"});
        let completed = read(&hub, lists.complete(CompletionTarget::Prompt("t__greet"), argument.clone(), None)).await;
        assert_eq!(completed.output, json!({"completion": {"values": ["me!", "ref/prompt"]}}));
        let template = CompletionTarget::ResourceTemplate("item://{id}");
        let completed = read(&hub, lists.complete(template, argument, None)).await;
        assert_eq!(completed.output, json!({"completion": {"values": ["me!", "ref/resource"]}}));

        let info = info(&hub);
        assert_eq!((&info.details["resources"], &info.details["prompts"]), (&json!(3), &json!(1)));
        let notes = info.details["notes"].to_string();
        assert!(notes.contains("1 entries of a list are not valid: no prompt"), "{notes}");
        let methods: Vec<_> = hub.sources()[0].operations().iter().map(|(method, _)| *method).collect();
        assert!(methods.contains(&"resources/read") && methods.contains(&"prompts/get"), "{methods:?}");
    }
}

#[tokio::test]
async fn a_server_lists_nothing_besides_tools_unless_the_owner_asks_for_it() {
    let [(server, _), _] = servers();
    let hub = connected(server.server()).await;
    assert_eq!((uris(&hub).len(), hub.lists().prompts().len()), (0, 0));
    assert!(hub.get("t__resources-read").is_none());
    let hub = connected(server.server().prompts()).await;
    wait_for("the prompts", || (!hub.lists().prompts().is_empty()).then_some(())).await;
    assert!(uris(&hub).is_empty() && hub.get("t__resources-read").is_none());
    // Without the capability there is nothing to ask for.
    let plain = TestServer::new(&tools(&["echo"]));
    let hub = connected(plain.server().prompts().resources()).await;
    assert!(hub.get("t__resources-read").is_none() && hub.get("t__prompts-get").is_none());
}

#[tokio::test]
async fn changes_of_lists_and_of_watched_resources_are_heard_in_both_eras() {
    for (server, protocol) in servers() {
        let hub = connected_with_lists(server.server().protocol(protocol)).await;
        let mut changes = hub.watch_lists();
        let before = hub.lists().revisions();
        text(&hub, "t__add_resource", json!({"uri": "test://new"})).await;
        while changes.changed().await.unwrap().resources == before.resources {}
        assert!(uris(&hub).contains(&"test://new".to_owned()));

        let mut subscription = hub.subscribe_resource(&Tenant::default(), "test://a").unwrap();
        let watched = async |uri: &str| {
            let watched = text(&hub, "t__touch_resource", json!({"uri": uri})).await;
            serde_json::from_str::<Value>(&watched).unwrap()
        };
        while watched("test://a").await != json!(["test://a"]) {}
        assert!(subscription.changed().await);
        watched("test://b").await;
        drop(subscription);
        while watched("test://a").await != json!([]) {}
    }
}

#[tokio::test]
async fn tools_do_not_wait_for_lists_that_never_come() {
    for flags in [&["lists", "silent-lists", "legacy"][..], &["lists", "silent-lists"]] {
        let server = TestServer::new(&tools(&["pid"])).flags(flags);
        let hub = connected(server.server().prompts().resources()).await;
        text(&hub, "t__pid", json!({})).await;
    }
}

#[tokio::test]
async fn of_two_servers_with_the_same_uris_the_second_has_its_name_in_front() {
    let [(server, _), (other, _)] = servers();
    let builder = ToolHub::builder().source(source(server.server().resources()));
    let hub = builder.source(source(other.named("u").resources())).build().await.unwrap();
    wait_connected(&hub).await;
    wait_for("both lists", || (hub.lists().resources().len() == 6).then_some(())).await;
    let uri = "toolhub://sources/u/test://a";
    assert!(uris(&hub).contains(&uri.to_owned()));
    let call = hub.lists().read_resource(uri).unwrap();
    assert_eq!(call.tool.as_str(), "u__resources-read");
    assert_eq!(read(&hub, Some(call)).await.output["contents"][0]["text"], "contents of test://a");
}

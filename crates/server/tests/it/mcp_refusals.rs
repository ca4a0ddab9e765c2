//! Every method of the protocol for callers that may not use it, or not this session, thread, task or artifact.

use axum::Router;
use serde_json::{Value, json};
use toolhub_core::{CallContext, ToolError, dynamic};
use toolhub_server::{Scope, Server};

use crate::{
    support_api::{Reply, api_fixture},
    support_listener::{make_key, settings_with_keys},
    support_mcp::{LEGACY, McpClient, initialize_message},
};

/// The eras that have a method.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Eras {
    Legacy,
    Modern,
    Both,
}
use Eras::{Both, Legacy, Modern};

const READ: Option<&str> = Some("tools:read");
const CALL: Option<&str> = Some("tools:call");

/// Each method with parameters, and the scope that it needs; without one, either is enough.
fn methods() -> Vec<(&'static str, Eras, Option<&'static str>, Value)> {
    let reference = json!({"ref": {"type": "ref/prompt", "name": "x"}, "argument": {"name": "a", "value": "b"}});
    let task = json!({"taskId": "x"});
    vec![
        ("initialize", Legacy, None, json!({})),
        ("ping", Legacy, None, json!({})),
        ("server/discover", Modern, None, json!({})),
        ("tools/list", Both, READ, json!({})),
        ("tools/call", Both, CALL, json!({"name": "add", "arguments": {"a": 1, "b": 2}})),
        ("prompts/list", Both, READ, json!({})),
        ("prompts/get", Both, CALL, json!({"name": "x"})),
        ("resources/list", Both, READ, json!({})),
        ("resources/templates/list", Both, READ, json!({})),
        ("resources/read", Both, CALL, json!({"uri": "toolhub://artifacts/x"})),
        ("resources/subscribe", Legacy, READ, json!({"uri": "x://1"})),
        ("resources/unsubscribe", Legacy, READ, json!({"uri": "x://1"})),
        ("completion/complete", Both, CALL, reference),
        ("logging/setLevel", Legacy, READ, json!({"level": "error"})),
        ("subscriptions/listen", Modern, READ, json!({"notifications": {}})),
        ("tasks/get", Modern, READ, task.clone()),
        ("tasks/update", Modern, CALL, json!({"taskId": "x", "inputResponses": {}})),
        ("tasks/cancel", Modern, CALL, task),
    ]
}

/// The keys of a server: of one tenant with both scopes, with one of them and with neither; and of another tenant.
struct Keys {
    router: Router,
    own: String,
    reader: String,
    caller: String,
    other_scope: String,
    foreign: String,
}

impl Keys {
    fn client(&self, key: &str, session: Option<&str>) -> McpClient {
        let mut client = McpClient::modern(&self.router, "/mcp").key(key);
        client.session = session.map(str::to_owned);
        client
    }
}

#[track_caller]
fn check_unauthenticated(reply: &Reply, case: &str) {
    assert_eq!((reply.status, reply.header("www-authenticate")), (401, "Bearer"), "{case}: {reply:?}");
    reply.expect_problem(401, "unauthenticated");
}

#[track_caller]
fn check_forbidden(reply: &Reply, scope: &str, case: &str) {
    let challenge = format!("Bearer error=\"insufficient_scope\", scope=\"{scope}\"");
    assert_eq!((reply.status, reply.header("www-authenticate")), (403, challenge.as_str()), "{case}: {reply:?}");
    reply.expect_problem(403, "forbidden");
}

#[tokio::test]
async fn every_method_refuses_callers_that_may_not_use_it() {
    let fixture = api_fixture().await;
    let both = [Scope::ToolsRead, Scope::ToolsCall];
    let (own, own_key) = make_key("own", "a", &both);
    let (reader, reader_key) = make_key("reader", "a", &[Scope::ToolsRead]);
    let (caller, caller_key) = make_key("caller", "a", &[Scope::ToolsCall]);
    let (other, other_key) = make_key("other", "a", &[Scope::StateRead]);
    let (foreign, foreign_key) = make_key("foreign", "b", &both);
    let settings = settings_with_keys([own, reader, caller, other, foreign]);
    let keys = Keys {
        router: Server::new(fixture.hub.clone(), fixture.store.clone(), settings).router(),
        own: own_key,
        reader: reader_key,
        caller: caller_key,
        other_scope: other_key,
        foreign: foreign_key,
    };
    let session_of = async |key: &str| keys.client(key, None).initialize().await.session.unwrap();
    let (own, reader, caller) =
        (session_of(&keys.own).await, session_of(&keys.reader).await, session_of(&keys.caller).await);
    for tool in ["look", "report"] {
        let in_thread = json!({"name": tool, "arguments": {}, "_meta": {"dev.toolhub/threadId": "known"}});
        assert_eq!(keys.client(&keys.own, Some(&own)).result("tools/call", in_thread).await["isError"], false);
    }

    for (method, eras, scope, params) in methods() {
        for is_legacy in [true, false] {
            if is_legacy && eras == Modern || !is_legacy && eras == Legacy {
                continue;
            }
            // `initialize` is the one request of its era without a session.
            let has_session = is_legacy && method != "initialize";
            let send = async |key: &str, session: &str, path: &str| {
                let mut client = keys.client(key, has_session.then_some(session));
                client.path = path.to_owned();
                if key.is_empty() {
                    client.headers.clear();
                }
                let message = match method {
                    "initialize" => initialize_message(LEGACY),
                    _ => client.message(method, params.clone()),
                };
                client.post(&message).await
            };
            let case = format!("{method}, legacy: {is_legacy}");
            let reply = send(&keys.own, &own, "/mcp").await;
            assert!(![401, 403].contains(&reply.status), "{case}: {reply:?}");
            check_unauthenticated(&send("", &own, "/mcp").await, &case);
            check_unauthenticated(&send("thk_bad", &own, "/mcp").await, &case);
            check_forbidden(&send(&keys.other_scope, &own, "/mcp").await, scope.unwrap_or("tools:read"), &case);
            for (key, session, has) in [(&keys.reader, &reader, READ), (&keys.caller, &caller, CALL)] {
                let reply = send(key, session, "/mcp").await;
                match scope.filter(|_| scope != has) {
                    Some(scope) => check_forbidden(&reply, scope, &case),
                    None => assert!(![401, 403].contains(&reply.status), "{case}: {reply:?}"),
                }
            }
            if has_session {
                send(&keys.foreign, &own, "/mcp").await.expect_problem(404, "session_not_found");
            }
            let in_thread = "/mcp/t/known";
            assert_ne!(send(&keys.own, &own, in_thread).await.status, 404, "{case}");
            let unknown = send(&keys.foreign, &own, in_thread).await.expect_problem(404, "thread_not_found");
            assert!(unknown["suggestions"].is_null(), "of another tenant: {unknown}");
            if scope.is_none_or(|scope| Some(scope) == READ) {
                let close = send(&keys.own, &own, "/mcp/t/knwon").await.expect_problem(404, "thread_not_found");
                assert_eq!(close["suggestions"], json!(["known"]), "{case}");
                // Threads are listed for keys with the scope `tools:read`.
                let close = send(&keys.caller, &caller, "/mcp/t/knwon").await.expect_problem(404, "thread_not_found");
                assert!(close["suggestions"].is_null(), "{case}: {close}");
            }
        }
    }

    for verb in ["GET", "DELETE"] {
        let send = async |key: &str, session: Option<&str>, path: &str| {
            let mut client = keys.client(key, session);
            client.path = path.to_owned();
            if key.is_empty() {
                client.headers.clear();
            }
            client.send(verb, None, &[]).await
        };
        check_unauthenticated(&send("", Some(&own), "/mcp").await, verb);
        check_unauthenticated(&send("thk_bad", Some(&own), "/mcp").await, verb);
        send(&keys.foreign, Some(&own), "/mcp").await.expect_problem(404, "session_not_found");
        send(&keys.foreign, Some(&own), "/mcp/t/known").await.expect_problem(404, "thread_not_found");
        send(&keys.own, Some("mcp_never"), "/mcp").await.expect_problem(404, "session_not_found");
        assert_eq!(send(&keys.own, None, "/mcp").await.status, 400);
        match verb {
            "GET" => check_forbidden(&send(&keys.caller, Some(&caller), "/mcp").await, "tools:read", verb),
            _ => assert_eq!(send(&keys.own, Some(&own), "/mcp").await.status, 204),
        }
    }
}

#[tokio::test]
async fn threads_tasks_and_artifacts_of_another_tenant_do_not_exist() {
    let fixture = api_fixture().await;
    let long = dynamic("long", json!({"type": "object"}), |_: Value, _: CallContext| async {
        Ok::<_, ToolError>(json!("abc".repeat(100_000)))
    });
    fixture.hub.register(long.read_only()).unwrap();
    let both = [Scope::ToolsRead, Scope::ToolsCall];
    let ((own, own_key), (foreign, foreign_key)) = (make_key("own", "a", &both), make_key("foreign", "b", &both));
    let mut settings = settings_with_keys([own, foreign]);
    settings.mcp.task_after = std::time::Duration::from_millis(1);
    let router = Server::new(fixture.hub.clone(), fixture.store.clone(), settings).router();
    let tasks = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    let client = |key: &str| McpClient::modern(&router, "/mcp").key(key).can(tasks.clone());
    let (own, foreign) = (client(&own_key), client(&foreign_key));
    let legacy = McpClient::modern(&router, "/mcp").key(&foreign_key).initialize().await;

    // The same id names another thread there, in which nothing has happened.
    let in_thread = |tool: &str| json!({"name": tool, "arguments": {}, "_meta": {"dev.toolhub/threadId": "shared"}});
    own.result("tools/call", in_thread("look")).await;
    for (client, is_listed) in [(&own, true), (&foreign, false), (&legacy, false)] {
        let list = client.result("tools/list", json!({"_meta": {"dev.toolhub/threadId": "shared"}})).await;
        let tools = list["tools"].as_array().unwrap();
        assert_eq!(tools.iter().any(|tool| tool["name"] == "report"), is_listed);
    }

    let content = own.call("long", json!({})).await["content"].clone();
    let link = content.as_array().unwrap().iter().find(|block| block["type"] == "resource_link").unwrap();
    let uri = json!({"uri": link["uri"]});
    own.result("resources/read", uri.clone()).await;
    let unknown = json!({"uri": "toolhub://artifacts/unknown"});
    for (client, code) in [(&foreign, -32602), (&legacy, -32002)] {
        let [found, missing] =
            [client.error("resources/read", uri.clone()).await, client.error("resources/read", unknown.clone()).await];
        assert_eq!((&found["code"], &found["message"]), (&json!(code), &missing["message"]), "{found}");
    }

    let task = own.call("slow", json!({})).await["taskId"].clone();
    for (method, params) in [
        ("tasks/get", json!({"taskId": task})),
        ("tasks/update", json!({"taskId": task, "inputResponses": {}})),
        ("tasks/cancel", json!({"taskId": task})),
    ] {
        let (found, mut other) = (foreign.error(method, params.clone()).await, params);
        other["taskId"] = "unknown".into();
        assert_eq!((&found["code"], &found), (&json!(-32602), &foreign.error(method, other).await), "{method}");
        // It has not declared tasks.
        let refused = legacy.error(method, json!({"taskId": task, "inputResponses": {}})).await;
        assert_eq!(refused["code"], -32021, "{method}");
    }
    assert_eq!(own.result("tasks/get", json!({"taskId": task})).await["status"], "working");
    fixture.release.add_permits(1);
}

#[tokio::test]
async fn a_key_may_do_what_its_scopes_say() {
    let fixture = api_fixture().await;
    let (reader, reader_key) = make_key("reader", "a", &[Scope::ToolsRead]);
    let (caller, caller_key) = make_key("caller", "a", &[Scope::ToolsCall]);
    let (other, other_key) = make_key("other", "a", &[Scope::StateRead]);
    let settings = settings_with_keys([reader, caller, other]);
    let router = Server::new(fixture.hub.clone(), fixture.store.clone(), settings).router();
    let client = |key: &str| McpClient::modern(&router, "/mcp").key(key);
    let check = async |key: &str, method: &str, params: Value, scope: Option<&str>| {
        let client = client(key);
        let reply = client.post(&client.message(method, params)).await;
        match scope {
            None => assert_eq!(reply.status, 200, "{method}: {reply:?}"),
            Some(scope) => {
                reply.expect_problem(403, "forbidden");
                let challenge = format!("Bearer error=\"insufficient_scope\", scope=\"{scope}\"");
                assert_eq!(reply.header("www-authenticate"), challenge);
            }
        }
    };
    let add = json!({"name": "add", "arguments": {"a": 1, "b": 2}});
    check(&reader_key, "tools/list", json!({}), None).await;
    check(&reader_key, "tools/call", add.clone(), Some("tools:call")).await;
    check(&caller_key, "tools/call", add, None).await;
    check(&caller_key, "tools/list", json!({}), Some("tools:read")).await;
    check(&caller_key, "server/discover", json!({}), None).await;
    check(&other_key, "server/discover", json!({}), Some("tools:read")).await;
    let anonymous = McpClient::modern(&router, "/mcp");
    assert_eq!(anonymous.post(&anonymous.message("tools/list", json!({}))).await.status, 401);
}

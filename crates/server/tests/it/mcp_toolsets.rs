//! Toolsets as addresses of the MCP endpoint, which a reload of the config changes.

use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::Notify;
use toolhub_core::{StatusScope, StoreRole, status::ToolStatus};
use toolhub_server::{Backup, HostControl, HostControlError, NamedToolset, ReloadReport, Server};

use crate::{
    support_api::{ApiFixture, api_fixture, settings},
    support_mcp::{LEGACY, McpClient, events, initialize_message, next},
};

const CHANGED: &str = "notifications/tools/list_changed";

/// A host program whose toolset `basic` a test changes.
#[derive(Default)]
struct ToolsetHost {
    toolsets: Mutex<Vec<NamedToolset>>,
    changed: Notify,
}

impl ToolsetHost {
    /// Reloads a config with toolsets of these names and no others.
    fn set_names(&self, names: &[&str]) {
        let toolset =
            |name: &&str| NamedToolset { name: (*name).into(), tools: vec!["add".into()], ..NamedToolset::default() };
        *self.toolsets.lock().unwrap() = names.iter().map(toolset).collect();
        self.changed.notify_waiters();
    }

    /// Reloads a config in which the toolset has these tools, or does not exist.
    fn set(&self, tools: Option<&[&str]>) {
        let toolset = tools.map(|tools| NamedToolset {
            name: "basic".into(),
            tools: tools.iter().map(|&tool| tool.into()).collect(),
            ..NamedToolset::default()
        });
        *self.toolsets.lock().unwrap() = toolset.into_iter().collect();
        self.changed.notify_waiters();
    }
}

impl HostControl for ToolsetHost {
    fn config(&self) -> Value {
        json!({})
    }

    fn reload(&self) -> BoxFuture<'_, Result<ReloadReport, HostControlError>> {
        Box::pin(async { Err(HostControlError::Unsupported("the test changes it".into())) })
    }

    fn backup(&self, _: StoreRole) -> BoxFuture<'_, Result<Backup, HostControlError>> {
        Box::pin(async { Err(HostControlError::Unsupported("nothing to back up".into())) })
    }

    fn toolsets(&self) -> Vec<NamedToolset> {
        self.toolsets.lock().unwrap().clone()
    }

    fn toolsets_changed(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.changed.notified())
    }
}

/// A server with the toolset, and a client of each era at its address.
async fn toolset_clients() -> (ApiFixture, Arc<ToolsetHost>, [McpClient; 2]) {
    let (fixture, host) = (api_fixture().await, Arc::new(ToolsetHost::default()));
    host.set(Some(&["add"]));
    let server = Server::with_host_control(fixture.hub.clone(), fixture.store.clone(), settings(), host.clone());
    let fixture = ApiFixture { router: server.router(), ..fixture };
    let (legacy, modern) =
        (McpClient::legacy(&fixture.router, "/mcp/basic").await, McpClient::modern(&fixture.router, "/mcp/basic"));
    (fixture, host, [legacy, modern])
}

#[tokio::test(start_paused = true)]
async fn listeners_hear_that_a_reload_has_changed_their_toolset() {
    let (fixture, host, clients) = toolset_clients().await;
    for client in clients {
        host.set(Some(&["add"]));
        let mut stream = client.listen(&fixture, json!({"toolsListChanged": true})).await;
        assert_eq!(client.names().await, ["add"]);
        host.set(Some(&["add", "look"]));
        assert_eq!(next(&mut stream).await["method"], CHANGED);
        assert_eq!(client.names().await, ["add", "look"]);
        // From now on it hears of the tools of the new toolset.
        let set = async |status| {
            fixture.hub.set_tool_status("look", status, None, None, StatusScope::Shared).await.unwrap();
        };
        set(ToolStatus::Maintenance).await;
        assert_eq!(next(&mut stream).await["method"], CHANGED);
        assert_eq!(client.names().await, ["add"]);
        set(ToolStatus::Available).await;
        assert_eq!(next(&mut stream).await["method"], CHANGED);
        // A reload that changes something else is not announced.
        host.set(Some(&["add", "look"]));
        let quiet = tokio::time::timeout(std::time::Duration::from_secs(10), next(&mut stream)).await;
        assert!(quiet.is_err(), "{quiet:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn listeners_of_a_toolset_that_is_removed_hear_of_it_and_their_streams_end() {
    let (fixture, host, clients) = toolset_clients().await;
    for client in clients {
        host.set(Some(&["add"]));
        let mut stream = client.listen(&fixture, json!({"toolsListChanged": true})).await;
        host.set(None);
        assert_eq!(next(&mut stream).await["method"], CHANGED);
        client.post(&client.message("tools/list", json!({}))).await.expect_problem(404, "not_found");
        while let Some(chunk) = stream.next_chunk().await {
            assert!(events(&chunk).iter().all(|message| message["method"] != CHANGED), "{chunk}");
        }
    }
}

#[tokio::test]
async fn an_unknown_toolset_is_refused_with_the_closest_names() {
    let (fixture, host, _) = toolset_clients().await;
    host.set_names(&["basic", "basics", "shop", "shop_admin", "travel"]);
    for (asked, closest) in
        [("basik", json!(["basic", "basics"])), ("shop-admin2", json!(["shop_admin", "shop"])), ("zzz", Value::Null)]
    {
        let path = format!("/mcp/{asked}");
        let client = McpClient::modern(&fixture.router, &path);
        let mut replies = vec![
            client.post(&client.message("tools/list", json!({}))).await,
            client.post(&client.message("tools/call", json!({"name": "add", "arguments": {}}))).await,
            client.post(&initialize_message(LEGACY)).await,
        ];
        for verb in ["GET", "DELETE"] {
            replies.push(client.send(verb, None, &[]).await);
        }
        for reply in replies {
            let problem = reply.expect_problem(404, "not_found");
            assert_eq!(
                (&problem["suggestions"], &problem["detail"]),
                (&closest, &json!(format!("there is no toolset `{asked}`")))
            );
        }
        let listed =
            fixture.get(&format!("/api/v1/tools?toolset={asked}")).await.expect_problem(422, "invalid_request");
        assert_eq!(listed["suggestions"], closest);
    }
}

//! Two daemons on one store are two nodes.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::time::Instant;
use toolhub::{
    backend::{Backend, Memory},
    clock::{Clock as _, SystemClock},
    server::{HostControl as _, ToolChangeError},
};
use toolhub_testkit::TempFolder;

use super::*;
use crate::{
    config::{LoadOptions, StoreHandle},
    local_hub::LocalHub,
    serve::daemon::Purpose,
};

/// A node with this config, which follows the changes of others.
async fn node(store: &Arc<Memory>, config: &str) -> (Arc<Daemon>, TempFolder) {
    let folder = TempFolder::new();
    folder.write("toolhub.toml", &format!("[server]\ntool_hosts = [\"127.0.0.1\"]\n{config}"));
    let environment = [("HOME".to_owned(), folder.path().display().to_string())].into_iter().collect();
    let options = LoadOptions { folder: folder.path().to_owned(), environment, ..LoadOptions::default() };
    let local = LocalHub::load(options).unwrap();
    let store = StoreHandle::Memory(store.clone());
    let daemon = Arc::new(Daemon::open_on(store, &local, None, Purpose::Serve).await.unwrap());
    daemon.watch_definitions();
    (daemon, folder)
}

/// Waits until the condition holds; returns after how long.
#[track_caller]
fn until(condition: impl Fn() -> bool) -> impl Future<Output = Duration> {
    let (caller, started) = (std::panic::Location::caller(), Instant::now());
    async move {
        while !condition() {
            assert!(started.elapsed() < Duration::from_secs(30), "the condition of {caller} never held");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        started.elapsed()
    }
}

fn tool(name: &str, description: &str) -> Value {
    json!({ "name": name, "builtin": "clock", "description": description })
}

fn description(daemon: &Daemon, name: &str) -> Option<String> {
    daemon.hub.get(name).map(|tool| tool.definition.description.to_string())
}

#[tokio::test]
async fn what_the_api_of_one_node_creates_replaces_and_removes_the_others_have_at_once() {
    let store = Arc::new(Memory::new());
    // Stored before the others start, and after they have loaded what is stored.
    let ((one, _one), (two, _two), (three, _three)) = (
        node(&store, "").await,
        node(&store, "").await,
        node(&store, "[tools.made]\nbuiltin = \"calculator\"\n").await,
    );
    let configured = description(&three, "made");

    one.create_tool(tool("made", "the first")).await.unwrap();
    until(|| description(&two, "made").as_deref() == Some("the first")).await;
    two.replace_tool("made", tool("made", "the second")).await.unwrap();
    until(|| description(&one, "made").as_deref() == Some("the second")).await;
    assert_eq!(description(&three, "made"), configured, "the config takes precedence");
    one.create_tool(tool("other", "another")).await.unwrap();
    until(|| description(&three, "other").is_some()).await;
    two.remove_tool("made").await.unwrap();
    until(|| one.hub.get("made").is_none()).await;
    assert_eq!(description(&three, "made"), configured);
    assert!(one.hub.get("other").is_some());

    let server = json!({ "name": "web", "url": "http://127.0.0.1:1/mcp" });
    one.add_mcp_server(server.clone()).await.unwrap();
    until(|| two.hub.source("web").is_some() && three.hub.source("web").is_some()).await;
    assert_eq!(two.add_mcp_server(server).await, Err(ToolChangeError::NameTaken));
    two.remove_mcp_server("web").await.unwrap();
    until(|| one.hub.source("web").is_none() && three.hub.source("web").is_none()).await;
}

#[tokio::test]
async fn of_nodes_that_create_one_name_at_the_same_time_one_succeeds_and_all_have_its_definition() {
    let store = Arc::new(Memory::new());
    let ((one, _one), (two, _two)) = (node(&store, "").await, node(&store, "").await);
    for round in 0..20 {
        let name = format!("made{round}");
        let (first, second) =
            tokio::join!(one.create_tool(tool(&name, "of one")), two.create_tool(tool(&name, "of two")));
        let winner = match (first, second) {
            (Ok(()), Err(ToolChangeError::NameTaken)) => "of one",
            (Err(ToolChangeError::NameTaken), Ok(())) => "of two",
            other => panic!("{other:?}"),
        };
        until(|| [&one, &two].iter().all(|node| description(node, &name).as_deref() == Some(winner))).await;
        let server = json!({ "name": format!("web{round}"), "url": "http://127.0.0.1:1/mcp" });
        let added = tokio::join!(one.add_mcp_server(server.clone()), two.add_mcp_server(server));
        let taken = Err(ToolChangeError::NameTaken);
        assert!(added == (Ok(()), taken.clone()) || added == (taken, Ok(())), "{added:?}");
    }
}

#[tokio::test]
async fn a_definition_that_cannot_be_built_here_keeps_no_other_away_and_its_name_can_be_taken_again() {
    let store = Arc::new(Memory::new());
    let (one, _one) = node(&store, "").await;
    let backend: Arc<dyn Backend> = store.clone();
    let broken = json!({ "builtin": "none such" });
    definitions::save(&backend, (Section::Tools, "broken"), &broken, None, SystemClock.now()).await.unwrap();
    definitions::save(&backend, (Section::Tools, "sound"), &tool("sound", ""), None, SystemClock.now()).await.unwrap();
    until(|| one.hub.get("sound").is_some()).await;
    assert!(one.hub.get("broken").is_none());
    one.create_tool(tool("broken", "mended")).await.unwrap();
    assert_eq!(description(&one, "broken").as_deref(), Some("mended"));
}

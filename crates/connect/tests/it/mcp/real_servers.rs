//! Public MCP servers, as people install them. `./test` installs them and names their folder in `TOOLHUB_MCP_SERVERS`.

use std::{env, fs, path::PathBuf, process::Stdio, sync::Arc};

use serde_json::{Value, json};
use toolhub_connect::mcp::McpServer;
use toolhub_core::{
    BoxFuture, Cancellation, Content, ErrorKind, InputHandler, InputKind, InputRequest, Outcome, SourceConnection,
    SourceToolState, ToolHub, testing::EventRecorder,
};
use toolhub_testkit::TempFolder;

use super::{source, wait_for};

const REASON: &str = "installed by the suite `mcp` of ./test";

/// The folder with `node_modules` and `venv`.
fn installed() -> PathBuf {
    env::var_os("TOOLHUB_MCP_SERVERS").expect(REASON).into()
}

/// A server that is a node package.
fn node(name: &str, package: &str) -> McpServer {
    let script = installed().join(format!("node_modules/@modelcontextprotocol/{package}/dist/index.js"));
    McpServer::stdio(name, "node").arg(script.to_string_lossy()).trust()
}

/// A server that is a Python package.
fn python(name: &str, program: &str) -> McpServer {
    McpServer::stdio(name, installed().join("venv/bin").join(program)).trust()
}

async fn connected(servers: Vec<McpServer>) -> ToolHub {
    let builder = servers.into_iter().fold(ToolHub::builder(), |builder, server| builder.source(source(server)));
    let hub = builder.build().await.unwrap();
    let is_ready = || hub.sources().iter().all(|source| source.info().status.connection == SourceConnection::Connected);
    wait_for("all servers", || is_ready().then_some(())).await;
    hub
}

/// Calls a tool that must succeed.
async fn call(hub: &ToolHub, tool: &str, arguments: Value) -> Outcome {
    let outcome = hub.call(tool, arguments).await;
    assert!(outcome.is_success(), "{tool}: {outcome:#?}");
    outcome
}

/// Name, protocol version, number of tools, and the tools that cannot be used.
fn summary(hub: &ToolHub) -> Vec<(String, String, usize, Vec<String>)> {
    let sources = hub.sources();
    let infos = sources.iter().map(|source| source.info());
    infos
        .map(|info| {
            let quarantined = info.tools.iter().filter(|tool| tool.state != SourceToolState::Registered);
            let version = info.details["protocolVersion"].as_str().unwrap().to_owned();
            (info.status.name, version, info.tools.len(), quarantined.map(|tool| tool.name.clone()).collect())
        })
        .collect()
}

#[tokio::test]
#[ignore = "installed by the suite `mcp` of ./test"]
async fn public_servers_of_both_eras_are_listed_and_called() {
    let folder = TempFolder::new();
    fs::write(folder.join("a.txt"), "hello\n").unwrap();
    let git = |args: &[&str]| {
        let run = std::process::Command::new("git").args(args).current_dir(&*folder).output().unwrap();
        assert!(run.status.success(), "{run:?}");
    };
    git(&["init", "-q"]);
    git(&["add", "."]);
    git(&["-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-qm", "first commit"]);
    let path = folder.to_string_lossy().into_owned();
    let address = HttpServer::start();
    let hub = connected(vec![
        node("everything", "server-everything").arg("stdio"),
        McpServer::http("everywhere", address.url()).allow_host("127.0.0.1").trust(),
        node("fs", "server-filesystem").arg(&path),
        node("memory", "server-memory").env("MEMORY_FILE_PATH", folder.join("memory.json").to_string_lossy()),
        python("git", "mcp-server-git").args(["--repository", &path]),
        python("time", "mcp-server-time").args(["--local-timezone", "UTC"]),
    ])
    .await;
    let (legacy, modern) = ("2025-11-25", "2026-07-28");
    let expected = [
        ("everything", legacy, 15),
        ("everywhere", legacy, 15),
        ("fs", legacy, 14),
        ("git", modern, 12),
        ("memory", legacy, 9),
        ("time", modern, 2),
    ];
    let expected = expected.map(|(name, version, tools)| (name.to_owned(), version.to_owned(), tools, Vec::new()));
    assert_eq!(summary(&hub), expected);

    check_everything(&hub, "everything").await;
    check_everything(&hub, "everywhere").await;

    let read = call(&hub, "fs__read_text_file", json!({"path": folder.join("a.txt")})).await;
    assert_eq!(read.output, json!({"content": "hello\n"}));
    let denied = hub.call("fs__read_text_file", json!({"path": "/etc/passwd"})).await;
    assert_eq!(denied.error_kind(), Some(ErrorKind::ToolRefused));
    let entity = json!({"entities": [{"name": "tea", "entityType": "drink", "observations": ["hot"]}]});
    call(&hub, "memory__create_entities", entity).await;
    let graph = call(&hub, "memory__read_graph", json!({})).await;
    assert_eq!(graph.output["entities"][0]["name"], "tea");
    let log = call(&hub, "git__git_log", json!({"repo_path": path})).await;
    assert!(log.output.as_str().unwrap().contains("first commit"));
    let time = call(&hub, "time__get_current_time", json!({"timezone": "UTC"})).await;
    assert_eq!(time.output["timezone"], "UTC");
    hub.shutdown(std::time::Duration::from_secs(5)).await;
}

/// Calls the tools of `server-everything` under a name: content of each type, progress, an input request, a cancellation.
async fn check_everything(hub: &ToolHub, server: &str) {
    let name = |tool: &str| format!("{server}__{tool}");
    assert_eq!(call(hub, &name("echo"), json!({"message": "hi"})).await.output, "Echo: hi");
    let image = call(hub, &name("get-tiny-image"), json!({})).await;
    assert!(
        image.content.iter().any(|part| matches!(part, Content::Image { mime_type, .. } if mime_type == "image/png"))
    );
    let structured = call(hub, &name("get-structured-content"), json!({"location": "New York"})).await;
    assert!(structured.output["temperature"].is_number(), "{structured:?}");
    let links = call(hub, &name("get-resource-links"), json!({"count": 2})).await;
    assert_eq!(links.content.iter().filter(|part| matches!(part, Content::ResourceLink { .. })).count(), 2);
    let reference = json!({"resourceType": "Text", "resourceId": 1});
    let reference = call(hub, &name("get-resource-reference"), reference).await;
    assert!(reference.content.iter().any(|part| matches!(part, Content::Resource { .. })), "{reference:#?}");
    let mut recorder = EventRecorder::new(hub);
    call(hub, &name("trigger-long-running-operation"), json!({"duration": 1, "steps": 4})).await;
    assert_eq!(recorder.names().into_iter().filter(|name| *name == "call.progress").count(), 4);
    let asked = hub.call(name("trigger-elicitation-request"), json!({})).input(Arc::new(Ann)).await;
    assert!(asked.model_text().contains("Ann"), "{asked:#?}");

    // A call that is cancelled ends at once, and the server goes on.
    let long = hub.call(name("trigger-long-running-operation"), json!({"duration": 20, "steps": 20})).start();
    wait_for("the call", || (hub.running_calls() == 1).then_some(())).await;
    assert_eq!(hub.cancel_call(&Default::default(), long.id()).await.unwrap(), Cancellation::Requested);
    assert_eq!(long.await.error_kind(), Some(ErrorKind::Cancelled));
    call(hub, &name("echo"), json!({"message": "still here"})).await;
}

/// Fills in a form with the name Ann.
struct Ann;

impl InputHandler for Ann {
    fn accepts(&self, kind: InputKind) -> bool {
        kind == InputKind::Form
    }

    fn answer(&self, _: InputRequest) -> BoxFuture<'_, Option<Value>> {
        Box::pin(async { Some(json!({"action": "accept", "content": {"name": "Ann"}})) })
    }
}

/// `server-everything` at an address. Killed when this is dropped.
struct HttpServer {
    port: u16,
    process: std::process::Child,
}

impl HttpServer {
    fn start() -> Self {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let script = installed().join("node_modules/@modelcontextprotocol/server-everything/dist/index.js");
        let mut program = std::process::Command::new("node");
        program.arg(script).arg("streamableHttp").env("PORT", port.to_string());
        let process = program.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Self { port, process }
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

//! MCP servers as sources of tools: real programs that speak MCP, through a hub.

mod hung;
mod input;
mod lifecycle;
mod lists;
mod per_thread;
mod pins;
mod real_servers;
mod single_tools;
mod stress;
mod tools;

use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::{Value, json};
use toolhub_connect::mcp::{McpServer, McpSource, Protocol};
use toolhub_core::{ErrorKind, HubBuilder, SourceConnection, SourceInfo, StatusScope, ToolHub, status::ToolStatus};
use toolhub_testkit::TempFolder;

use crate::command::wait_for;

/// Generous timeout; only a failing test waits this long.
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mcp_servers/stdio_server.py");

/// The test server `t`, whose list is the file `tools.json` of a folder.
struct TestServer {
    folder: TempFolder,
    flags: Vec<&'static str>,
}

impl TestServer {
    fn new(tools: &Value) -> Self {
        let server = Self { folder: TempFolder::new(), flags: Vec::new() };
        server.set_tools(tools);
        server
    }

    /// With flags that say what the server does wrong.
    fn flags(mut self, flags: &[&'static str]) -> Self {
        self.flags.extend(flags);
        self
    }

    fn set_tools(&self, tools: &Value) {
        fs::write(self.folder.join("tools.json"), tools.to_string()).unwrap();
    }

    /// The settings: all its tools are trusted to be read-only, so that calls need no approval.
    fn server(&self) -> McpServer {
        self.named("t")
    }

    fn named(&self, name: &str) -> McpServer {
        McpServer::stdio(name, "python3")
            .arg(SERVER)
            .args(self.flags.iter().copied())
            .env("TOOLS", self.folder.join("tools.json").to_string_lossy())
            .read_only(["*"])
    }
}

/// The test server at an address. Killed when this is dropped.
struct HttpServer {
    url: String,
    process: Child,
}

impl HttpServer {
    fn start(flags: &[&str]) -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mcp_servers/http_server.py");
        let mut process = Command::new("python3").arg(script).args(flags).stdout(Stdio::piped()).spawn().unwrap();
        let mut port = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut port).unwrap();
        Self { url: format!("http://127.0.0.1:{}/mcp", port.trim()), process }
    }

    /// The settings of the server `t`, whose tools are all trusted.
    fn server(&self) -> McpServer {
        McpServer::http("t", &self.url).allow_host("127.0.0.1").protocol(Protocol::Legacy).trust()
    }

    fn stop(&mut self) {
        let _ = (self.process.kill(), self.process.wait());
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Definitions of tools that take anything.
fn tools(names: &[&str]) -> Value {
    names.iter().map(|name| json!({"name": name, "inputSchema": {"type": "object"}})).collect()
}

fn source(server: McpServer) -> McpSource {
    server.source().unwrap()
}

/// A hub with one server, connected.
async fn connected(server: McpServer) -> ToolHub {
    connected_hub(ToolHub::builder(), server).await
}

async fn connected_hub(builder: HubBuilder, server: McpServer) -> ToolHub {
    let hub = builder.source(source(server)).build().await.unwrap();
    wait_connected(&hub).await;
    hub
}

async fn wait_connected(hub: &ToolHub) {
    wait_for("the connection", || (info(hub).status.connection == SourceConnection::Connected).then_some(())).await;
}

/// What the first source says about itself.
fn info(hub: &ToolHub) -> SourceInfo {
    hub.sources()[0].info()
}

/// The text that a call returns.
async fn text(hub: &ToolHub, tool: &str, arguments: Value) -> String {
    let outcome = hub.call(tool, arguments).await;
    assert!(outcome.is_success(), "{outcome:#?}");
    outcome.output.as_str().map_or_else(|| outcome.output.to_string(), str::to_owned)
}

/// The text that a tool without arguments returns, once its server is back. Calls wait for it, but not for long, and Python may start
/// slowly.
async fn text_when_back(hub: &ToolHub, tool: &str) -> String {
    let start = tokio::time::Instant::now();
    loop {
        let outcome = hub.call(tool, json!({})).await;
        match outcome.error_kind() {
            None => return outcome.output.as_str().unwrap().to_owned(),
            Some(
                ErrorKind::ToolUnavailable
                | ErrorKind::UpstreamUnreachable
                | ErrorKind::UpstreamError
                | ErrorKind::ToolFailedStatus,
            ) => {}
            Some(other) => panic!("{other}: {outcome:#?}"),
        }
        assert!(start.elapsed() < WAIT_TIMEOUT, "{outcome:#?}");
        // A refused call may end without waiting for anything, and the supervisor needs the thread too.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn shared_status(hub: &ToolHub, tool: &str) -> ToolStatus {
    hub.tool_status(tool, StatusScope::Shared).await.unwrap().status
}

fn names(hub: &ToolHub) -> Vec<String> {
    hub.list(&Default::default()).iter().map(|tool| tool.definition.name.to_string()).collect()
}

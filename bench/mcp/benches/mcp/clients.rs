//! The clients that are compared: the bare SDK, and a tool of a hub.

use std::{future::Future, pin::Pin, process::Stdio, sync::Arc, time::Duration};

use rmcp::{
    model::{CallToolRequestParams, ClientCapabilities, ClientConfig, Implementation, ProtocolVersion},
    service::{ClientLifecycleMode, RoleClient, RunningService, serve_client_with_lifecycle},
    transport::StreamableHttpClientTransport,
};
use serde_json::json;
use toolhub::{
    SourceConnection, ToolHub,
    mcp::{McpServer, Protocol},
};

use crate::server::{Server, Transport, VARIABLE};

/// Calls the tool `echo` once.
pub(crate) trait Client: Send + Sync {
    fn call(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

pub(crate) type Upstream = RunningService<RoleClient, ClientConfig>;

struct Baseline(Upstream);

impl Client for Baseline {
    fn call(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            let arguments = json!({"text": "hello"}).as_object().cloned().unwrap();
            let result = self.0.call_tool(CallToolRequestParams::new("echo").with_arguments(arguments)).await.unwrap();
            assert_eq!(result.content.len(), 1);
        })
    }
}

/// The bare SDK with its own transport.
pub(crate) async fn baseline_client(server: &Server) -> Arc<dyn Client> {
    let url = (server.transport == Transport::Http).then(|| server.url());
    Arc::new(Baseline(connect(url).await))
}

/// A connection of the bare SDK, to an address or to this program as a server over stdio.
pub(crate) async fn connect(url: Option<String>) -> Upstream {
    let config = ClientConfig::new(ClientCapabilities::default(), Implementation::new("bench", "1"))
        .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE);
    let mode = ClientLifecycleMode::Initialize;
    let running = match url {
        None => {
            let mut command = tokio::process::Command::new(std::env::current_exe().unwrap());
            // Exits when its stdin is closed.
            let mut child =
                command.env(VARIABLE, "stdio").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let pipes = (child.stdout.take().unwrap(), child.stdin.take().unwrap());
            serve_client_with_lifecycle(config, pipes, mode).await
        }
        Some(url) => serve_client_with_lifecycle(config, StreamableHttpClientTransport::from_uri(url), mode).await,
    };
    running.unwrap()
}

struct Hub(ToolHub);

impl Client for Hub {
    fn call(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            let outcome = self.0.call("s0__echo", json!({"text": "hello"})).await;
            assert!(outcome.is_success(), "{outcome:?}");
        })
    }
}

/// A hub with the tools of one server.
pub(crate) async fn hub_client(server: &Server) -> Arc<dyn Client> {
    Arc::new(Hub(idle_hub(server, 1).await))
}

/// A hub that is connected to a number of servers.
pub(crate) async fn idle_hub(server: &Server, servers: usize) -> ToolHub {
    let mut builder = ToolHub::builder();
    for number in 0..servers {
        let name = format!("s{number}");
        let settings = match server.transport {
            Transport::Stdio => McpServer::stdio(name, &server.program).env(VARIABLE, "stdio"),
            Transport::Http => McpServer::http(name, server.url()).allow_host("127.0.0.1"),
        };
        builder = builder.source(settings.trust().protocol(Protocol::Legacy).source().unwrap());
    }
    let hub = builder.build().await.unwrap();
    while !hub.sources().iter().all(|source| source.info().status.connection == SourceConnection::Connected) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    hub
}

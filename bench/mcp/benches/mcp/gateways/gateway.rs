//! The gateways, each a process of its own with the server behind it.

use std::{
    env,
    io::{BufRead, BufReader},
    net::SocketAddr,
    process::{Child, Command, Stdio},
};

use toolhub::ReadOnlyCalls;

use super::{bare_proxy, hub};
use crate::server::{Server, Transport, VARIABLE};

/// The address of the server behind a gateway; without it the gateway starts this program as a server over stdio.
const UPSTREAM_VARIABLE: &str = "TOOLHUB_BENCH_MCP_UPSTREAM";
/// Where `bench/run` has installed the other gateways: a program, and a Python interpreter.
const MCP_PROXY_VARIABLE: &str = "TOOLHUB_BENCH_MCP_PROXY";
const FASTMCP_VARIABLE: &str = "TOOLHUB_BENCH_FASTMCP_PYTHON";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Hub {
        is_modern: bool,
        /// Whether it records calls that only read.
        records: bool,
    },
    /// Passes calls on with the SDK, and does nothing else.
    BareProxy {
        is_modern: bool,
    },
    /// The Rust program of that name.
    McpProxy,
    FastMcp,
}

impl Kind {
    pub(super) fn is_installed(self) -> bool {
        match self {
            Self::Hub { .. } | Self::BareProxy { .. } => true,
            Self::McpProxy => env::var_os(MCP_PROXY_VARIABLE).is_some(),
            Self::FastMcp => env::var_os(FASTMCP_VARIABLE).is_some(),
        }
    }

    /// Whether its clients speak the protocol without sessions.
    pub(super) fn is_modern(self) -> bool {
        matches!(self, Self::Hub { is_modern: true, .. } | Self::BareProxy { is_modern: true })
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Hub { is_modern: false, records: true } => "toolhub, on SQLite",
            Self::Hub { is_modern: true, records: true } => "toolhub, on SQLite, 2026-07-28",
            Self::Hub { is_modern: false, records: false } => "toolhub, read_only_calls = \"none\"",
            Self::Hub { is_modern: true, records: false } => "toolhub, read_only_calls = \"none\", 2026-07-28",
            Self::BareProxy { is_modern: false } => "bare rmcp proxy",
            Self::BareProxy { is_modern: true } => "bare rmcp proxy, 2026-07-28",
            Self::McpProxy => "mcp-proxy 0.6.0",
            Self::FastMcp => "fastmcp proxy",
        }
    }

    /// The path of its endpoint.
    pub(super) fn path(self) -> &'static str {
        if self == Self::McpProxy { "/" } else { "/mcp" }
    }

    /// What it calls the tool `echo`.
    pub(super) fn tool(self) -> &'static str {
        match self {
            Self::Hub { .. } => "bench__echo",
            Self::McpProxy => "bench/echo",
            Self::BareProxy { .. } | Self::FastMcp => "echo",
        }
    }
}

/// A running gateway; it ends when this is dropped.
pub(super) struct Gateway {
    pub(super) kind: Kind,
    pub(super) address: SocketAddr,
    process: Child,
}

impl Gateway {
    pub(super) fn start(kind: Kind, server: &Server) -> Self {
        let (mut command, port) = match kind {
            Kind::Hub { records: true, .. } => (of_this_program(server, "hub"), None),
            Kind::Hub { records: false, .. } => (of_this_program(server, "hub_without_records"), None),
            Kind::BareProxy { .. } => (of_this_program(server, "bare_proxy"), None),
            Kind::McpProxy => mcp_proxy(server),
            Kind::FastMcp => fastmcp(server),
        };
        if server.transport == Transport::Http {
            command.env(UPSTREAM_VARIABLE, server.url());
        }
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let port = port.unwrap_or_else(|| {
            let mut line = String::new();
            BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
            line.trim().parse().unwrap()
        });
        Self { kind, address: SocketAddr::from(([127, 0, 0, 1], port)), process }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn of_this_program(server: &Server, kind: &str) -> Command {
    let mut command = Command::new(&server.program);
    command.env(VARIABLE, kind);
    command
}

fn mcp_proxy(server: &Server) -> (Command, Option<u16>) {
    let port = free_port();
    let backend = match server.transport {
        Transport::Http => format!("transport = \"http\"\nurl = {:?}", server.url()),
        Transport::Stdio => {
            format!("transport = \"stdio\"\ncommand = {:?}\n[backends.env]\n{VARIABLE} = \"stdio\"", server.program)
        }
    };
    let config = format!(
        "[proxy]\nname = \"bench\"\nversion = \"1\"\nseparator = \"/\"\n[proxy.listen]\nhost = \"127.0.0.1\"\nport = {port}\n\
         [[backends]]\nname = \"bench\"\n{backend}\n[observability]\nlog_level = \"error\"\n"
    );
    let path = env::temp_dir().join(format!("toolhub-bench-mcp-proxy-{}-{port}.toml", std::process::id()));
    std::fs::write(&path, config).unwrap();
    let mut command = Command::new(env::var_os(MCP_PROXY_VARIABLE).unwrap());
    command.arg("--config").arg(path);
    (command, Some(port))
}

fn fastmcp(server: &Server) -> (Command, Option<u16>) {
    const PROGRAM: &str = r#"
import asyncio, os, sys
from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from fastmcp.server import create_proxy

async def main():
    upstream = os.environ.get("TOOLHUB_BENCH_MCP_UPSTREAM")
    stdio = StdioTransport(sys.argv[1], [], env={"TOOLHUB_BENCH_MCP_SERVER": "stdio"})
    # A connected client, so that all requests use one session with the server.
    async with Client(upstream or stdio) as client:
        proxy = create_proxy(client, name="bench")
        await proxy.run_async(
            transport="http", host="127.0.0.1", port=int(sys.argv[2]), path="/mcp", show_banner=False, log_level="error"
        )

asyncio.run(main())
"#;
    let port = free_port();
    let mut command = Command::new(env::var_os(FASTMCP_VARIABLE).unwrap());
    command.args(["-c", PROGRAM, &server.program, &port.to_string()]);
    (command, Some(port))
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Runs a gateway if this process is to be one.
pub(crate) fn run_if_requested() -> bool {
    let kind = env::var(VARIABLE).unwrap_or_default();
    let upstream = env::var(UPSTREAM_VARIABLE).ok();
    if !["hub", "hub_without_records", "bare_proxy"].contains(&kind.as_str()) {
        return false;
    }
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    match kind.as_str() {
        "hub" => runtime.block_on(hub::serve(upstream, ReadOnlyCalls::All)),
        "hub_without_records" => runtime.block_on(hub::serve(upstream, ReadOnlyCalls::None)),
        _ => runtime.block_on(bare_proxy::serve(upstream)),
    }
    true
}

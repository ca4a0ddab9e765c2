//! Tour: the process of an MCP server is killed, and its tool leaves and returns.
//!
//! In: the hub. Out: the same, after a server was added and removed. The server is this program, started with a hidden command.

use std::{error::Error, sync::Arc, time::Duration};

use rustix::process::{Pid, Signal, kill_process};
use toolhub::{ToolHub, mcp::McpServer, prelude::json};

use super::{echo_server, print, tour};

/// Timeout for the start of the server; far longer than it takes.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
const NAME: &str = "demo";

pub(super) async fn run(hub: &ToolHub) -> Result<(), Box<dyn Error>> {
    // Trusted, because it is this program: its tool says that it is read-only, and needs no approval.
    let server = McpServer::stdio(NAME, std::env::current_exe()?).arg(echo_server::COMMAND).prefix("").trust();
    hub.add_source(Arc::new(server.source()?))?;
    let registered = async {
        while hub.get("echo").is_none() {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    tokio::time::timeout(STARTUP_TIMEOUT, registered).await?;
    let arguments = json!({"text": "is anyone there?"});
    print::call("echo", &arguments, "");
    print::outcome(&hub.call("echo", arguments.clone()).await);
    let log = hub.source(NAME).map(|source| source.log_lines()).unwrap_or_default();
    let pid = log.iter().rev().find_map(|line| line.rsplit_once(echo_server::STARTED)).map(|(_, pid)| pid);
    let pid = pid.ok_or("the server did not say which process it is")?;
    print::print_line(&format!("The server is process {pid}. It is killed (kill -9):"));
    let mut events = hub.subscribe();
    let process = Pid::from_raw(pid.parse()?).ok_or("the server has no process id")?;
    kill_process(process, Signal::KILL)?;
    tokio::time::timeout(STARTUP_TIMEOUT, tour::wait_until_available(&mut events)).await?;
    print::call("echo", &arguments, "");
    print::outcome(&hub.call("echo", arguments).await);
    hub.remove_source(NAME).await;
    Ok(())
}

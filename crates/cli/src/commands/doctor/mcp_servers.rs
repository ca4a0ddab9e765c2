//! Checks MCP servers: connects to each, and counts its tools.
//!
//! In: the servers of a config. Out: a check per enabled server. No tool is called, and nothing is stored.

use std::time::Duration;

use futures_util::future::join_all;
use toolhub::{HubBuilder, SourceConnection, SourceInfo, SourceToolState, ToolHub};

use super::{Check, CheckStatus};
use crate::{
    config::{self, Config},
    exit::Exit,
    serve::wait_for_first_connections,
};

/// How long a server may take to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) async fn check(config: &Config) -> Vec<Check> {
    let enabled = config.mcp_servers.iter().filter(|(_, server)| server.is_enabled());
    let servers = enabled.filter_map(|(name, plan)| Some(ToolHub::builder().source(config::mcp_source(name, plan)?)));
    let tools = config.tools.iter().filter(|(_, tool)| tool.has_own_mcp_server());
    let single = tools.filter_map(|(name, tool)| Some(ToolHub::builder().tool(tool.builder(name)?)));
    join_all(servers.chain(single).map(check_server)).await
}

/// Checks the only server of a hub.
async fn check_server(hub: HubBuilder) -> Check {
    let hub = match hub.build().await {
        Ok(hub) => hub,
        Err(error) => return Check::new("mcp server", CheckStatus::Fail(Exit::Usage), error.to_string()),
    };
    wait_for_first_connections(&hub).await;
    let info = hub.sources().first().map(|source| source.info());
    hub.shutdown(STOP_TIMEOUT).await;
    let Some(info) = info else { return Check::new("mcp server", CheckStatus::Warn, "the server is gone") };
    let check = |status, detail: String| Check::new("mcp server", status, format!("{}: {detail}", info.status.name));
    if info.status.connection != SourceConnection::Connected {
        let error = info.status.last_error.as_deref().unwrap_or("the connection was lost");
        let fix = format!("correct [mcp_servers.{}]; its tools are withheld until it is connected", info.status.name);
        let stderr = info.admin_details.get("lastStderr").and_then(|line| line.as_str());
        let stderr = stderr.map(|line| format!("; the last line of its stderr: {line}")).unwrap_or_default();
        return check(CheckStatus::Fail(Exit::Unreachable), format!("{error}{stderr}")).fix(fix);
    }
    let quarantined = info.tools.iter().find(|tool| tool.state == SourceToolState::Quarantined);
    match quarantined {
        Some(tool) => {
            let reason = tool.reason.as_deref().unwrap_or_default();
            check(CheckStatus::Warn, format!("{}; `{}` cannot be offered: {reason}", describe(&info), tool.name))
        }
        None => check(CheckStatus::Pass, describe(&info)),
    }
}

fn describe(info: &SourceInfo) -> String {
    let tools = info.tools.iter().filter(|tool| tool.state != SourceToolState::Quarantined).count();
    let protocol = info.details.get("protocolVersion").and_then(|version| version.as_str()).unwrap_or("an unknown");
    format!("connected, protocol {protocol}, {tools} tool{}", if tools == 1 { "" } else { "s" })
}

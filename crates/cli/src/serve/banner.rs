//! The startup banner of a server: its URL, and what to try.

use serde_json::json;
use toolhub::ToolFilter;

use super::daemon::Daemon;
use crate::output::Printer;

/// The banner of `serve`.
pub(super) fn print_serve(printer: &Printer, url: &str, daemon: &Daemon) {
    if printer.json {
        return printer.print_json(&json!({ "url": url }).to_string());
    }
    let tools = daemon.hub.list(&ToolFilter::default()).len();
    let source = daemon.files();
    let source = source.last().map_or_else(|| "no config file: defaults".to_owned(), |file| file.display().to_string());
    let servers = daemon.hub.sources().len();
    // Their tools are listed when they have connected.
    let connecting = if servers > 0 { format!(" · {servers} MCP servers") } else { String::new() };
    printer.print(&format!("toolhub {} · {tools} tools{connecting} · {source}", env!("CARGO_PKG_VERSION")));
    print_dashboard(printer, url, daemon);
    printer.print(&format!("  listening on {url}"));
    printer.print(&format!("  API page     {url}/docs"));
    if tools == 0 && servers == 0 {
        printer.print("  no tools configured; `toolhub init` creates a starter config");
    }
}

fn print_dashboard(printer: &Printer, url: &str, daemon: &Daemon) {
    if let Some(address) = daemon.dashboard_url(url) {
        printer.print(&format!("  dashboard    {address}"));
    }
}

/// The banner of `demo`. `flags` are those that a command needs to reach it.
pub(super) fn print_demo(printer: &Printer, url: &str, flags: &str, service: &str, daemon: &Daemon) {
    if printer.json {
        return printer.print_json(&json!({ "url": url, "service": service }).to_string());
    }
    let tools = daemon.hub.list(&ToolFilter::default());
    let names: Vec<&str> = tools.iter().map(|tool| tool.definition.name.as_str()).collect();
    let program = std::env::args().next().unwrap_or_else(|| "toolhub".into());
    let version = env!("CARGO_PKG_VERSION");
    printer.print(&format!("toolhub {version} · demo · data is kept in a temporary folder and deleted on exit"));
    print_dashboard(printer, url, daemon);
    printer.print(&format!("  tools        {}", names.join(", ")));
    printer.print(&format!("  API page     {url}/docs"));
    printer.print(&format!("  metrics      {url}/metrics"));
    printer.print(&format!("  MCP          {url}/mcp"));
    printer.print("\n");
    printer.print("  try in another terminal:");
    printer.print(&format!("  1. {program} call calculator expression='2+3*4'{flags}"));
    printer.print(&format!("  2. {program} call dangerous folder=/tmp/old{flags}      requires your approval"));
    printer.print(&format!("  3. {program} chat \"weather in Oslo, then a report\"{flags}"));
    printer.print(&format!("  4. curl -s {url}/agents/demo/tool-states"));
    printer.print(&format!("  5. claude mcp add --transport http toolhub {url}/mcp      all tools in Claude Code"));
    printer.print("\n");
    printer.print(&format!(
        "  `flaky` fails three times, is withheld, then recovers: {program} call flaky --thread demo{flags}"
    ));
    printer.print(&format!("  `weather` calls {service}; make it fail: curl -X POST '{service}/fault?status=503'"));
    printer.print(&format!("  `echo` comes from an MCP server, a process of its own: {program} mcp get demo{flags}"));
    printer.print(&format!("  a tour without a server: {program} demo --tour"));
    printer.print("  Ctrl-C stops the server");
}

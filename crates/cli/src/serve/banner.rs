//! The first words of a server: where it is, and what to do with it.

use serde_json::json;
use toolhub::ToolFilter;

use super::daemon::Daemon;
use crate::output::Printer;

/// What `serve` says when it listens.
pub(super) fn print_serve(show: &Printer, url: &str, daemon: &Daemon) {
    if show.json {
        return show.print_json(&json!({ "url": url }).to_string());
    }
    let tools = daemon.hub.list(&ToolFilter::default()).len();
    let from = daemon.files();
    let from = from.last().map_or_else(|| "no config file: defaults".to_owned(), |file| file.display().to_string());
    show.print(&format!("toolhub {} · {tools} tools · {from}", env!("CARGO_PKG_VERSION")));
    show.print(&format!("  listening on {url}"));
    show.print(&format!("  API page     {url}/docs"));
    if tools == 0 {
        show.print("  there are no tools yet: `toolhub init` writes a config to begin with");
    }
}

/// What the demo says when it listens. `flags` is what a command needs that is typed in another terminal to reach it.
pub(super) fn print_demo(show: &Printer, url: &str, flags: &str, service: &str, daemon: &Daemon) {
    if show.json {
        return show.print_json(&json!({ "url": url, "service": service }).to_string());
    }
    let tools = daemon.hub.list(&ToolFilter::default());
    let names: Vec<&str> = tools.iter().map(|tool| tool.definition.name.as_str()).collect();
    let me = std::env::args().next().unwrap_or_else(|| "toolhub".into());
    let version = env!("CARGO_PKG_VERSION");
    show.print(&format!("toolhub {version} · demo · everything is kept in a temporary folder, and gone when it stops"));
    show.print(&format!("  tools        {}", names.join(", ")));
    show.print(&format!("  API page     {url}/docs"));
    show.print(&format!("  metrics      {url}/metrics"));
    show.print("\n");
    show.print("  four things to try in another terminal:");
    show.print(&format!("  1. {me} call calculator expression='2+3*4'{flags}"));
    show.print(&format!("  2. {me} call dangerous folder=/tmp/old{flags}      it asks you first"));
    show.print(&format!("  3. {me} chat \"weather in Oslo, then a report\"{flags}"));
    show.print(&format!("  4. curl -s {url}/agents/demo/tool-states"));
    show.print("\n");
    show.print(&format!(
        "  `flaky` fails three times, is withheld, and comes back: {me} call flaky --thread demo{flags}"
    ));
    show.print(&format!(
        "  `weather` asks a service at {service}; let it fail: curl -X POST '{service}/trouble?status=503'"
    ));
    show.print(&format!("  a tour without a server: {me} demo --tour"));
    show.print("  Ctrl-C stops it");
}

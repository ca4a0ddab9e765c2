//! The first words of a server: where it is, and what to do with it.

use serde_json::json;
use toolhub::Filter;

use super::daemon::Daemon;
use crate::output::Show;

/// What `serve` says when it listens.
pub(super) fn serve(show: &Show, url: &str, daemon: &Daemon) {
    if show.json {
        return show.document(&json!({ "url": url }).to_string());
    }
    let tools = daemon.hub.list(&Filter::default()).len();
    let from = daemon.files();
    let from = from.last().map_or_else(|| "no config file: defaults".to_owned(), |file| file.display().to_string());
    show.data(&format!("toolhub {} · {tools} tools · {from}", env!("CARGO_PKG_VERSION")));
    show.data(&format!("  listening on {url}"));
    show.data(&format!("  API page     {url}/docs"));
    if tools == 0 {
        show.data("  there are no tools yet: `toolhub init` writes a config to begin with");
    }
}

/// What the demo says when it listens. `flags` is what a command needs that is typed in another terminal to reach it.
pub(super) fn demo(show: &Show, url: &str, flags: &str, service: &str, daemon: &Daemon) {
    if show.json {
        return show.document(&json!({ "url": url, "service": service }).to_string());
    }
    let tools = daemon.hub.list(&Filter::default());
    let names: Vec<&str> = tools.iter().map(|tool| tool.definition.name.as_str()).collect();
    let me = std::env::args().next().unwrap_or_else(|| "toolhub".into());
    let version = env!("CARGO_PKG_VERSION");
    show.data(&format!("toolhub {version} · demo · everything is kept in a temporary folder, and gone when it stops"));
    show.data(&format!("  tools        {}", names.join(", ")));
    show.data(&format!("  API page     {url}/docs"));
    show.data(&format!("  metrics      {url}/metrics"));
    show.data("\n");
    show.data("  four things to try in another terminal:");
    show.data(&format!("  1. {me} call calculator expression='2+3*4'{flags}"));
    show.data(&format!("  2. {me} call dangerous folder=/tmp/old{flags}      it asks you first"));
    show.data(&format!("  3. {me} chat \"weather in Oslo, then a report\"{flags}"));
    show.data(&format!("  4. curl -s {url}/agents/demo/tool-states"));
    show.data("\n");
    show.data(&format!(
        "  `flaky` fails three times, is withheld, and comes back: {me} call flaky --thread demo{flags}"
    ));
    show.data(&format!(
        "  `weather` asks a service at {service}; let it fail: curl -X POST '{service}/trouble?status=503'"
    ));
    show.data(&format!("  a tour without a server: {me} demo --tour"));
    show.data("  Ctrl-C stops it");
}

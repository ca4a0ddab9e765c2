//! `reload`: makes a running server, or all nodes of it, read the config again.

use serde_json::Value;

use super::paging::pointer_text;
use crate::{client::Request, exit::Exit, failure::Failure, output::Printer, session::Session};

/// Make the server read its config again.
#[derive(Debug, clap::Args)]
pub(crate) struct ReloadArgs {
    /// Make all nodes that share the store read their config again, each its own files.
    #[arg(long)]
    all: bool,
}

pub(crate) async fn run(session: &Session, args: &ReloadArgs) -> Result<Exit, Failure> {
    let no_server = || {
        Failure::usage("no server is running on this config, so there is nothing to reload")
            .help("commands without a server read the config each time; name a server with --server URL")
    };
    let client = session.server_client().await?.ok_or_else(no_server)?;
    if args.all {
        let response = client.send_checked(Request::post(["nodes", "reload"])).await?;
        let reloads = response.json()?;
        let nodes = reloads["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
        if session.printer.json {
            session.printer.print_json(&response.text());
        } else {
            nodes.iter().for_each(|node| print_node(&session.printer, node));
        }
        let has = |status: &str| nodes.iter().any(|node| node["status"] == status);
        return Ok(match (has("refused"), has("unanswered")) {
            (true, _) => Exit::Usage,
            (false, true) => Exit::Unreachable,
            (false, false) => Exit::Success,
        });
    }
    let response = client.send_checked(Request::post(["reload"])).await?;
    if session.printer.json {
        session.printer.print_json(&response.text());
        return Ok(Exit::Success);
    }
    let changes = changes(&response.json()?);
    changes.iter().for_each(|change| session.printer.print_untrusted(change));
    if changes.is_empty() {
        session.printer.note("nothing changed");
    }
    Ok(Exit::Success)
}

/// Prints what a node did.
fn print_node(printer: &Printer, node: &Value) {
    let name = pointer_text(node, "/name");
    if node["status"] == "reloaded" {
        let changes = changes(&node["report"]);
        let text = if changes.is_empty() { "nothing changed".into() } else { changes.join("; ") };
        printer.print_untrusted(&format!("{name}: {text}"));
        return;
    }
    let status = if node["status"] == "refused" { "not reloaded" } else { "no answer" };
    printer.print_untrusted(&format!("{name}: {status}: {}", pointer_text(node, "/detail")));
    for problem in node["errors"].as_array().into_iter().flatten() {
        let (place, detail) = (pointer_text(problem, "/place"), pointer_text(problem, "/detail"));
        printer.print_untrusted(&format!("  {place}: {detail}"));
    }
}

/// What a reload changed, a line for each kind of change.
fn changes(report: &Value) -> Vec<String> {
    let mut changes = Vec::new();
    for (field, label) in [
        ("added", "tools added"),
        ("replaced", "tools replaced"),
        ("removed", "tools removed"),
        ("sections", "settings applied"),
        ("needsRestart", "needs a restart"),
    ] {
        let names: Vec<&str> =
            report[field].as_array().into_iter().flatten().filter_map(|name| name.as_str()).collect();
        if !names.is_empty() {
            changes.push(format!("{label}: {}", names.join(", ")));
        }
    }
    changes
}

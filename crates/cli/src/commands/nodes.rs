//! `nodes`: lists the nodes that share the store.

use std::collections::BTreeSet;

use serde_json::Value;
use toolhub::clock::{Clock as _, SystemClock};

use super::paging::{self, Paging, pointer_text};
use crate::{
    client::Request,
    exit::Exit,
    failure::Failure,
    output::{Column, Table, format_ago},
    session::Session,
};

/// List the nodes that share the store, and which of them are alive.
#[derive(Debug, clap::Args)]
pub(crate) struct NodesArgs {
    #[command(flatten)]
    paging: Paging,
}

/// So much of a digest or an id tells two apart.
const SHORT_DIGEST: usize = 8;

const COLUMNS: [Column; 8] = [
    Column::new("NAME"),
    Column::new("STATE"),
    Column::new("LAST SEEN"),
    Column::new("VERSION").drop_order(2),
    Column::new("LAYOUTS").drop_order(5),
    Column::new("CONFIG").drop_order(3),
    Column::new("STARTED").drop_order(4),
    Column::new("ADDRESS").drop_order(1),
];

pub(crate) async fn run(session: &Session, args: &NodesArgs) -> Result<Exit, Failure> {
    let nodes = paging::fetch_items(session, Request::get(["nodes"]), &args.paging).await?;
    let Some(nodes) = nodes else { return Ok(Exit::Success) };
    let (printer, now) = (&session.printer, SystemClock.now());
    let mut table = Table::new(COLUMNS);
    for node in &nodes {
        let is_self = node["isSelf"] == true;
        let mut state = pointer_text(node, "/state");
        let roles = [(is_self, "this one"), (node["isMaintainer"] == true, "maintenance")];
        let roles: Vec<_> = roles.iter().filter(|(has_role, _)| *has_role).map(|(_, role)| *role).collect();
        if !roles.is_empty() {
            state += &format!(" ({})", roles.join(", "));
        }
        table.add_row([
            pointer_text(node, "/name"),
            state,
            if is_self {
                "now".into()
            } else {
                format!("{} s ago", node["sinceRenewalMs"].as_u64().unwrap_or(0) / 1000)
            },
            pointer_text(node, "/version"),
            layouts_text(&node["layouts"]),
            pointer_text(node, "/configDigest").chars().take(SHORT_DIGEST).collect(),
            format_ago(&pointer_text(node, "/startedAt"), now),
            pointer_text(node, "/address"),
        ]);
    }
    printer.print(&table.render(printer.width, printer.ascii));
    if has_different_configs(&nodes) {
        printer.note("the nodes have different configs: give each the same files, and `toolhub reload --all`");
    }
    Ok(Exit::Success)
}

/// Whether living nodes have different configs.
fn has_different_configs(nodes: &[Value]) -> bool {
    let alive = nodes.iter().filter(|node| node["state"] == "alive");
    alive.filter_map(|node| node["configDigest"].as_str()).collect::<BTreeSet<_>>().len() > 1
}

/// The newest generation of record layouts that a node reads, and the one that it writes if that is another.
fn layouts_text(layouts: &Value) -> String {
    match (layouts["read"].as_u64(), layouts["written"].as_u64()) {
        (Some(read), Some(written)) if read != written => format!("{read} (writes {written})"),
        (Some(read), _) => read.to_string(),
        (None, _) => String::new(),
    }
}

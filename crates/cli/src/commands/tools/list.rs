//! `tools list`: prints one line per tool, and counts by status.

use std::collections::BTreeMap;

use anstyle::Style;
use serde_json::{Value, json};

use super::{
    super::{
        paging::{self, Paging, pointer_text},
        threads,
    },
    show::{dependency_names, withheld_note},
};
use crate::{
    client::Request,
    exit::Exit,
    failure::Failure,
    output::{Column, Table, format_millis, format_status},
    session::Session,
};

/// List tools.
#[derive(Debug, clap::Args)]
pub(crate) struct List {
    /// Only tools of this kind, e.g. stateless or stateful
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// Only tools with this status
    #[arg(long, value_name = "STATUS", value_parser = ["available", "unavailable", "failed", "maintenance"])]
    status: Option<String>,
    /// Only tools with this tag
    #[arg(long, value_name = "TAG")]
    tag: Option<String>,
    /// Only tools with this text in their name or description
    #[arg(value_name = "TEXT")]
    q: Option<String>,
}

const COLUMNS: [Column; 7] = [
    Column::new("NAME"),
    Column::new("KIND").drop_order(4),
    Column::new("STATUS"),
    Column::new("CALLS").align_right().drop_order(2),
    Column::new("ERR").drop_order(3),
    Column::new("P95").drop_order(5),
    Column::new("NOTE").drop_order(1).shrink_to(14),
];

pub(super) async fn run(session: &Session, args: List) -> Result<Exit, Failure> {
    if let Some(thread) = &session.global.thread {
        return list_in_thread(session, thread).await;
    }
    let request = Request::get(["tools"])
        .query("kind", args.kind.as_deref())
        .query("status", args.status.as_deref())
        .query("tag", args.tag.as_deref())
        .query("q", args.q.as_deref());
    let Some(tools) = paging::fetch_items(session, request, &Paging::all()).await? else { return Ok(Exit::Success) };
    let printer = &session.printer;
    if tools.is_empty() {
        printer.note("no tools");
        return Ok(Exit::Success);
    }
    let in_process = session.client().await?.server_url().is_none();
    let mut table = Table::new(COLUMNS);
    for tool in &tools {
        let plain = |text: String| (text, Style::new());
        let number = |name: &str| tool["stats"][name].as_f64().unwrap_or_default();
        let (calls, dash) = (number("calls"), if printer.ascii { "-" } else { "–" });
        let has_calls = calls > 0.0;
        // Statistics are per process, and an in-process hub has only just started.
        let stat = |text: String| plain(if in_process { String::new() } else { text });
        table.add_styled_row([
            plain(pointer_text(tool, "/name")),
            plain(pointer_text(tool, "/kind")),
            format_status(&pointer_text(tool, "/status"), printer.ascii),
            stat(format!("{calls}")),
            stat(if has_calls { format_percent(number("errors") / calls) } else { dash.into() }),
            stat(if has_calls { format_millis(number("p95Ms")) } else { dash.into() }),
            plain(status_note(tool)),
        ]);
    }
    printer.print(&table.render(printer.width, printer.ascii));
    printer.note(&summary_line(&tools, printer.ascii));
    Ok(Exit::Success)
}

/// Lists the tools with their status in a thread.
async fn list_in_thread(session: &Session, thread: &str) -> Result<Exit, Failure> {
    let response = threads::fetch_tool_states(session, thread).await?;
    if !session.printer.json {
        threads::print_tool_states(session, &response)?;
        return Ok(Exit::Success);
    }
    let states = response.json()?;
    let items = states["data"]["toolStates"].as_object().into_iter().flatten().map(|(name, state)| {
        let mut item = serde_json::Map::from_iter([("name".to_owned(), Value::from(name.as_str()))]);
        item.extend(state.as_object().cloned().unwrap_or_default());
        Value::Object(item)
    });
    let items: Vec<Value> = items.collect();
    session.printer.print_json(&json!({ "items": items, "nextCursor": null }).to_string());
    Ok(Exit::Success)
}

/// The reason; for an available tool, why a thread may not be offered it.
fn status_note(tool: &Value) -> String {
    if tool["status"] != "available" || tool["standing"]["probation"] == true {
        return pointer_text(tool, "/reason");
    }
    let needs = Some(dependency_names(&tool["dependsOn"])).filter(|names| !names.is_empty());
    let notes = [needs.map(|names| format!("needs {names}")), withheld_note(tool)];
    notes.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

fn format_percent(share: f64) -> String {
    match share.min(1.0) * 100.0 {
        0.0 => "0%".into(),
        percent if percent < 9.95 => format!("{percent:.1}%"),
        percent => format!("{percent:.0}%"),
    }
}

fn summary_line(tools: &[Value], ascii: bool) -> String {
    let mut counts = BTreeMap::new();
    for tool in tools {
        *counts.entry(pointer_text(tool, "/status")).or_insert(0) += 1;
    }
    let all = if tools.len() == 1 { "1 tool".to_owned() } else { format!("{} tools", tools.len()) };
    let parts = ["available", "failed", "unavailable", "maintenance"].into_iter();
    let parts = parts.filter_map(|word| counts.get(word).map(|count| format!("{count} {word}")));
    let line = [all].into_iter().chain(parts).collect::<Vec<_>>().join(if ascii { " - " } else { " · " });
    let example = tools.iter().find(|tool| tool["status"] != "available").or_else(|| tools.first());
    let name = example.map(|tool| pointer_text(tool, "/name")).unwrap_or_default();
    format!("{line}      (toolhub tools show {name})")
}

//! MCP servers as tables, fields and lines.
//!
//! In: JSON of the API. Out: text for the terminal.

use anstyle::Style;
use serde_json::Value;
use toolhub::clock::{Clock as _, SystemClock, Timestamp};

use super::super::paging::pointer_text;
use crate::output::{Column, Fields, Printer, Table, format_ago, format_remaining, format_status, strip_hidden};

const COLUMNS: [Column; 5] = [
    Column::new("NAME"),
    Column::new("CONNECTION"),
    Column::new("SINCE").drop_order(2),
    Column::new("TOOLS").align_right().drop_order(3),
    Column::new("NOTE").drop_order(1).shrink_to(14),
];

const TOOL_COLUMNS: [Column; 4] = [
    Column::new("TOOL"),
    Column::new("NAME").drop_order(2),
    Column::new("STATE"),
    Column::new("REASON").drop_order(1).shrink_to(14),
];

/// One line per server.
pub(super) fn render_list(servers: &[Value], printer: &Printer) -> String {
    let now = SystemClock.now();
    let mut table = Table::new(COLUMNS);
    for server in servers {
        let plain = |text: String| (text, Style::new());
        let counts = &server["toolCounts"];
        table.add_styled_row([
            plain(pointer_text(server, "/name")),
            format_status(&pointer_text(server, "/connection"), printer.ascii),
            plain(format_ago(&pointer_text(server, "/since"), now)),
            plain(pointer_text(counts, "/registered")),
            plain(note(server, now)),
        ]);
    }
    table.render(printer.width, printer.ascii)
}

/// What a person should know or do about a server.
fn note(server: &Value, now: Timestamp) -> String {
    let count = |name: &str| server["toolCounts"][name].as_u64().filter(|count| *count > 0);
    let notes = [
        server["lastError"].as_str().map(String::from),
        next_attempt(server, now).map(|time| format!("next attempt {time}")),
        count("pendingApproval").map(|count| format!("{count} waiting for approval")),
        count("quarantined").map(|count| format!("{count} quarantined")),
    ];
    notes.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

fn next_attempt(server: &Value, now: Timestamp) -> Option<String> {
    let at = server["nextAttempt"].as_str()?;
    let is_due = at.parse::<Timestamp>().is_ok_and(|at| at <= now);
    Some(if is_due { "now".into() } else { format!("in {}", format_remaining(at, now)) })
}

/// A server with its tools.
pub(super) fn render_server(server: &Value, printer: &Printer) -> String {
    let now = SystemClock.now();
    let mut fields = Fields::default();
    fields.add_styled("name", pointer_text(server, "/name"), Style::new().bold());
    let (connection, style) = format_status(&pointer_text(server, "/connection"), printer.ascii);
    fields.add_styled("connection", connection, style);
    fields.add("since", format_ago(&pointer_text(server, "/since"), now));
    fields.add("last error", pointer_text(server, "/lastError"));
    fields.add("next attempt", next_attempt(server, now).unwrap_or_default());
    for (name, detail) in server["details"].as_object().into_iter().flatten() {
        match detail {
            Value::Array(lines) => lines.iter().for_each(|line| fields.add(&words(name), pointer_text(line, ""))),
            Value::Object(members) => {
                let texts: Vec<String> = members.values().map(|value| pointer_text(value, "")).collect();
                fields.add(&words(name), texts.join(" "));
            }
            detail => fields.add(&words(name), pointer_text(detail, "")),
        }
    }
    let text = fields.render(printer.width, 0);
    let tools = server["tools"].as_array().filter(|tools| !tools.is_empty());
    match tools {
        Some(tools) => format!("{text}\n{}", render_tools(tools, printer)),
        None => text,
    }
}

fn render_tools(tools: &[Value], printer: &Printer) -> String {
    let mut table = Table::new(TOOL_COLUMNS);
    for tool in tools {
        let plain = |at: &str| (pointer_text(tool, at), Style::new());
        table.add_styled_row([
            plain("/name"),
            plain("/toolName"),
            format_status(&pointer_text(tool, "/state"), printer.ascii),
            plain("/reason"),
        ]);
    }
    table.render(printer.width, printer.ascii)
}

/// The connection of a server, on one line.
pub(super) fn render_connection(server: &Value, printer: &Printer) -> String {
    let (connection, style) = format_status(&pointer_text(server, "/connection"), printer.ascii);
    let name = strip_hidden(&pointer_text(server, "/name"));
    let error = server["lastError"].as_str().map(|error| format!("  {}", strip_hidden(error))).unwrap_or_default();
    format!("{name}  {style}{connection}{style:#}{error}")
}

/// A camelCase name as words.
fn words(name: &str) -> String {
    name.chars().fold(String::new(), |text, c| match c.is_ascii_uppercase() {
        true => text + " " + &c.to_ascii_lowercase().to_string(),
        false => text + &c.to_string(),
    })
}

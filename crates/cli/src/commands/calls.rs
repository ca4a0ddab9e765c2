//! `calls`: what was called and how it ended.

use clap::Subcommand;
use serde_json::Value;
use toolhub::clock::{Clock as _, SystemClock, Timestamp};

use super::{
    call,
    paging::{self, Paging, pointer_text},
};
use crate::{
    client::Request,
    exit::Exit,
    failure::Failure,
    global,
    output::{Column, Fields, Printer, Table, format_ago, format_millis, format_status, format_timestamp, indent_json},
    session::Session,
};

/// Look at calls that were made, and cancel those that run.
#[derive(Debug, Subcommand)]
pub(crate) enum CallsCommand {
    /// List calls, the newest first; with --thread, those of that thread
    #[command(alias = "ls")]
    List(List),
    /// Show one call
    #[command(alias = "get")]
    Show {
        /// The call, call_…
        id: String,
    },
    /// Stop a call that runs or waits
    Cancel {
        /// The call, call_…
        id: String,
    },
}

/// List calls.
#[derive(Debug, clap::Args)]
pub(crate) struct List {
    /// Only calls of this tool
    #[arg(long, value_name = "TOOL")]
    tool: Option<String>,
    /// Only calls that stand so
    #[arg(long, value_name = "STATUS",
          value_parser = ["validating", "awaiting_approval", "scheduled", "executing", "success", "error", "cancelled"])]
    status: Option<String>,
    /// Only calls since then: a time ago such as 2h, or a moment such as 2027-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = past)]
    since: Option<Timestamp>,
    /// Only calls before then
    #[arg(long, value_name = "TIME", value_parser = past)]
    until: Option<Timestamp>,
    #[command(flatten)]
    paging: Paging,
}

/// A moment, or how long ago it was.
fn past(text: &str) -> Result<Timestamp, String> {
    if let Ok(moment) = text.parse() {
        return Ok(moment);
    }
    let time = global::time(text);
    time.map(|time| SystemClock.now() - time).map_err(|why| format!("{why}; or a moment such as 2027-01-31T12:00:00Z"))
}

const COLUMNS: [Column; 6] = [
    Column::new("ID"),
    Column::new("TOOL").shrink_to(6),
    Column::new("STATUS"),
    Column::new("TOOK").align_right().drop_order(3),
    Column::new("WHEN").drop_order(1),
    Column::new("THREAD").drop_order(2).shrink_to(8),
];

pub(crate) async fn run(session: &Session, asked: CallsCommand) -> Result<Exit, Failure> {
    match asked {
        CallsCommand::List(asked) => list_calls(session, asked).await,
        CallsCommand::Show { id } => {
            let answer = session.send_checked(Request::get(["calls", &id])).await.map_err(with_not_found_help)?;
            if session.printer.json {
                session.printer.print_json(&answer.text());
            } else {
                session.printer.print(&render_call(&answer.json()?, &session.printer));
            }
            Ok(Exit::Success)
        }
        CallsCommand::Cancel { id } => {
            let answer =
                session.send_checked(Request::post(["calls", &id, "cancel"])).await.map_err(with_not_found_help)?;
            if session.printer.json {
                session.printer.print_json(&answer.text());
                return Ok(Exit::Success);
            }
            let call = call::approval_dialog::poll_until(session, &id, call::has_ended).await?;
            let (word, style) = format_status(&pointer_text(&call, "/status"), session.printer.ascii);
            session.printer.print(&format!("{style}{word}{style:#}  {}", pointer_text(&call, "/tool")));
            if !call::has_ended(&call) {
                session
                    .printer
                    .note(&format!("it was asked to stop: toolhub calls show {id}{}", session.target_flags()));
            }
            Ok(Exit::Success)
        }
    }
}

async fn list_calls(session: &Session, asked: List) -> Result<Exit, Failure> {
    let request = Request::get(["calls"])
        .query("tool", asked.tool.as_deref())
        .query("threadId", session.global.thread.as_deref())
        .query("status", asked.status.as_deref())
        .query("since", asked.since)
        .query("until", asked.until);
    let Some(calls) = paging::fetch_items(session, request, &asked.paging).await? else { return Ok(Exit::Success) };
    let (show, now) = (&session.printer, SystemClock.now());
    if calls.is_empty() {
        show.note("no calls");
        return Ok(Exit::Success);
    }
    let mut table = Table::new(COLUMNS);
    for call in &calls {
        let (word, style) = format_status(&pointer_text(call, "/status"), show.ascii);
        let plain = |text: String| (text, anstyle::Style::new());
        table.add_styled_row([
            plain(pointer_text(call, "/id")),
            plain(pointer_text(call, "/tool")),
            (word, style),
            plain(call["durationMs"].as_f64().map(format_millis).unwrap_or_default()),
            plain(format_ago(&pointer_text(call, "/startedAt"), now)),
            plain(pointer_text(call, "/threadId")),
        ]);
    }
    show.print(&table.render(show.width, show.ascii));
    Ok(Exit::Success)
}

fn render_call(record: &Value, show: &Printer) -> String {
    let mut fields = Fields::default();
    fields.add("id", pointer_text(record, "/id"));
    fields.add("tool", pointer_text(record, "/tool"));
    let (word, style) = format_status(&pointer_text(record, "/status"), show.ascii);
    fields.add_styled("status", word, style);
    if let Some(failure) = call::call_failure(record) {
        fields.add("error", format!("{}: {}", failure.code, pointer_text(record, "/error/detail")));
    }
    fields.add("effect", pointer_text(record, "/effect"));
    fields.add("thread", pointer_text(record, "/threadId"));
    fields.add("caller", pointer_text(record, "/caller"));
    fields.add("key", pointer_text(record, "/idempotencyKey"));
    fields.add("approval", pointer_text(record, "/approval/id"));
    fields.add("began", format_timestamp(&pointer_text(record, "/startedAt")));
    let attempts = record["attempts"].as_u64().filter(|many| *many > 1).map(|many| format!(", {many} attempts"));
    let took = record["durationMs"].as_f64().map(format_millis);
    fields.add("took", took.map(|took| took + &attempts.unwrap_or_default()).unwrap_or_default());
    fields.add("trace", pointer_text(record, "/traceId"));
    fields.add("arguments", indent_json(&record["arguments"].to_string()));
    if !record["output"].is_null() {
        fields.add("output", indent_json(&record["output"].to_string()));
    }
    fields.render(show.width, 0)
}

fn with_not_found_help(failure: Failure) -> Failure {
    match failure.code.as_str() {
        "call_not_found" => failure.help("toolhub calls list"),
        _ => failure,
    }
}

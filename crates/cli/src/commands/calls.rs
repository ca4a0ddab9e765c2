//! `calls`: lists, shows and cancels calls.

use clap::Subcommand;
use serde_json::Value;
use toolhub::clock::{Clock as _, SystemClock, Timestamp};

use super::{
    call, events,
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

/// List and inspect calls, and cancel running ones.
#[derive(Debug, Subcommand)]
pub(crate) enum CallsCommand {
    /// List calls, newest first; with --thread, only those of the thread
    #[command(alias = "ls")]
    List(List),
    /// Show a call
    #[command(alias = "get")]
    Show {
        /// Call id, call_…
        id: String,
        /// Wait until the call has ended
        #[arg(long)]
        wait: bool,
    },
    /// Print calls as they start and end; with --thread, only those of the thread
    Tail {
        /// Only calls of this tool
        #[arg(long, value_name = "TOOL")]
        tool: Option<String>,
        #[command(flatten)]
        bound: events::EventBound,
    },
    /// Make a call again: same tool, arguments and thread
    Retry {
        /// Call id, call_…
        id: String,
    },
    /// Cancel a running or waiting call
    Cancel {
        /// Call id, call_…
        id: String,
    },
}

/// List calls.
#[derive(Debug, clap::Args)]
pub(crate) struct List {
    /// Only calls of this tool
    #[arg(long, value_name = "TOOL")]
    tool: Option<String>,
    /// Only calls with this status
    #[arg(long, value_name = "STATUS",
          value_parser = ["validating", "awaiting_approval", "scheduled", "executing", "success", "error", "cancelled"])]
    status: Option<String>,
    /// Only calls that ended with this error code, such as timeout
    #[arg(long, value_name = "CODE")]
    code: Option<String>,
    /// Only calls of this caller: the name of a key, or local
    #[arg(long, value_name = "NAME")]
    caller: Option<String>,
    /// Only calls of this agent run
    #[arg(long, value_name = "RUN")]
    run: Option<String>,
    /// Only ended calls that took longer than this, such as 500ms or 2s
    #[arg(long, value_name = "DURATION")]
    slower_than: Option<String>,
    /// Only calls since this time: an age such as 2h, or a timestamp such as 2027-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = parse_past_time)]
    since: Option<Timestamp>,
    /// Only calls before this time
    #[arg(long, value_name = "TIME", value_parser = parse_past_time)]
    until: Option<Timestamp>,
    #[command(flatten)]
    paging: Paging,
}

/// Parses a timestamp or an age.
pub(crate) fn parse_past_time(text: &str) -> Result<Timestamp, String> {
    if let Ok(timestamp) = text.parse() {
        return Ok(timestamp);
    }
    let age = global::parse_duration(text);
    age.map(|age| SystemClock.now() - age).map_err(|why| format!("{why}; or a timestamp such as 2027-01-31T12:00:00Z"))
}

const COLUMNS: [Column; 6] = [
    Column::new("ID"),
    Column::new("TOOL").shrink_to(6),
    Column::new("STATUS"),
    Column::new("TOOK").align_right().drop_order(3),
    Column::new("STARTED").drop_order(1),
    Column::new("THREAD").drop_order(2).shrink_to(8),
];

pub(crate) async fn run(session: &Session, command: CallsCommand) -> Result<Exit, Failure> {
    match command {
        CallsCommand::List(args) => list_calls(session, args).await,
        CallsCommand::Show { id, wait } => {
            let response = session.send_checked(Request::get(["calls", &id])).await.map_err(with_not_found_help)?;
            let (call, document) = match wait {
                true => call::approval_dialog::wait_for_result(session, &id).await?,
                false => (response.json()?, response.text()),
            };
            if session.printer.json {
                session.printer.print_json(&document);
            } else {
                session.printer.print(&render_call(&call, &session.printer));
            }
            Ok(Exit::Success)
        }
        CallsCommand::Tail { tool, bound } => {
            events::follow(session, Some("tool.execution.*"), tool.as_deref(), &bound).await
        }
        CallsCommand::Retry { id } => {
            let response = session.send_checked(Request::get(["calls", &id])).await.map_err(with_not_found_help)?;
            call::run(session, call::Call::repeat(&response.json()?)?).await
        }
        CallsCommand::Cancel { id } => {
            let response =
                session.send_checked(Request::post(["calls", &id, "cancel"])).await.map_err(with_not_found_help)?;
            if session.printer.json {
                session.printer.print_json(&response.text());
                return Ok(Exit::Success);
            }
            let call = call::approval_dialog::poll_until(session, &id, call::has_ended).await?;
            let (status, style) = format_status(&pointer_text(&call, "/status"), session.printer.ascii);
            session.printer.print(&format!("{style}{status}{style:#}  {}", pointer_text(&call, "/tool")));
            if !call::has_ended(&call) {
                session
                    .printer
                    .note(&format!("cancellation requested: toolhub calls show {id}{}", session.target_flags()));
            }
            Ok(Exit::Success)
        }
    }
}

async fn list_calls(session: &Session, args: List) -> Result<Exit, Failure> {
    let request = Request::get(["calls"])
        .query("tool", args.tool.as_deref())
        .query("threadId", session.global.thread.as_deref())
        .query("status", args.status.as_deref())
        .query("code", args.code.as_deref())
        .query("caller", args.caller.as_deref())
        .query("runId", args.run.as_deref())
        .query("slowerThan", args.slower_than.as_deref())
        .query("view", (!session.printer.json).then_some("short"))
        .query("since", args.since)
        .query("until", args.until);
    let Some(calls) = paging::fetch_items(session, request, &args.paging).await? else { return Ok(Exit::Success) };
    match calls.as_slice() {
        [] => session.printer.note("no calls"),
        calls => session.printer.print(&render_table(calls, &session.printer)),
    }
    Ok(Exit::Success)
}

/// One line per call.
pub(super) fn render_table(calls: &[Value], printer: &Printer) -> String {
    let (mut table, now) = (Table::new(COLUMNS), SystemClock.now());
    for call in calls {
        let (status, style) = format_status(&pointer_text(call, "/status"), printer.ascii);
        let status = if call["cached"] == true { format!("{status}, cached") } else { status };
        let plain = |text: String| (text, anstyle::Style::new());
        table.add_styled_row([
            plain(pointer_text(call, "/id")),
            plain(pointer_text(call, "/tool")),
            (status, style),
            plain(call["durationMs"].as_f64().map(format_millis).unwrap_or_default()),
            plain(format_ago(&pointer_text(call, "/startedAt"), now)),
            plain(pointer_text(call, "/threadId")),
        ]);
    }
    table.render(printer.width, printer.ascii)
}

fn render_call(record: &Value, printer: &Printer) -> String {
    let mut fields = Fields::default();
    fields.add("id", pointer_text(record, "/id"));
    fields.add("tool", pointer_text(record, "/tool"));
    let (status, style) = format_status(&pointer_text(record, "/status"), printer.ascii);
    let cached = if record["cached"] == true { ", the cached result of an earlier call" } else { "" };
    fields.add_styled("status", format!("{status}{cached}"), style);
    if let Some(failure) = call::call_failure(record) {
        fields.add("error", format!("{}: {}", failure.code, pointer_text(record, "/error/detail")));
    }
    fields.add("effect", pointer_text(record, "/effect"));
    fields.add("thread", pointer_text(record, "/threadId"));
    fields.add("caller", pointer_text(record, "/caller"));
    fields.add("key", pointer_text(record, "/idempotencyKey"));
    fields.add("approval", pointer_text(record, "/approval/id"));
    fields.add("started", format_timestamp(&pointer_text(record, "/startedAt")));
    fields.add("duration", record["durationMs"].as_f64().map(format_millis).unwrap_or_default());
    // One attempt is worth a line only where a failure raises the question.
    let attempts =
        record["attempts"].as_u64().filter(|count| *count > 1 || (*count == 1 && !record["error"].is_null()));
    fields.add("attempts", attempts.map(|count| count.to_string()).unwrap_or_default());
    fields.add("trace", pointer_text(record, "/traceId"));
    fields.add("arguments", indent_json(&record["arguments"].to_string()));
    if !record["output"].is_null() {
        fields.add("output", indent_json(&record["output"].to_string()));
    } else if record["status"] == "success" && record["effect"] == "none" && record["content"].is_null() {
        // Whether the tool returned something is not recorded either.
        fields.add("output", "not stored (read-only call)");
    }
    fields.render(printer.width, 0)
}

fn with_not_found_help(failure: Failure) -> Failure {
    match failure.code.as_str() {
        "call_not_found" => failure.help("toolhub calls list"),
        _ => failure,
    }
}

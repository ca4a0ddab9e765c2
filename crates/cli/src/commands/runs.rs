//! `runs`: lists, shows and cancels agent runs.

use anstyle::Style;
use clap::Subcommand;
use serde_json::Value;
use toolhub::clock::{Clock as _, SystemClock};

use super::{
    chat::has_ended,
    paging::{self, Paging, pointer_text},
};
use crate::{
    client::Request,
    exit::Exit,
    failure::Failure,
    output::{Column, Fields, Printer, Table, format_ago, format_millis, format_status, format_timestamp},
    session::Session,
};

/// List and inspect agent runs, and cancel open ones.
#[derive(Debug, Subcommand)]
pub(crate) enum RunsCommand {
    /// List runs, newest first
    #[command(alias = "ls")]
    List {
        /// Only the runs of this thread [default: the one of --thread, or all]
        #[arg(value_name = "THREAD")]
        thread_id: Option<String>,
        #[command(flatten)]
        paging: Paging,
    },
    /// Show a run
    #[command(alias = "get")]
    Show {
        /// Run id, run_…
        id: String,
    },
    /// Cancel an open run and its calls
    Cancel {
        /// Run id, run_…
        id: String,
    },
}

const COLUMNS: [Column; 7] = [
    Column::new("ID"),
    Column::new("STATUS"),
    Column::new("STEPS").align_right().drop_order(3),
    Column::new("CALLS").align_right().drop_order(2),
    Column::new("STARTED").drop_order(1),
    Column::new("AGENT").drop_order(4).shrink_to(8),
    Column::new("THREAD").drop_order(5).shrink_to(8),
];

pub(crate) async fn run(session: &Session, command: RunsCommand) -> Result<Exit, Failure> {
    match command {
        RunsCommand::List { thread_id, paging } => {
            let thread = thread_id.or_else(|| session.global.thread.clone());
            list_runs(session, thread.as_deref(), &paging).await
        }
        RunsCommand::Show { id } => {
            let response = session.send_checked(Request::get(["runs", &id])).await.map_err(with_not_found_help)?;
            if session.printer.json {
                session.printer.print_json(&response.text());
            } else {
                session.printer.print(&render_run(&response.json()?, &session.printer));
            }
            Ok(Exit::Success)
        }
        RunsCommand::Cancel { id } => {
            let response =
                session.send_checked(Request::post(["runs", &id, "cancel"])).await.map_err(with_not_found_help)?;
            if session.printer.json {
                session.printer.print_json(&response.text());
                return Ok(Exit::Success);
            }
            let run = wait_until_ended(session, &id).await?;
            let (status, style) = format_status(&pointer_text(&run, "/status"), session.printer.ascii);
            session.printer.print(&format!("{style}{status}{style:#}  {id}"));
            if !has_ended(&run) {
                session
                    .printer
                    .note(&format!("cancellation requested: toolhub runs show {id}{}", session.target_flags()));
            }
            Ok(Exit::Success)
        }
    }
}

/// Polls the run until it has ended, for about a second; then returns it as it is.
async fn wait_until_ended(session: &Session, id: &str) -> Result<Value, Failure> {
    let mut pause = std::time::Duration::from_millis(10);
    loop {
        let run = session.send_checked(Request::get(["runs", id])).await?.json()?;
        if has_ended(&run) || pause.as_secs() >= 1 {
            return Ok(run);
        }
        tokio::time::sleep(pause).await;
        pause *= 2;
    }
}

async fn list_runs(session: &Session, thread: Option<&str>, paging: &Paging) -> Result<Exit, Failure> {
    let request = match thread {
        Some(thread) => Request::get(["threads", thread, "runs"]),
        None => Request::get(["runs"]),
    };
    let Some(runs) =
        paging::fetch_items(session, request, paging).await.map_err(super::threads::with_not_found_help)?
    else {
        return Ok(Exit::Success);
    };
    let (printer, now) = (&session.printer, SystemClock.now());
    if runs.is_empty() {
        printer.note("no runs");
        return Ok(Exit::Success);
    }
    let mut table = Table::new(COLUMNS);
    for run in &runs {
        let plain = |text: String| (text, Style::new());
        table.add_styled_row([
            plain(pointer_text(run, "/id")),
            format_status(&pointer_text(run, "/status"), printer.ascii),
            plain(pointer_text(run, "/steps")),
            plain(run["calls"].as_array().map_or(0, Vec::len).to_string()),
            plain(format_ago(&pointer_text(run, "/startedAt"), now)),
            plain(pointer_text(run, "/agent")),
            // The same in every line of one thread.
            plain(if thread.is_some() { String::new() } else { pointer_text(run, "/threadId") }),
        ]);
    }
    printer.print(&table.render(printer.width, printer.ascii));
    Ok(Exit::Success)
}

fn render_run(run: &Value, printer: &Printer) -> String {
    let mut fields = Fields::default();
    fields.add("id", pointer_text(run, "/id"));
    let (status, style) = format_status(&pointer_text(run, "/status"), printer.ascii);
    fields.add_styled("status", status, style);
    if !run["error"].is_null() {
        fields.add("error", format!("{}: {}", pointer_text(run, "/error/code"), pointer_text(run, "/error/message")));
    }
    fields.add("thread", pointer_text(run, "/threadId"));
    fields.add("agent", pointer_text(run, "/agent"));
    fields.add("started", format_timestamp(&pointer_text(run, "/startedAt")));
    fields.add("duration", run_duration(run).unwrap_or_default());
    fields.add("steps", pointer_text(run, "/steps"));
    let (input, output) = (pointer_text(run, "/usage/inputTokens"), pointer_text(run, "/usage/outputTokens"));
    fields.add("tokens", format!("{input} input, {output} output"));
    for call in run["calls"].as_array().into_iter().flatten() {
        let (status, style) = format_status(&pointer_text(call, "/status"), printer.ascii);
        let approve_command = call["approvalId"].as_str().map(|id| format!("  toolhub approvals approve {id}"));
        let line = format!(
            "{status}  {}  {}{}",
            pointer_text(call, "/tool"),
            pointer_text(call, "/id"),
            approve_command.unwrap_or_default()
        );
        fields.add_styled("call", line, style);
    }
    fields.add("trace", pointer_text(run, "/traceId"));
    fields.add("answer", pointer_text(run, "/content"));
    fields.render(printer.width, 0)
}

/// The duration of a run that has ended.
fn run_duration(run: &Value) -> Option<String> {
    let timestamp = |at: &str| pointer_text(run, at).parse::<toolhub::clock::Timestamp>().ok();
    let duration = timestamp("/endedAt")?.since(timestamp("/startedAt")?);
    Some(format_millis(duration.as_secs_f64() * 1e3))
}

fn with_not_found_help(failure: Failure) -> Failure {
    match failure.code.as_str() {
        "run_not_found" => failure.help("toolhub runs list"),
        _ => failure,
    }
}

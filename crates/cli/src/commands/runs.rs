//! `runs`: what agents did, message by message.

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

/// Look at runs of agents, and cancel those that are open.
#[derive(Debug, Subcommand)]
pub(crate) enum RunsCommand {
    /// List the runs of a thread, the newest first
    #[command(alias = "ls")]
    List {
        /// The thread [default: the one of --thread]
        #[arg(value_name = "THREAD")]
        of: Option<String>,
        #[command(flatten)]
        paging: Paging,
    },
    /// Show one run
    #[command(alias = "get")]
    Show {
        /// The run, run_…
        id: String,
    },
    /// Stop a run that is open, and its calls
    Cancel {
        /// The run, run_…
        id: String,
    },
}

const COLUMNS: [Column; 6] = [
    Column::new("ID"),
    Column::new("STATUS"),
    Column::new("STEPS").align_right().drop_order(3),
    Column::new("CALLS").align_right().drop_order(2),
    Column::new("WHEN").drop_order(1),
    Column::new("AGENT").drop_order(4).shrink_to(8),
];

pub(crate) async fn run(session: &Session, asked: RunsCommand) -> Result<Exit, Failure> {
    match asked {
        RunsCommand::List { of, paging } => {
            let thread = of.or_else(|| session.global.thread.clone()).ok_or_else(|| {
                Failure::usage("it is not said which thread")
                    .help("toolhub runs list THREAD")
                    .help("toolhub threads list")
            })?;
            list_runs(session, &thread, &paging).await
        }
        RunsCommand::Show { id } => {
            let answer = session.send_checked(Request::get(["runs", &id])).await.map_err(with_not_found_help)?;
            if session.printer.json {
                session.printer.print_json(&answer.text());
            } else {
                session.printer.print(&render_run(&answer.json()?, &session.printer));
            }
            Ok(Exit::Success)
        }
        RunsCommand::Cancel { id } => {
            let answer =
                session.send_checked(Request::post(["runs", &id, "cancel"])).await.map_err(with_not_found_help)?;
            if session.printer.json {
                session.printer.print_json(&answer.text());
                return Ok(Exit::Success);
            }
            let run = wait_until_ended(session, &id).await?;
            let (word, style) = format_status(&pointer_text(&run, "/status"), session.printer.ascii);
            session.printer.print(&format!("{style}{word}{style:#}  {id}"));
            if !has_ended(&run) {
                session
                    .printer
                    .note(&format!("it was asked to stop: toolhub runs show {id}{}", session.target_flags()));
            }
            Ok(Exit::Success)
        }
    }
}

/// A run as it is at its end, or after a moment: nobody waits here for ever.
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

async fn list_runs(session: &Session, thread: &str, paging: &Paging) -> Result<Exit, Failure> {
    let request = Request::get(["threads", thread, "runs"]);
    let Some(runs) =
        paging::fetch_items(session, request, paging).await.map_err(super::threads::with_not_found_help)?
    else {
        return Ok(Exit::Success);
    };
    let (show, now) = (&session.printer, SystemClock.now());
    if runs.is_empty() {
        show.note("no runs");
        return Ok(Exit::Success);
    }
    let mut table = Table::new(COLUMNS);
    for run in &runs {
        let plain = |text: String| (text, Style::new());
        table.add_styled_row([
            plain(pointer_text(run, "/id")),
            format_status(&pointer_text(run, "/status"), show.ascii),
            plain(pointer_text(run, "/steps")),
            plain(run["calls"].as_array().map_or(0, Vec::len).to_string()),
            plain(format_ago(&pointer_text(run, "/startedAt"), now)),
            plain(pointer_text(run, "/agent")),
        ]);
    }
    show.print(&table.render(show.width, show.ascii));
    Ok(Exit::Success)
}

fn render_run(run: &Value, show: &Printer) -> String {
    let mut fields = Fields::default();
    fields.add("id", pointer_text(run, "/id"));
    let (word, style) = format_status(&pointer_text(run, "/status"), show.ascii);
    fields.add_styled("status", word, style);
    if !run["error"].is_null() {
        fields.add("error", format!("{}: {}", pointer_text(run, "/error/code"), pointer_text(run, "/error/message")));
    }
    fields.add("thread", pointer_text(run, "/threadId"));
    fields.add("agent", pointer_text(run, "/agent"));
    fields.add("began", format_timestamp(&pointer_text(run, "/startedAt")));
    fields.add("took", run_duration(run).unwrap_or_default());
    fields.add("steps", pointer_text(run, "/steps"));
    let (read, wrote) = (pointer_text(run, "/usage/inputTokens"), pointer_text(run, "/usage/outputTokens"));
    fields.add("tokens", format!("{read} read, {wrote} written"));
    for call in run["calls"].as_array().into_iter().flatten() {
        let (word, style) = format_status(&pointer_text(call, "/status"), show.ascii);
        let waits = call["approvalId"].as_str().map(|id| format!("  toolhub approvals approve {id}"));
        let line = format!(
            "{word}  {}  {}{}",
            pointer_text(call, "/tool"),
            pointer_text(call, "/id"),
            waits.unwrap_or_default()
        );
        fields.add_styled("call", line, style);
    }
    fields.add("trace", pointer_text(run, "/traceId"));
    fields.add("answer", pointer_text(run, "/content"));
    fields.render(show.width, 0)
}

/// How long a run took that has ended.
fn run_duration(run: &Value) -> Option<String> {
    let moment = |at: &str| pointer_text(run, at).parse::<toolhub::clock::Timestamp>().ok();
    let took = moment("/endedAt")?.since(moment("/startedAt")?);
    Some(format_millis(took.as_secs_f64() * 1e3))
}

fn with_not_found_help(failure: Failure) -> Failure {
    match failure.code.as_str() {
        "run_not_found" => failure.help("toolhub runs list THREAD"),
        _ => failure,
    }
}

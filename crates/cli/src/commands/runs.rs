//! `runs`: what agents did, message by message.

use anstyle::Style;
use clap::Subcommand;
use serde_json::Value;
use toolhub::clock::{Clock as _, SystemClock};

use super::{
    chat::has_ended,
    list::{self, Paging, text},
};
use crate::{
    client::Request,
    exit::Exit,
    failure::Failure,
    output::{Column, Fields, Show, Table, ago, clock, lasting, status},
    session::Session,
};

/// Look at runs of agents, and cancel those that are open.
#[derive(Debug, Subcommand)]
pub(crate) enum Runs {
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
    Column::new("STEPS").right().goes(3),
    Column::new("CALLS").right().goes(2),
    Column::new("WHEN").goes(1),
    Column::new("AGENT").goes(4).cut(8),
];

pub(crate) async fn run(session: &Session, asked: Runs) -> Result<Exit, Failure> {
    match asked {
        Runs::List { of, paging } => {
            let thread = of.or_else(|| session.global.thread.clone()).ok_or_else(|| {
                Failure::usage("it is not said which thread")
                    .help("toolhub runs list THREAD")
                    .help("toolhub threads list")
            })?;
            made(session, &thread, &paging).await
        }
        Runs::Show { id } => {
            let answer = session.ask(Request::get(["runs", &id])).await.map_err(unknown)?;
            if session.show.json {
                session.show.document(&answer.text());
            } else {
                session.show.data(&about(&answer.value()?, &session.show));
            }
            Ok(Exit::Fine)
        }
        Runs::Cancel { id } => {
            let answer = session.ask(Request::post(["runs", &id, "cancel"])).await.map_err(unknown)?;
            if session.show.json {
                session.show.document(&answer.text());
                return Ok(Exit::Fine);
            }
            let run = ended(session, &id).await?;
            let (word, style) = status(&text(&run, "/status"), session.show.ascii);
            session.show.data(&format!("{style}{word}{style:#}  {id}"));
            if !has_ended(&run) {
                session.show.say(&format!("it was asked to stop: toolhub runs show {id}{}", session.flags()));
            }
            Ok(Exit::Fine)
        }
    }
}

/// A run as it is at its end, or after a moment: nobody waits here for ever.
async fn ended(session: &Session, id: &str) -> Result<Value, Failure> {
    let mut pause = std::time::Duration::from_millis(10);
    loop {
        let run = session.ask(Request::get(["runs", id])).await?.value()?;
        if has_ended(&run) || pause.as_secs() >= 1 {
            return Ok(run);
        }
        tokio::time::sleep(pause).await;
        pause *= 2;
    }
}

async fn made(session: &Session, thread: &str, paging: &Paging) -> Result<Exit, Failure> {
    let request = Request::get(["threads", thread, "runs"]);
    let Some(runs) = list::items(session, request, paging).await.map_err(super::threads::unknown)? else {
        return Ok(Exit::Fine);
    };
    let (show, now) = (&session.show, SystemClock.now());
    if runs.is_empty() {
        show.say("no runs");
        return Ok(Exit::Fine);
    }
    let mut table = Table::new(COLUMNS);
    for run in &runs {
        let plain = |text: String| (text, Style::new());
        table.styled([
            plain(text(run, "/id")),
            status(&text(run, "/status"), show.ascii),
            plain(text(run, "/steps")),
            plain(run["calls"].as_array().map_or(0, Vec::len).to_string()),
            plain(ago(&text(run, "/startedAt"), now)),
            plain(text(run, "/agent")),
        ]);
    }
    show.data(&table.lines(show.width, show.ascii));
    Ok(Exit::Fine)
}

fn about(run: &Value, show: &Show) -> String {
    let mut fields = Fields::default();
    fields.add("id", text(run, "/id"));
    let (word, style) = status(&text(run, "/status"), show.ascii);
    fields.styled("status", word, style);
    if !run["error"].is_null() {
        fields.add("error", format!("{}: {}", text(run, "/error/code"), text(run, "/error/message")));
    }
    fields.add("thread", text(run, "/threadId"));
    fields.add("agent", text(run, "/agent"));
    fields.add("began", clock(&text(run, "/startedAt")));
    fields.add("took", took(run).unwrap_or_default());
    fields.add("steps", text(run, "/steps"));
    let (read, wrote) = (text(run, "/usage/inputTokens"), text(run, "/usage/outputTokens"));
    fields.add("tokens", format!("{read} read, {wrote} written"));
    for call in run["calls"].as_array().into_iter().flatten() {
        let (word, style) = status(&text(call, "/status"), show.ascii);
        let waits = call["approvalId"].as_str().map(|id| format!("  toolhub approvals approve {id}"));
        let line = format!("{word}  {}  {}{}", text(call, "/tool"), text(call, "/id"), waits.unwrap_or_default());
        fields.styled("call", line, style);
    }
    fields.add("trace", text(run, "/traceId"));
    fields.add("answer", text(run, "/content"));
    fields.lines(show.width, 0)
}

/// How long a run took that has ended.
fn took(run: &Value) -> Option<String> {
    let moment = |at: &str| text(run, at).parse::<toolhub::clock::Timestamp>().ok();
    let took = moment("/endedAt")?.since(moment("/startedAt")?);
    Some(lasting(took.as_secs_f64() * 1e3))
}

fn unknown(failure: Failure) -> Failure {
    match failure.code.as_str() {
        "run_not_found" => failure.help("toolhub runs list THREAD"),
        _ => failure,
    }
}

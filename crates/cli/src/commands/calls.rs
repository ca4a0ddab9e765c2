//! `calls`: what was called and how it ended.

use clap::Subcommand;
use serde_json::Value;
use toolhub::clock::{Clock as _, SystemClock, Timestamp};

use super::{
    call,
    list::{self, Paging, text},
};
use crate::{
    client::Request,
    exit::Exit,
    failure::Failure,
    global,
    output::{Column, Fields, Show, Table, ago, clock, indented, lasting, status},
    session::Session,
};

/// Look at calls that were made, and cancel those that run.
#[derive(Debug, Subcommand)]
pub(crate) enum Calls {
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
    Column::new("TOOL").cut(6),
    Column::new("STATUS"),
    Column::new("TOOK").right().goes(3),
    Column::new("WHEN").goes(1),
    Column::new("THREAD").goes(2).cut(8),
];

pub(crate) async fn run(session: &Session, asked: Calls) -> Result<Exit, Failure> {
    match asked {
        Calls::List(asked) => made(session, asked).await,
        Calls::Show { id } => {
            let answer = session.ask(Request::get(["calls", &id])).await.map_err(unknown)?;
            if session.show.json {
                session.show.document(&answer.text());
            } else {
                session.show.data(&about(&answer.value()?, &session.show));
            }
            Ok(Exit::Fine)
        }
        Calls::Cancel { id } => {
            let answer = session.ask(Request::post(["calls", &id, "cancel"])).await.map_err(unknown)?;
            if session.show.json {
                session.show.document(&answer.text());
                return Ok(Exit::Fine);
            }
            let call = call::question::once(session, &id, call::has_ended).await?;
            let (word, style) = status(&text(&call, "/status"), session.show.ascii);
            session.show.data(&format!("{style}{word}{style:#}  {}", text(&call, "/tool")));
            if !call::has_ended(&call) {
                session.show.say(&format!("it was asked to stop: toolhub calls show {id}{}", session.flags()));
            }
            Ok(Exit::Fine)
        }
    }
}

async fn made(session: &Session, asked: List) -> Result<Exit, Failure> {
    let request = Request::get(["calls"])
        .query("tool", asked.tool.as_deref())
        .query("threadId", session.global.thread.as_deref())
        .query("status", asked.status.as_deref())
        .query("since", asked.since)
        .query("until", asked.until);
    let Some(calls) = list::items(session, request, &asked.paging).await? else { return Ok(Exit::Fine) };
    let (show, now) = (&session.show, SystemClock.now());
    if calls.is_empty() {
        show.say("no calls");
        return Ok(Exit::Fine);
    }
    let mut table = Table::new(COLUMNS);
    for call in &calls {
        let (word, style) = status(&text(call, "/status"), show.ascii);
        let plain = |text: String| (text, anstyle::Style::new());
        table.styled([
            plain(text(call, "/id")),
            plain(text(call, "/tool")),
            (word, style),
            plain(call["durationMs"].as_f64().map(lasting).unwrap_or_default()),
            plain(ago(&text(call, "/startedAt"), now)),
            plain(text(call, "/threadId")),
        ]);
    }
    show.data(&table.lines(show.width, show.ascii));
    Ok(Exit::Fine)
}

fn about(record: &Value, show: &Show) -> String {
    let mut fields = Fields::default();
    fields.add("id", text(record, "/id"));
    fields.add("tool", text(record, "/tool"));
    let (word, style) = status(&text(record, "/status"), show.ascii);
    fields.styled("status", word, style);
    if let Some(failure) = call::failed(record) {
        fields.add("error", format!("{}: {}", failure.code, text(record, "/error/detail")));
    }
    fields.add("effect", text(record, "/effect"));
    fields.add("thread", text(record, "/threadId"));
    fields.add("caller", text(record, "/caller"));
    fields.add("key", text(record, "/idempotencyKey"));
    fields.add("approval", text(record, "/approval/id"));
    fields.add("began", clock(&text(record, "/startedAt")));
    let attempts = record["attempts"].as_u64().filter(|many| *many > 1).map(|many| format!(", {many} attempts"));
    let took = record["durationMs"].as_f64().map(lasting);
    fields.add("took", took.map(|took| took + &attempts.unwrap_or_default()).unwrap_or_default());
    fields.add("trace", text(record, "/traceId"));
    fields.add("arguments", indented(&record["arguments"].to_string()));
    if !record["output"].is_null() {
        fields.add("output", indented(&record["output"].to_string()));
    }
    fields.lines(show.width, 0)
}

fn unknown(failure: Failure) -> Failure {
    match failure.code.as_str() {
        "call_not_found" => failure.help("toolhub calls list"),
        _ => failure,
    }
}

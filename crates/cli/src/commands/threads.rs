//! `threads`: conversations, and how tools stand in each.

use anstyle::Style;
use axum::http::Method;
use clap::Subcommand;
use serde_json::json;
use toolhub::clock::{Clock as _, SystemClock};

use super::list::{self, Paging, text};
use crate::{
    client::{Answer, Request},
    exit::Exit,
    failure::Failure,
    output::{Column, Fields, Table, ago, short, status},
    session::Session,
};

/// So much of what a tool was given or returned is shown.
const WIDE: usize = 200;

/// Look at conversations and their tools.
#[derive(Debug, Subcommand)]
pub(crate) enum Threads {
    /// List the threads
    #[command(alias = "ls")]
    List {
        #[command(flatten)]
        paging: Paging,
    },
    /// Show what was said in a thread
    #[command(alias = "show")]
    Messages {
        /// The thread
        id: String,
        #[command(flatten)]
        paging: Paging,
    },
    /// Print everything that is kept of a thread, as JSON
    Export {
        /// The thread
        id: String,
    },
    /// Take a thread away, with everything that is kept of it
    #[command(alias = "rm")]
    Delete {
        /// The thread
        id: String,
    },
    /// Show how each tool stands in a thread
    States {
        /// The thread
        id: String,
    },
    /// Forget what is held against tools in a thread
    Reset {
        /// The thread
        id: String,
        /// Only this tool
        tool: Option<String>,
    },
}

pub(crate) async fn run(session: &Session, asked: Threads) -> Result<Exit, Failure> {
    match asked {
        Threads::List { paging } => known(session, &paging).await,
        Threads::Messages { id, paging } => said(session, &id, &paging).await,
        Threads::Export { id } => {
            let answer = session.ask(Request::get(["threads", &id, "export"])).await.map_err(unknown)?;
            session.show.document(&answer.text());
            Ok(Exit::Fine)
        }
        Threads::Delete { id } => {
            session.ask(Request::new(Method::DELETE, ["threads", &id])).await.map_err(unknown)?;
            if session.show.json {
                session.show.document(&json!({"removed": true}).to_string());
            } else {
                session.show.say(&format!("{id} is gone, with everything that was kept of it"));
            }
            Ok(Exit::Fine)
        }
        Threads::States { id } => states(session, &id).await,
        Threads::Reset { id, tool } => {
            let request = Request::at_root(Method::POST, ["agents", &id, "tool-states", "reset"]);
            let request = request.body(tool.map_or_else(|| json!({}), |tool| json!({"toolName": tool})));
            let answer = session.ask(request).await.map_err(unknown)?;
            shown(session, &answer)?;
            let reset = answer.value()?["data"]["reset"].as_array().map_or(0, Vec::len);
            session.show.say(&format!("{reset} reset"));
            Ok(Exit::Fine)
        }
    }
}

/// How each tool stands in a thread.
pub(super) async fn states(session: &Session, thread: &str) -> Result<Exit, Failure> {
    let request = Request::at_root(Method::GET, ["agents", thread, "tool-states"]);
    shown(session, &session.ask(request).await.map_err(unknown)?)?;
    Ok(Exit::Fine)
}

async fn known(session: &Session, paging: &Paging) -> Result<Exit, Failure> {
    let Some(threads) = list::items(session, Request::get(["threads"]), paging).await? else { return Ok(Exit::Fine) };
    let (show, now) = (&session.show, SystemClock.now());
    if threads.is_empty() {
        show.say("no threads");
        return Ok(Exit::Fine);
    }
    let columns = [
        Column::new("ID"),
        Column::new("CALLS").right().goes(2),
        Column::new("LAST ACTIVE"),
        Column::new("MADE").goes(1),
    ];
    let mut table = Table::new(columns);
    for thread in &threads {
        table.row([
            text(thread, "/id"),
            text(thread, "/calls"),
            ago(&text(thread, "/lastActiveAt"), now),
            ago(&text(thread, "/createdAt"), now),
        ]);
    }
    show.data(&table.lines(show.width, show.ascii));
    Ok(Exit::Fine)
}

/// What was said in a thread, the oldest first.
async fn said(session: &Session, id: &str, paging: &Paging) -> Result<Exit, Failure> {
    let request = Request::get(["threads", id, "messages"]);
    let Some(messages) = list::items(session, request, paging).await.map_err(unknown)? else { return Ok(Exit::Fine) };
    let show = &session.show;
    if messages.is_empty() {
        show.say("nothing was said here");
    }
    let mut fields = Fields::default();
    for message in &messages {
        match text(message, "/role").as_str() {
            "user" => fields.add("you", text(message, "/content")),
            "assistant" => fields.add("agent", text(message, "/content")),
            _ => {}
        }
        for call in message["calls"].as_array().into_iter().flatten() {
            fields.add("call", format!("{} {}", text(call, "/tool"), short(&call["arguments"], WIDE, show.ascii)));
        }
        for result in message["results"].as_array().into_iter().flatten() {
            let name = if result["isError"] == true { "error" } else { "result" };
            fields.add(name, short(&result["text"], WIDE, show.ascii));
        }
    }
    show.data(&fields.lines(show.width, 0));
    Ok(Exit::Fine)
}

fn shown(session: &Session, answer: &Answer) -> Result<(), Failure> {
    let (show, now) = (&session.show, SystemClock.now());
    if show.json {
        show.document(&answer.text());
        return Ok(());
    }
    let states = answer.value()?;
    let columns = [
        Column::new("TOOL"),
        Column::new("STATUS"),
        Column::new("SINCE").goes(2),
        Column::new("REASON").goes(1).cut(16),
    ];
    let mut table = Table::new(columns);
    for (tool, state) in states["data"]["toolStates"].as_object().into_iter().flatten() {
        let plain = |text: String| (text, Style::new());
        table.styled([
            plain(tool.clone()),
            status(&text(state, "/status"), show.ascii),
            plain(ago(&text(state, "/lastUpdated"), now)),
            plain(text(state, "/reason")),
        ]);
    }
    show.data(&table.lines(show.width, show.ascii));
    Ok(())
}

pub(super) fn unknown(mut failure: Failure) -> Failure {
    match (failure.code.as_str(), failure.suggestions.first().cloned()) {
        ("thread_not_found", _) => {
            failure.help("a thread is made by the first call that names it; toolhub threads list")
        }
        ("tool_not_found", Some(closest)) if failure.help.is_empty() || !failure.help[0].contains(&closest) => {
            failure.help.clear();
            failure.help(format!("a tool with a similar name exists: `{closest}`"))
        }
        _ => failure,
    }
}

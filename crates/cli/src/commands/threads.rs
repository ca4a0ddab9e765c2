//! `threads`: conversations, and how tools stand in each.

use anstyle::Style;
use axum::http::Method;
use clap::Subcommand;
use serde_json::json;
use toolhub::clock::{Clock as _, SystemClock};

use super::paging::{self, Paging, pointer_text};
use crate::{
    client::{ApiResponse, Request},
    exit::Exit,
    failure::Failure,
    output::{Column, Fields, Table, format_ago, format_status, truncate_value},
    session::Session,
};

/// So much of what a tool was given or returned is shown.
const MAX_VALUE_WIDTH: usize = 200;

/// Look at conversations and their tools.
#[derive(Debug, Subcommand)]
pub(crate) enum ThreadsCommand {
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

pub(crate) async fn run(session: &Session, asked: ThreadsCommand) -> Result<Exit, Failure> {
    match asked {
        ThreadsCommand::List { paging } => list_threads(session, &paging).await,
        ThreadsCommand::Messages { id, paging } => show_messages(session, &id, &paging).await,
        ThreadsCommand::Export { id } => {
            let answer =
                session.send_checked(Request::get(["threads", &id, "export"])).await.map_err(with_not_found_help)?;
            session.printer.print_json(&answer.text());
            Ok(Exit::Success)
        }
        ThreadsCommand::Delete { id } => {
            session.send_checked(Request::new(Method::DELETE, ["threads", &id])).await.map_err(with_not_found_help)?;
            if session.printer.json {
                session.printer.print_json(&json!({"removed": true}).to_string());
            } else {
                session.printer.note(&format!("{id} is gone, with everything that was kept of it"));
            }
            Ok(Exit::Success)
        }
        ThreadsCommand::States { id } => show_tool_states(session, &id).await,
        ThreadsCommand::Reset { id, tool } => {
            let request = Request::at_root(Method::POST, ["agents", &id, "tool-states", "reset"]);
            let request = request.body(tool.map_or_else(|| json!({}), |tool| json!({"toolName": tool})));
            let answer = session.send_checked(request).await.map_err(with_not_found_help)?;
            print_tool_states(session, &answer)?;
            let reset = answer.json()?["data"]["reset"].as_array().map_or(0, Vec::len);
            session.printer.note(&format!("{reset} reset"));
            Ok(Exit::Success)
        }
    }
}

/// How each tool stands in a thread.
pub(super) async fn show_tool_states(session: &Session, thread: &str) -> Result<Exit, Failure> {
    let request = Request::at_root(Method::GET, ["agents", thread, "tool-states"]);
    print_tool_states(session, &session.send_checked(request).await.map_err(with_not_found_help)?)?;
    Ok(Exit::Success)
}

async fn list_threads(session: &Session, paging: &Paging) -> Result<Exit, Failure> {
    let Some(threads) = paging::fetch_items(session, Request::get(["threads"]), paging).await? else {
        return Ok(Exit::Success);
    };
    let (show, now) = (&session.printer, SystemClock.now());
    if threads.is_empty() {
        show.note("no threads");
        return Ok(Exit::Success);
    }
    let columns = [
        Column::new("ID"),
        Column::new("CALLS").align_right().drop_order(2),
        Column::new("LAST ACTIVE"),
        Column::new("MADE").drop_order(1),
    ];
    let mut table = Table::new(columns);
    for thread in &threads {
        table.add_row([
            pointer_text(thread, "/id"),
            pointer_text(thread, "/calls"),
            format_ago(&pointer_text(thread, "/lastActiveAt"), now),
            format_ago(&pointer_text(thread, "/createdAt"), now),
        ]);
    }
    show.print(&table.render(show.width, show.ascii));
    Ok(Exit::Success)
}

/// What was said in a thread, the oldest first.
async fn show_messages(session: &Session, id: &str, paging: &Paging) -> Result<Exit, Failure> {
    let request = Request::get(["threads", id, "messages"]);
    let Some(messages) = paging::fetch_items(session, request, paging).await.map_err(with_not_found_help)? else {
        return Ok(Exit::Success);
    };
    let show = &session.printer;
    if messages.is_empty() {
        show.note("nothing was said here");
    }
    let mut fields = Fields::default();
    for message in &messages {
        match pointer_text(message, "/role").as_str() {
            "user" => fields.add("you", pointer_text(message, "/content")),
            "assistant" => fields.add("agent", pointer_text(message, "/content")),
            _ => {}
        }
        for call in message["calls"].as_array().into_iter().flatten() {
            fields.add(
                "call",
                format!(
                    "{} {}",
                    pointer_text(call, "/tool"),
                    truncate_value(&call["arguments"], MAX_VALUE_WIDTH, show.ascii)
                ),
            );
        }
        for result in message["results"].as_array().into_iter().flatten() {
            let name = if result["isError"] == true { "error" } else { "result" };
            fields.add(name, truncate_value(&result["text"], MAX_VALUE_WIDTH, show.ascii));
        }
    }
    show.print(&fields.render(show.width, 0));
    Ok(Exit::Success)
}

fn print_tool_states(session: &Session, answer: &ApiResponse) -> Result<(), Failure> {
    let (show, now) = (&session.printer, SystemClock.now());
    if show.json {
        show.print_json(&answer.text());
        return Ok(());
    }
    let states = answer.json()?;
    let columns = [
        Column::new("TOOL"),
        Column::new("STATUS"),
        Column::new("SINCE").drop_order(2),
        Column::new("REASON").drop_order(1).shrink_to(16),
    ];
    let mut table = Table::new(columns);
    for (tool, state) in states["data"]["toolStates"].as_object().into_iter().flatten() {
        let plain = |text: String| (text, Style::new());
        table.add_styled_row([
            plain(tool.clone()),
            format_status(&pointer_text(state, "/status"), show.ascii),
            plain(format_ago(&pointer_text(state, "/lastUpdated"), now)),
            plain(pointer_text(state, "/reason")),
        ]);
    }
    show.print(&table.render(show.width, show.ascii));
    Ok(())
}

pub(super) fn with_not_found_help(mut failure: Failure) -> Failure {
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

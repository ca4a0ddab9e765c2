//! `threads`: lists, inspects, resets and deletes threads (conversations).

use anstyle::Style;
use axum::http::Method;
use clap::Subcommand;
use serde_json::{Value, json};
use toolhub::clock::{Clock as _, SystemClock};

use super::{
    calls,
    confirmation::confirm,
    paging::{self, Paging, pointer_text},
};
use crate::{
    client::{ApiResponse, Request},
    exit::Exit,
    failure::Failure,
    output::{Column, Fields, Printer, Table, format_ago, format_status, strip_hidden, truncate_value},
    session::Session,
};

/// Maximum width of an argument or result in the list of messages.
const MAX_VALUE_WIDTH: usize = 200;

/// List, inspect, reset and delete threads.
#[derive(Debug, Subcommand)]
pub(crate) enum ThreadsCommand {
    /// List threads
    #[command(alias = "ls")]
    List {
        #[command(flatten)]
        paging: Paging,
    },
    /// Show a thread: its messages and its calls
    #[command(alias = "get")]
    Show {
        /// Thread id
        id: String,
        /// Maximum number of messages, and of calls
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=500))]
        limit: u32,
    },
    /// Show the messages of a thread
    Messages {
        /// Thread id
        id: String,
        #[command(flatten)]
        paging: Paging,
    },
    /// Print all stored data of a thread, as JSON
    Export {
        /// Thread id
        id: String,
    },
    /// Delete a thread and all its data
    #[command(alias = "rm")]
    Delete {
        /// Thread id
        id: String,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
    /// Show the status of each tool in a thread
    States {
        /// Thread id
        id: String,
        /// Also show counters, times and dependencies
        #[arg(long)]
        full: bool,
    },
    /// Offer a thread the tools that are available now (with `auto_rebind = false`)
    Rebind {
        /// Thread id
        id: String,
    },
    /// Reset the tool statuses of a thread
    Reset {
        /// Thread id
        id: String,
        /// Only this tool
        tool: Option<String>,
    },
}

pub(crate) async fn run(session: &Session, command: ThreadsCommand) -> Result<Exit, Failure> {
    match command {
        ThreadsCommand::List { paging } => list_threads(session, &paging).await,
        ThreadsCommand::Show { id, limit } => show_thread(session, &id, limit).await,
        ThreadsCommand::Messages { id, paging } => show_messages(session, &id, &paging).await,
        ThreadsCommand::Export { id } => {
            let response =
                session.send_checked(Request::get(["threads", &id, "export"])).await.map_err(with_not_found_help)?;
            session.printer.print_json(&response.text());
            Ok(Exit::Success)
        }
        ThreadsCommand::Delete { id, yes } => {
            if !yes && !confirm_deletion(session, &id).await? {
                session.printer.note("nothing was deleted");
                return Ok(Exit::Success);
            }
            session.send_checked(Request::new(Method::DELETE, ["threads", &id])).await.map_err(with_not_found_help)?;
            if session.printer.json {
                session.printer.print_json(&json!({"removed": true}).to_string());
            } else {
                session.printer.note(&format!("deleted {id} and all its data"));
            }
            Ok(Exit::Success)
        }
        ThreadsCommand::States { id, full: false } => {
            print_tool_states(session, &fetch_tool_states(session, &id).await?)?;
            Ok(Exit::Success)
        }
        ThreadsCommand::States { id, full: true } => show_state_details(session, &id).await,
        ThreadsCommand::Rebind { id } => {
            let response =
                session.send_checked(Request::post(["threads", &id, "rebind"])).await.map_err(with_not_found_help)?;
            if session.printer.json {
                session.printer.print_json(&response.text());
                return Ok(Exit::Success);
            }
            for tool in response.json()?["tools"].as_array().into_iter().flatten() {
                session.printer.print(&strip_hidden(tool.as_str().unwrap_or_default()));
            }
            Ok(Exit::Success)
        }
        ThreadsCommand::Reset { id, tool } => {
            let request = Request::at_root(Method::POST, ["agents", &id, "tool-states", "reset"]);
            let request = request.body(tool.map_or_else(|| json!({}), |tool| json!({"toolName": tool})));
            let response = session.send_checked(request).await.map_err(with_not_found_help)?;
            print_tool_states(session, &response)?;
            let reset = response.json()?["data"]["reset"].as_array().map_or(0, Vec::len);
            session.printer.note(&format!("reset {reset} tool{}", if reset == 1 { "" } else { "s" }));
            Ok(Exit::Success)
        }
    }
}

/// The status of each tool in a thread.
pub(super) async fn fetch_tool_states(session: &Session, thread: &str) -> Result<ApiResponse, Failure> {
    let request = Request::at_root(Method::GET, ["agents", thread, "tool-states"]);
    session.send_checked(request).await.map_err(with_not_found_help)
}

/// Prints status, reason, counters, times and dependencies of each tool in a thread.
async fn show_state_details(session: &Session, thread: &str) -> Result<Exit, Failure> {
    let request = Request::get(["threads", thread, "tool-states"]).query("detail", Some("full"));
    let response = session.send_checked(request).await.map_err(with_not_found_help)?;
    if session.printer.json {
        session.printer.print_json(&response.text());
    } else {
        for line in pointer_text(&response.json()?, "/data/details").lines() {
            session.printer.print(&strip_hidden(line));
        }
    }
    Ok(Exit::Success)
}

async fn list_threads(session: &Session, paging: &Paging) -> Result<Exit, Failure> {
    let Some(threads) = paging::fetch_items(session, Request::get(["threads"]), paging).await? else {
        return Ok(Exit::Success);
    };
    let (printer, now) = (&session.printer, SystemClock.now());
    if threads.is_empty() {
        printer.note("no threads");
        return Ok(Exit::Success);
    }
    let columns = [
        Column::new("ID"),
        Column::new("CALLS").align_right().drop_order(2),
        Column::new("LAST ACTIVE"),
        Column::new("CREATED").drop_order(1),
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
    printer.print(&table.render(printer.width, printer.ascii));
    Ok(Exit::Success)
}

/// Prints the messages of a thread, oldest first.
async fn show_messages(session: &Session, id: &str, paging: &Paging) -> Result<Exit, Failure> {
    let request = Request::get(["threads", id, "messages"]);
    let Some(messages) = paging::fetch_items(session, request, paging).await.map_err(with_not_found_help)? else {
        return Ok(Exit::Success);
    };
    let printer = &session.printer;
    if messages.is_empty() {
        printer.note("no messages");
    }
    printer.print(&render_messages(&messages, printer));
    Ok(Exit::Success)
}

fn render_messages(messages: &[Value], printer: &Printer) -> String {
    let mut fields = Fields::default();
    for message in messages {
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
                    truncate_value(&call["arguments"], MAX_VALUE_WIDTH, printer.ascii)
                ),
            );
        }
        for result in message["results"].as_array().into_iter().flatten() {
            let name = if result["isError"] == true { "error" } else { "result" };
            fields.add(name, truncate_value(&result["text"], MAX_VALUE_WIDTH, printer.ascii));
        }
    }
    fields.render(printer.width, 0)
}

/// Prints a thread: when it was used, its messages, and its latest calls.
async fn show_thread(session: &Session, id: &str, limit: u32) -> Result<Exit, Failure> {
    let get = async |request: Request| session.send_checked(request).await.map_err(with_not_found_help);
    let thread = get(Request::get(["threads", id])).await?.json()?;
    let messages = get(Request::get(["threads", id, "messages"]).query("limit", Some(limit))).await?;
    let calls = get(Request::get(["calls"]).query("threadId", Some(id)).query("limit", Some(limit))).await?;
    let (printer, now) = (&session.printer, SystemClock.now());
    if printer.json {
        let document = json!({"thread": thread, "messages": messages.items()?, "calls": calls.items()?});
        printer.print_json(&document.to_string());
        return Ok(Exit::Success);
    }
    let mut fields = Fields::default();
    fields.add("id", pointer_text(&thread, "/id"));
    fields.add("created", format_ago(&pointer_text(&thread, "/createdAt"), now));
    fields.add("last active", format_ago(&pointer_text(&thread, "/lastActiveAt"), now));
    printer.print(&fields.render(printer.width, 0));
    if !messages.items()?.is_empty() {
        printer.print(&format!("\n{}", render_messages(&messages.items()?, printer)));
    }
    match calls.items()?.as_slice() {
        [] => printer.note("no calls"),
        items => printer.print(&format!("\n{}", calls::render_table(items, printer))),
    }
    if messages.next_cursor().is_some() {
        printer.note(&format!("more messages: toolhub threads messages {id}{}", session.target_flags()));
    }
    if calls.next_cursor().is_some() {
        printer.note(&format!("more calls: toolhub calls list --thread {id}{}", session.target_flags()));
    }
    Ok(Exit::Success)
}

/// Asks whether a thread is to be deleted.
async fn confirm_deletion(session: &Session, id: &str) -> Result<bool, Failure> {
    let thread = session.send_checked(Request::get(["threads", id])).await.map_err(with_not_found_help)?.json()?;
    let refusal = Failure::usage(format!("deleting `{id}` and all its data needs a confirmation"))
        .help(format!("toolhub threads delete {id} --yes"));
    let calls = pointer_text(&thread, "/calls");
    let question = format!("delete `{id}` with its messages, its state and its {calls} calls?");
    confirm(session, &question, refusal).await
}

pub(super) fn print_tool_states(session: &Session, response: &ApiResponse) -> Result<(), Failure> {
    let (printer, now) = (&session.printer, SystemClock.now());
    if printer.json {
        printer.print_json(&response.text());
        return Ok(());
    }
    let states = response.json()?;
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
            format_status(&pointer_text(state, "/status"), printer.ascii),
            plain(format_ago(&pointer_text(state, "/lastUpdated"), now)),
            plain(pointer_text(state, "/reason")),
        ]);
    }
    printer.print(&table.render(printer.width, printer.ascii));
    Ok(())
}

pub(super) fn with_not_found_help(mut failure: Failure) -> Failure {
    match (failure.code.as_str(), failure.suggestions.first().cloned()) {
        ("thread_not_found", _) => {
            failure.help("a thread is created by the first call that names it").help("toolhub threads list")
        }
        ("tool_not_found", Some(closest)) if failure.help.is_empty() || !failure.help[0].contains(&closest) => {
            failure.help.clear();
            failure.help(format!("a tool with a similar name exists: `{closest}`"))
        }
        _ => failure,
    }
}

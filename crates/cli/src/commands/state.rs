//! `state`: lists, reads and changes the state of tools.
//!
//! `past` is about earlier versions, `transfer` about files. A state is addressed as `thread/state`, or `~/state` if all threads share it, and by its kind, which defaults to `business`.

mod past;
mod transfer;

use std::{io::Read as _, time::Duration};

use axum::http::Method;
use clap::Subcommand;
use serde_json::{Map, Value, json};
use toolhub::clock::{Clock as _, SystemClock};

use super::paging::{self, Paging, pointer_text};
use crate::{
    arguments,
    client::{ApiResponse, Request},
    exit::Exit,
    failure::Failure,
    global,
    output::{Column, Table, format_ago, format_remaining, indent_json},
    session::Session,
};

/// List, read and change the state of tools.
#[derive(Debug, Subcommand)]
pub(crate) enum StateCommand {
    /// List states; with --thread, only those of the thread
    #[command(alias = "list")]
    Ls {
        /// Only states with this name
        #[arg(long, value_name = "STATE")]
        tool: Option<String>,
        #[command(flatten)]
        paging: Paging,
    },
    /// Print the data of a state
    Get(StateRef),
    /// Create or replace a state
    Set(Set),
    /// List what happened to a state, newest first
    History(past::Past),
    /// List the stored versions of a state, newest first
    Versions(past::Past),
    /// Write a new version with the data of an old one
    Rollback(past::Rollback),
    /// Print states as JSON lines; with --thread, only those of the thread
    Export(transfer::Export),
    /// Write states from JSON lines
    Import(transfer::Import),
    /// Remove a state
    #[command(alias = "delete")]
    Rm(StateRef),
}

/// A state.
#[derive(Debug, clap::Args)]
pub(crate) struct StateRef {
    /// State: thread/state, or ~/state if all threads share it
    #[arg(value_name = "THREAD/STATE")]
    context: String,
    /// Kind of the state
    #[arg(long, default_value = "business", value_parser = ["business", "session", "cache", "connection"])]
    kind: String,
}

/// Create or replace a state.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  toolhub state set demo/counter '{\"total\": 7}'
  toolhub state set demo/profile name=Ann age:=41 --merge
  toolhub state set demo/profile - < profile.json")]
pub(crate) struct Set {
    #[command(flatten)]
    state: StateRef,
    /// JSON object; key=value and key:=JSON; or - for stdin
    #[arg(required = true, value_name = "DATA")]
    data: Vec<String>,
    /// Expire after this time, e.g. 1h
    #[arg(long, value_name = "TIME", value_parser = global::parse_duration)]
    ttl: Option<Duration>,
    /// Merge into the existing data; null removes a key
    #[arg(long, conflicts_with = "ttl")]
    merge: bool,
    /// Only if the state still has this version
    #[arg(long, value_name = "N")]
    if_version: Option<u64>,
}

const COLUMNS: [Column; 6] = [
    Column::new("STATE"),
    Column::new("KIND"),
    Column::new("VERSION").align_right().drop_order(2),
    Column::new("BYTES").align_right().drop_order(3),
    Column::new("CHANGED").drop_order(1),
    Column::new("EXPIRES").drop_order(4),
];

pub(crate) async fn run(session: &Session, command: StateCommand) -> Result<Exit, Failure> {
    match command {
        StateCommand::Ls { tool, paging } => list_states(session, tool.as_deref(), &paging).await,
        StateCommand::Get(state) => {
            let response =
                session.send_checked(state_request(Method::GET, &state)).await.map_err(with_not_found_help)?;
            if session.printer.json {
                session.printer.print_json(&response.text());
            } else {
                let entry = response.json()?;
                session.printer.print_untrusted(&indent_json(&entry["data"].to_string()));
                session.printer.note_verbose(&format!("version {}", entry["version"]));
            }
            Ok(Exit::Success)
        }
        StateCommand::Set(set) => set_state(session, &set).await,
        StateCommand::History(args) => past::history(session, &args).await,
        StateCommand::Versions(args) => past::versions(session, &args).await,
        StateCommand::Rollback(args) => past::rollback(session, &args).await,
        StateCommand::Export(args) => transfer::export(session, &args).await,
        StateCommand::Import(args) => transfer::import(session, &args).await,
        StateCommand::Rm(state) => {
            session.send_checked(state_request(Method::DELETE, &state)).await.map_err(with_not_found_help)?;
            if session.printer.json {
                session.printer.print_json(&json!({"removed": true}).to_string());
            } else {
                session.printer.note(&format!("removed {}", state.context));
            }
            Ok(Exit::Success)
        }
    }
}

fn state_request(method: Method, state: &StateRef) -> Request {
    Request::new(method, ["state", "contexts", &state.context, &state.kind])
}

/// A request below a state, such as for its history.
fn state_request_below(method: Method, state: &StateRef, below: &str) -> Request {
    Request::new(method, ["state", "contexts", &state.context, &state.kind, below])
}

async fn set_state(session: &Session, set: &Set) -> Result<Exit, Failure> {
    let data = parse_data(&set.data)?;
    let tag = match set.if_version {
        Some(version) => Some(tag_of_version(session, &set.state, version).await?),
        None => None,
    };
    let request = if set.merge {
        state_request(Method::PATCH, &set.state).body(json!({ "data": data }))
    } else {
        let mut body = json!({ "data": data });
        if let Some(ttl) = set.ttl {
            body["ttl"] = format!("{}ms", ttl.as_millis()).into();
        }
        state_request(Method::PUT, &set.state).body(body)
    };
    let response = session.send_checked(request.header("if-match", tag)).await.map_err(with_not_found_help)?;
    print_version(session, &set.state, &response)
}

/// The tag of the state if it has this version; otherwise one that matches nothing, so that the write is refused.
async fn tag_of_version(session: &Session, state: &StateRef, version: u64) -> Result<String, Failure> {
    let response = session.send_checked(state_request(Method::GET, state)).await.map_err(with_not_found_help)?;
    let entry = response.json()?;
    let tag = entry["etag"].as_str().filter(|_| entry["version"] == version);
    Ok(tag.map_or_else(|| format!("{version}-{:016x}", 0), str::to_owned))
}

fn print_version(session: &Session, state: &StateRef, response: &ApiResponse) -> Result<Exit, Failure> {
    if session.printer.json {
        session.printer.print_json(&response.text());
    } else {
        let entry = response.json()?;
        session.printer.print(&format!("{}  version {}", state.context, entry["version"]));
    }
    Ok(Exit::Success)
}

fn parse_data(args: &[String]) -> Result<Map<String, Value>, Failure> {
    match args {
        [one] if one == "-" => {
            let mut text = String::new();
            let read_failure = |error| Failure::usage(format!("cannot read stdin: {error}"));
            std::io::stdin().read_to_string(&mut text).map_err(read_failure)?;
            arguments::parse_object("stdin", &text)
        }
        [one] if one.trim_start().starts_with(['{', '[', '"']) => arguments::parse_object("the data", one),
        pairs => arguments::parse_untyped(pairs),
    }
}

async fn list_states(session: &Session, tool: Option<&str>, paging: &Paging) -> Result<Exit, Failure> {
    let request =
        Request::get(["state", "contexts"]).query("threadId", session.global.thread.as_deref()).query("tool", tool);
    let Some(contexts) = paging::fetch_items(session, request, paging).await? else { return Ok(Exit::Success) };
    let (printer, now) = (&session.printer, SystemClock.now());
    if contexts.is_empty() {
        printer.note("no states");
        return Ok(Exit::Success);
    }
    let mut table = Table::new(COLUMNS);
    for context in &contexts {
        for (kind, info) in context["kinds"].as_object().into_iter().flatten() {
            let expires_at = first_text(info, ["/expiresAt", "/expires"]);
            table.add_row([
                first_text(context, ["/contextId", "/id"]),
                kind.clone(),
                pointer_text(info, "/version"),
                pointer_text(info, "/bytes"),
                format_ago(&first_text(context, ["/updatedAt", "/updated"]), now),
                if expires_at.is_empty() { expires_at } else { format_remaining(&expires_at, now) },
            ]);
        }
    }
    printer.print(&table.render(printer.width, printer.ascii));
    Ok(Exit::Success)
}

fn first_text(value: &Value, pointers: [&str; 2]) -> String {
    let found = pointers.iter().map(|pointer| pointer_text(value, pointer)).find(|text| !text.is_empty());
    found.unwrap_or_default()
}

fn with_not_found_help(failure: Failure) -> Failure {
    match failure.code.as_str() {
        // The only `not_found` of these routes is an invalid state name; the API's hint is about its URL encoding.
        "not_found" => {
            let mut failure = failure;
            failure.help = vec!["write it like demo/notes; `toolhub state ls` lists all".into()];
            failure
        }
        "state_not_found" => failure.help("toolhub state ls"),
        "precondition_failed" | "state_conflict" => failure.help("read the current version: toolhub state get"),
        _ => failure,
    }
}

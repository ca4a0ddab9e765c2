//! `state`: what tools remember.
//!
//! A state is named `thread/state`, or `~/state` where all threads share it; and its kind, which is `business` unless said
//! otherwise.

use std::{io::Read as _, time::Duration};

use axum::http::Method;
use clap::Subcommand;
use serde_json::{Map, Value, json};
use toolhub::clock::{Clock as _, SystemClock};

use super::{
    call,
    paging::{self, Paging, pointer_text},
};
use crate::{
    client::{ApiResponse, Request},
    exit::Exit,
    failure::Failure,
    global,
    output::{Column, Table, format_ago, format_remaining, indent_json},
    session::Session,
};

/// Look at what tools remember, and change it.
#[derive(Debug, Subcommand)]
pub(crate) enum StateCommand {
    /// List what is remembered; with --thread, in that thread
    #[command(alias = "list")]
    Ls {
        /// Only states of this name
        #[arg(long, value_name = "STATE")]
        tool: Option<String>,
        #[command(flatten)]
        paging: Paging,
    },
    /// Print what a state holds
    Get(StateRef),
    /// Put something into a state, whether it is there or not
    Set(Set),
    /// Remove a state
    #[command(alias = "delete")]
    Rm(StateRef),
}

/// One state.
#[derive(Debug, clap::Args)]
pub(crate) struct StateRef {
    /// The state: thread/state, or ~/state where all threads share it
    #[arg(value_name = "THREAD/STATE")]
    context: String,
    /// Its kind
    #[arg(long, default_value = "business", value_parser = ["business", "session", "cache", "connection"])]
    kind: String,
}

/// Put something into a state.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  toolhub state set demo/counter '{\"total\": 7}'
  toolhub state set demo/profile name=Ann age:=41 --merge
  toolhub state set demo/profile - < profile.json")]
pub(crate) struct Set {
    #[command(flatten)]
    named: StateRef,
    /// A JSON object; key=value and key:=JSON; or - for stdin
    #[arg(required = true, value_name = "DATA")]
    data: Vec<String>,
    /// Forget it after this time, such as 1h
    #[arg(long, value_name = "TIME", value_parser = global::time)]
    ttl: Option<Duration>,
    /// Change only what is named; null removes
    #[arg(long, conflicts_with = "ttl")]
    merge: bool,
    /// Only if it still has this version
    #[arg(long, value_name = "N")]
    if_version: Option<u64>,
}

const COLUMNS: [Column; 6] = [
    Column::new("STATE"),
    Column::new("KIND"),
    Column::new("VERSION").align_right().drop_order(2),
    Column::new("BYTES").align_right().drop_order(3),
    Column::new("CHANGED").drop_order(1),
    Column::new("LEFT").drop_order(4),
];

pub(crate) async fn run(session: &Session, asked: StateCommand) -> Result<Exit, Failure> {
    match asked {
        StateCommand::Ls { tool, paging } => list_states(session, tool.as_deref(), &paging).await,
        StateCommand::Get(named) => {
            let answer = session.send_checked(state_request(Method::GET, &named)).await.map_err(with_not_found_help)?;
            if session.printer.json {
                session.printer.print_json(&answer.text());
            } else {
                let entry = answer.json()?;
                session.printer.print_untrusted(&indent_json(&entry["data"].to_string()));
                session.printer.note_verbose(&format!("version {}", entry["version"]));
            }
            Ok(Exit::Success)
        }
        StateCommand::Set(set) => set_state(session, &set).await,
        StateCommand::Rm(named) => {
            session.send_checked(state_request(Method::DELETE, &named)).await.map_err(with_not_found_help)?;
            if session.printer.json {
                session.printer.print_json(&json!({"removed": true}).to_string());
            } else {
                session.printer.note(&format!("{} is gone", named.context));
            }
            Ok(Exit::Success)
        }
    }
}

fn state_request(method: Method, named: &StateRef) -> Request {
    Request::new(method, ["state", "contexts", &named.context, &named.kind])
}

async fn set_state(session: &Session, set: &Set) -> Result<Exit, Failure> {
    let data = parse_data(&set.data)?;
    let version = set.if_version.map(|version| format!("\"{version}\""));
    let request = if set.merge {
        state_request(Method::PATCH, &set.named).body(json!({ "data": data }))
    } else {
        let mut body = json!({ "data": data });
        if let Some(ttl) = set.ttl {
            body["ttl"] = format!("{}ms", ttl.as_millis()).into();
        }
        state_request(Method::PUT, &set.named).body(body)
    };
    let answer = session.send_checked(request.header("if-match", version)).await.map_err(with_not_found_help)?;
    print_version(session, &set.named, &answer)
}

fn print_version(session: &Session, named: &StateRef, answer: &ApiResponse) -> Result<Exit, Failure> {
    if session.printer.json {
        session.printer.print_json(&answer.text());
    } else {
        let entry = answer.json()?;
        session.printer.print(&format!("{}  version {}", named.context, entry["version"]));
    }
    Ok(Exit::Success)
}

fn parse_data(words: &[String]) -> Result<Map<String, Value>, Failure> {
    match words {
        [one] if one == "-" => {
            let mut text = String::new();
            let cannot = |error| Failure::usage(format!("stdin cannot be read: {error}"));
            std::io::stdin().read_to_string(&mut text).map_err(cannot)?;
            call::parse_object("stdin", &text)
        }
        [one] if one.trim_start().starts_with(['{', '[', '"']) => call::parse_object("the data", one),
        pairs => call::parse_untyped(pairs),
    }
}

async fn list_states(session: &Session, tool: Option<&str>, paging: &Paging) -> Result<Exit, Failure> {
    let request =
        Request::get(["state", "contexts"]).query("threadId", session.global.thread.as_deref()).query("tool", tool);
    let Some(contexts) = paging::fetch_items(session, request, paging).await? else { return Ok(Exit::Success) };
    let (show, now) = (&session.printer, SystemClock.now());
    if contexts.is_empty() {
        show.note("nothing is remembered");
        return Ok(Exit::Success);
    }
    let mut table = Table::new(COLUMNS);
    for context in &contexts {
        for (kind, about) in context["kinds"].as_object().into_iter().flatten() {
            let left = first_text(about, ["/expiresAt", "/expires"]);
            table.add_row([
                first_text(context, ["/contextId", "/id"]),
                kind.clone(),
                pointer_text(about, "/version"),
                pointer_text(about, "/bytes"),
                format_ago(&first_text(context, ["/updatedAt", "/updated"]), now),
                if left.is_empty() { left } else { format_remaining(&left, now) },
            ]);
        }
    }
    show.print(&table.render(show.width, show.ascii));
    Ok(Exit::Success)
}

fn first_text(value: &Value, pointers: [&str; 2]) -> String {
    let found = pointers.iter().map(|pointer| pointer_text(value, pointer)).find(|text| !text.is_empty());
    found.unwrap_or_default()
}

fn with_not_found_help(failure: Failure) -> Failure {
    match failure.code.as_str() {
        "state_not_found" if failure.message.contains("is no context id") => {
            let mut failure = failure;
            failure.help = vec!["write it like demo/notes; `toolhub state ls` lists all".into()];
            failure
        }
        "state_not_found" => failure.help("toolhub state ls"),
        "precondition_failed" | "state_conflict" => failure.help("look at it again: toolhub state get"),
        _ => failure,
    }
}

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
    list::{self, Paging, text},
};
use crate::{
    client::{Answer, Request},
    exit::Exit,
    failure::Failure,
    global,
    output::{Column, Table, ago, indented, until},
    session::Session,
};

/// Look at what tools remember, and change it.
#[derive(Debug, Subcommand)]
pub(crate) enum State {
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
    Get(Named),
    /// Put something into a state, whether it is there or not
    Set(Set),
    /// Remove a state
    #[command(alias = "delete")]
    Rm(Named),
}

/// One state.
#[derive(Debug, clap::Args)]
pub(crate) struct Named {
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
    named: Named,
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
    Column::new("VERSION").right().goes(2),
    Column::new("BYTES").right().goes(3),
    Column::new("CHANGED").goes(1),
    Column::new("LEFT").goes(4),
];

pub(crate) async fn run(session: &Session, asked: State) -> Result<Exit, Failure> {
    match asked {
        State::Ls { tool, paging } => kept(session, tool.as_deref(), &paging).await,
        State::Get(named) => {
            let answer = session.ask(request(Method::GET, &named)).await.map_err(unknown)?;
            if session.show.json {
                session.show.document(&answer.text());
            } else {
                let entry = answer.value()?;
                session.show.foreign(&indented(&entry["data"].to_string()));
                session.show.whisper(&format!("version {}", entry["version"]));
            }
            Ok(Exit::Fine)
        }
        State::Set(set) => put(session, &set).await,
        State::Rm(named) => {
            session.ask(request(Method::DELETE, &named)).await.map_err(unknown)?;
            if session.show.json {
                session.show.document(&json!({"removed": true}).to_string());
            } else {
                session.show.say(&format!("{} is gone", named.context));
            }
            Ok(Exit::Fine)
        }
    }
}

fn request(method: Method, named: &Named) -> Request {
    Request::new(method, ["state", "contexts", &named.context, &named.kind])
}

async fn put(session: &Session, set: &Set) -> Result<Exit, Failure> {
    let data = data(&set.data)?;
    let version = set.if_version.map(|version| format!("\"{version}\""));
    let request = if set.merge {
        request(Method::PATCH, &set.named).body(json!({ "data": data }))
    } else {
        let mut body = json!({ "data": data });
        if let Some(ttl) = set.ttl {
            body["ttl"] = format!("{}ms", ttl.as_millis()).into();
        }
        request(Method::PUT, &set.named).body(body)
    };
    let answer = session.ask(request.header("if-match", version)).await.map_err(unknown)?;
    told(session, &set.named, &answer)
}

fn told(session: &Session, named: &Named, answer: &Answer) -> Result<Exit, Failure> {
    if session.show.json {
        session.show.document(&answer.text());
    } else {
        let entry = answer.value()?;
        session.show.data(&format!("{}  version {}", named.context, entry["version"]));
    }
    Ok(Exit::Fine)
}

fn data(words: &[String]) -> Result<Map<String, Value>, Failure> {
    match words {
        [one] if one == "-" => {
            let mut text = String::new();
            let cannot = |error| Failure::usage(format!("stdin cannot be read: {error}"));
            std::io::stdin().read_to_string(&mut text).map_err(cannot)?;
            call::object("stdin", &text)
        }
        [one] if one.trim_start().starts_with(['{', '[', '"']) => call::object("the data", one),
        pairs => call::untyped(pairs),
    }
}

async fn kept(session: &Session, tool: Option<&str>, paging: &Paging) -> Result<Exit, Failure> {
    let request =
        Request::get(["state", "contexts"]).query("threadId", session.global.thread.as_deref()).query("tool", tool);
    let Some(contexts) = list::items(session, request, paging).await? else { return Ok(Exit::Fine) };
    let (show, now) = (&session.show, SystemClock.now());
    if contexts.is_empty() {
        show.say("nothing is remembered");
        return Ok(Exit::Fine);
    }
    let mut table = Table::new(COLUMNS);
    for context in &contexts {
        for (kind, about) in context["kinds"].as_object().into_iter().flatten() {
            let left = first(about, ["/expiresAt", "/expires"]);
            table.row([
                first(context, ["/contextId", "/id"]),
                kind.clone(),
                text(about, "/version"),
                text(about, "/bytes"),
                ago(&first(context, ["/updatedAt", "/updated"]), now),
                if left.is_empty() { left } else { until(&left, now) },
            ]);
        }
    }
    show.data(&table.lines(show.width, show.ascii));
    Ok(Exit::Fine)
}

fn first(value: &Value, pointers: [&str; 2]) -> String {
    let found = pointers.iter().map(|pointer| text(value, pointer)).find(|text| !text.is_empty());
    found.unwrap_or_default()
}

fn unknown(failure: Failure) -> Failure {
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

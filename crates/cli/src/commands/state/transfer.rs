//! `state export` and `state import`: states as JSON lines.
//!
//! A line has `contextId`, `kind`, `data` and, if the state expires, `expiresAt`. Only kind `business`: the others belong to
//! a running system. Import replaces a state of the same name.

use std::{io::Read as _, path::PathBuf};

use axum::http::Method;
use serde_json::{Value, json};
use toolhub::clock::{Clock as _, SystemClock, Timestamp};

use super::super::paging::{self, Paging};
use crate::{client::Request, exit::Exit, failure::Failure, session::Session};

const KIND: &str = "business";

/// Print states as JSON lines; with --thread, only those of the thread.
#[derive(Debug, clap::Args)]
pub(crate) struct Export {
    /// Only states with this name
    #[arg(long, value_name = "STATE")]
    tool: Option<String>,
}

/// Write states from JSON lines.
#[derive(Debug, clap::Args)]
pub(crate) struct Import {
    /// File with the output of `state export`; - for stdin
    file: PathBuf,
}

pub(super) async fn export(session: &Session, args: &Export) -> Result<Exit, Failure> {
    let list = Request::get(["state", "contexts"])
        .query("threadId", session.global.thread.as_deref())
        .query("tool", args.tool.as_deref());
    let contexts = paging::read_items(session, list, &Paging::all()).await?;
    let mut exported = 0;
    for context in contexts.iter().filter(|context| context["kinds"][KIND].is_object()) {
        let id = super::first_text(context, ["/contextId", "/id"]);
        let response = session.client().await?.send(Request::get(["state", "contexts", &id, KIND])).await?;
        // It may have been removed or have expired since it was listed.
        if response.status == 404 {
            continue;
        }
        let entry = response.error_for_status()?.json()?;
        let mut line = json!({"contextId": id, "kind": KIND, "data": entry["data"]});
        if !entry["expiresAt"].is_null() {
            line["expiresAt"] = entry["expiresAt"].clone();
        }
        session.printer.print(&line.to_string());
        exported += 1;
    }
    session.printer.note(&format!("{exported} states"));
    Ok(Exit::Success)
}

pub(super) async fn import(session: &Session, args: &Import) -> Result<Exit, Failure> {
    let mut text = String::new();
    let unreadable = |error| Failure::usage(format!("cannot read {}: {error}", args.file.display()));
    if args.file.as_os_str() == "-" {
        std::io::stdin().read_to_string(&mut text).map_err(unreadable)?;
    } else {
        text = std::fs::read_to_string(&args.file).map_err(unreadable)?;
    }
    // All lines are checked before the first one is written.
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let requests = lines.map(|(at, line)| to_request(at + 1, line)).collect::<Result<Vec<_>, _>>()?;
    let mut imported = 0;
    for request in requests.into_iter().flatten() {
        session.send_checked(request).await?;
        imported += 1;
    }
    if session.printer.json {
        session.printer.print_json(&json!({ "imported": imported }).to_string());
    } else {
        session.printer.note(&format!("{imported} states"));
    }
    Ok(Exit::Success)
}

/// The request that writes the state of a line; `None` if it has expired.
fn to_request(number: usize, line: &str) -> Result<Option<Request>, Failure> {
    let invalid =
        |why: &str| Failure::usage(format!("line {number} {why}")).help("`toolhub state export` shows the format");
    let entry: Value = serde_json::from_str(line).map_err(|error| invalid(&format!("is not JSON: {error}")))?;
    let context = entry["contextId"].as_str().ok_or_else(|| invalid("has no `contextId`"))?;
    if !entry["data"].is_object() {
        return Err(invalid("has no object `data`"));
    }
    if entry.get("kind").is_some_and(|kind| kind != KIND) {
        return Err(invalid("is not of kind `business`"));
    }
    let mut body = json!({"data": entry["data"]});
    if let Some(expires) = entry["expiresAt"].as_str() {
        let expires: Timestamp = expires.parse().map_err(|_| invalid("has an invalid `expiresAt`"))?;
        let left = expires.since(SystemClock.now());
        if left.is_zero() {
            return Ok(None);
        }
        body["ttl"] = format!("{}ms", left.as_millis().max(1)).into();
    }
    Ok(Some(Request::new(Method::PUT, ["state", "contexts", context, KIND]).body(body)))
}

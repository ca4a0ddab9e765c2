//! `tools reset` and `tools maintenance`: what an operator says about a tool.

use axum::http::Method;
use serde_json::{Value, json};
use toolhub::clock::{Clock as _, SystemClock, Timestamp};

use super::{super::paging::pointer_text, with_help};
use crate::{
    client::{ApiResponse, Request},
    exit::Exit,
    failure::Failure,
    global,
    output::{format_status, strip_control_chars},
    session::Session,
};

/// Forget what is held against a tool.
#[derive(Debug, clap::Args)]
pub(crate) struct Reset {
    /// The tool
    tool: String,
}

/// Take a tool out of service, or bring it back.
#[derive(Debug, clap::Args)]
pub(crate) struct Maintenance {
    /// The tool
    tool: String,
    /// Why; callers are told
    #[arg(long, value_name = "TEXT", conflicts_with = "off")]
    reason: Option<String>,
    /// When it ends by itself: a time from now such as 2h, or a moment such as 2027-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = moment, conflicts_with = "off")]
    until: Option<Timestamp>,
    /// Bring it back
    #[arg(long)]
    off: bool,
}

/// A moment, or how far away it is.
fn moment(text: &str) -> Result<Timestamp, String> {
    if let Ok(moment) = text.parse() {
        return Ok(moment);
    }
    let time = global::time(text);
    time.map(|time| SystemClock.now() + time).map_err(|why| format!("{why}; or a moment such as 2027-01-31T12:00:00Z"))
}

pub(super) async fn reset(session: &Session, asked: &Reset) -> Result<Exit, Failure> {
    let wrong = |failure| with_help(failure, "reset", &asked.tool);
    if let Some(thread) = &session.global.thread {
        let path = ["agents", thread, "tool-states", "reset"];
        let request = Request::at_root(Method::POST, path).body(json!({"toolName": asked.tool}));
        let answer = session.send_checked(request).await.map_err(wrong)?;
        let states = answer.json()?;
        let state = states["data"]["toolStates"][&asked.tool].clone();
        return print_status(session, &answer, &asked.tool, &state);
    }
    let answer = session.send_checked(Request::post(["tools", &asked.tool, "reset"])).await.map_err(wrong)?;
    let state = answer.json()?;
    print_status(session, &answer, &asked.tool, &state)
}

pub(super) async fn set_maintenance(session: &Session, asked: &Maintenance) -> Result<Exit, Failure> {
    let body = if asked.off {
        json!({"status": "available"})
    } else {
        let mut body = json!({"status": "maintenance"});
        if let Some(reason) = &asked.reason {
            body["reason"] = reason.as_str().into();
        }
        if let Some(until) = asked.until {
            body["until"] = until.to_string().into();
        }
        body
    };
    let request = Request::new(Method::PUT, ["tools", &asked.tool, "status"]).body(body);
    let answer =
        session.send_checked(request).await.map_err(|failure| with_help(failure, "maintenance", &asked.tool))?;
    let state = answer.json()?;
    print_status(session, &answer, &asked.tool, &state)
}

/// How the tool stands now.
fn print_status(session: &Session, answer: &ApiResponse, tool: &str, state: &Value) -> Result<Exit, Failure> {
    let show = &session.printer;
    if show.json {
        show.print_json(&answer.text());
    } else {
        let (word, style) = format_status(&pointer_text(state, "/status"), show.ascii);
        show.print(&format!("{}  {style}{word}{style:#}", strip_control_chars(tool)));
        show.note(&strip_control_chars(&pointer_text(state, "/reason")));
    }
    Ok(Exit::Success)
}

//! `tools reset` and `tools maintenance`: what an operator says about a tool.

use axum::http::Method;
use serde_json::{Value, json};
use toolhub::clock::{Clock as _, SystemClock, Timestamp};

use super::{super::list::text, explained};
use crate::{
    client::{Answer, Request},
    exit::Exit,
    failure::Failure,
    global,
    output::{plain, status},
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
    let wrong = |failure| explained(failure, "reset", &asked.tool);
    if let Some(thread) = &session.global.thread {
        let path = ["agents", thread, "tool-states", "reset"];
        let request = Request::at_root(Method::POST, path).body(json!({"toolName": asked.tool}));
        let answer = session.ask(request).await.map_err(wrong)?;
        let states = answer.value()?;
        let state = states["data"]["toolStates"][&asked.tool].clone();
        return told(session, &answer, &asked.tool, &state);
    }
    let answer = session.ask(Request::post(["tools", &asked.tool, "reset"])).await.map_err(wrong)?;
    let state = answer.value()?;
    told(session, &answer, &asked.tool, &state)
}

pub(super) async fn maintenance(session: &Session, asked: &Maintenance) -> Result<Exit, Failure> {
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
    let answer = session.ask(request).await.map_err(|failure| explained(failure, "maintenance", &asked.tool))?;
    let state = answer.value()?;
    told(session, &answer, &asked.tool, &state)
}

/// How the tool stands now.
fn told(session: &Session, answer: &Answer, tool: &str, state: &Value) -> Result<Exit, Failure> {
    let show = &session.show;
    if show.json {
        show.document(&answer.text());
    } else {
        let (word, style) = status(&text(state, "/status"), show.ascii);
        show.data(&format!("{}  {style}{word}{style:#}", plain(tool)));
        show.say(&plain(&text(state, "/reason")));
    }
    Ok(Exit::Fine)
}

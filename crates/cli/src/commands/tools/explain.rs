//! `tools explain`: why a tool is offered or not, and what would change that.

use serde_json::Value;

use super::super::list::text;
use crate::{
    client::Request,
    exit::Exit,
    failure::Failure,
    output::{Fields, ago, folded, lasting, plain, status},
    session::Session,
};
use toolhub::clock::{Clock as _, SystemClock};

/// Say why a tool is offered or not.
#[derive(Debug, clap::Args)]
pub(crate) struct Explain {
    /// The tool
    tool: String,
}

pub(super) async fn run(session: &Session, asked: &Explain) -> Result<Exit, Failure> {
    let request = Request::get(["tools", &asked.tool, "explain"]).query("threadId", session.global.thread.as_deref());
    let answer = session
        .ask(request)
        .await
        .map_err(|failure| super::super::threads::unknown(super::explained(failure, "explain", &asked.tool)))?;
    let show = &session.show;
    if show.json {
        show.document(&answer.text());
        return Ok(Exit::Fine);
    }
    let why = answer.value()?;
    match why["text"].as_str() {
        Some(text) => show.data(&folded(&plain(text), show.width)),
        None => show.data(&facts(&why, show.width, show.ascii)),
    }
    Ok(Exit::Fine)
}

fn facts(why: &Value, width: Option<usize>, ascii: bool) -> String {
    let mut fields = Fields::default();
    fields.add("tool", text(why, "/toolName"));
    fields.add("offered", if why["offered"] == true { "yes" } else { "no" });
    let (word, style) = status(&text(why, "/status"), ascii);
    fields.styled("status", format!("{word} ({})", text(why, "/reason")), style);
    let changes = why["changesInMs"].as_f64().map(|ms| format!("by itself in {}", lasting(ms)));
    fields.add("changes", changes.unwrap_or_default());
    let words = |name: &str| {
        let all = why[name].as_array().into_iter().flatten().filter_map(Value::as_str);
        all.collect::<Vec<_>>().join(", ")
    };
    fields.add("call first", words("missing"));
    fields.add("denied by", text(why, "/deniedBy"));
    fields.add("failures", format!("{} in a row of {}", why["consecutiveFailures"], why["failureThreshold"]));
    if let Some(at) = why["lastFailure"]["at"].as_str() {
        let (kind, words) = (text(why, "/lastFailure/kind"), text(why, "/lastFailure/text"));
        fields.add("last failure", format!("{}: {kind}: {words}", ago(at, SystemClock.now())));
    }
    fields.add("rules", words("rules"));
    fields.lines(width, 0)
}

//! `tools explain`: why a tool is offered or not, and what would change that.

use serde_json::Value;

use super::super::paging::pointer_text;
use crate::{
    client::Request,
    exit::Exit,
    failure::Failure,
    output::{Fields, format_ago, format_millis, format_status, strip_control_chars, wrap_text},
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
    let answer = session.send_checked(request).await.map_err(|failure| {
        super::super::threads::with_not_found_help(super::with_help(failure, "explain", &asked.tool))
    })?;
    let show = &session.printer;
    if show.json {
        show.print_json(&answer.text());
        return Ok(Exit::Success);
    }
    let why = answer.json()?;
    match why["text"].as_str() {
        Some(text) => show.print(&wrap_text(&strip_control_chars(text), show.width)),
        None => show.print(&render_explanation(&why, show.width, show.ascii)),
    }
    Ok(Exit::Success)
}

fn render_explanation(why: &Value, width: Option<usize>, ascii: bool) -> String {
    let mut fields = Fields::default();
    fields.add("tool", pointer_text(why, "/toolName"));
    fields.add("offered", if why["offered"] == true { "yes" } else { "no" });
    let (word, style) = format_status(&pointer_text(why, "/status"), ascii);
    fields.add_styled("status", format!("{word} ({})", pointer_text(why, "/reason")), style);
    let changes = why["changesInMs"].as_f64().map(|ms| format!("by itself in {}", format_millis(ms)));
    fields.add("changes", changes.unwrap_or_default());
    let words = |name: &str| {
        let all = why[name].as_array().into_iter().flatten().filter_map(Value::as_str);
        all.collect::<Vec<_>>().join(", ")
    };
    fields.add("call first", words("missing"));
    fields.add("denied by", pointer_text(why, "/deniedBy"));
    fields.add("failures", format!("{} in a row of {}", why["consecutiveFailures"], why["failureThreshold"]));
    if let Some(at) = why["lastFailure"]["at"].as_str() {
        let (kind, words) = (pointer_text(why, "/lastFailure/kind"), pointer_text(why, "/lastFailure/text"));
        fields.add("last failure", format!("{}: {kind}: {words}", format_ago(at, SystemClock.now())));
    }
    fields.add("rules", words("rules"));
    fields.render(width, 0)
}

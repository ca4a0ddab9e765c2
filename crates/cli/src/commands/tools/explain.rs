//! `tools explain`: explains why a tool is offered or not, and what would change that.

use serde_json::Value;

use super::super::paging::pointer_text;
use crate::{
    client::Request,
    exit::Exit,
    failure::Failure,
    output::{Fields, format_ago, format_millis, format_status, strip_hidden, wrap_text},
    session::Session,
};
use toolhub::clock::{Clock as _, SystemClock};

/// Explain why a tool is offered or not.
#[derive(Debug, clap::Args)]
pub(crate) struct Explain {
    /// Name of the tool
    tool: String,
}

pub(super) async fn run(session: &Session, args: &Explain) -> Result<Exit, Failure> {
    let request = Request::get(["tools", &args.tool, "explain"]).query("threadId", session.global.thread.as_deref());
    let response = session.send_checked(request).await.map_err(|failure| {
        super::super::threads::with_not_found_help(super::with_help(failure, "explain", &args.tool))
    })?;
    let printer = &session.printer;
    if printer.json {
        printer.print_json(&response.text());
        return Ok(Exit::Success);
    }
    let explanation = response.json()?;
    match explanation["text"].as_str() {
        Some(text) => printer.print(&wrap_text(&strip_hidden(text), printer.width)),
        None => printer.print(&render_explanation(&explanation, printer.width, printer.ascii)),
    }
    Ok(Exit::Success)
}

fn render_explanation(explanation: &Value, width: Option<usize>, ascii: bool) -> String {
    let mut fields = Fields::default();
    fields.add("tool", pointer_text(explanation, "/toolName"));
    fields.add("offered", if explanation["offered"] == true { "yes" } else { "no" });
    let (status, style) = format_status(&pointer_text(explanation, "/status"), ascii);
    fields.add_styled("status", format!("{status} ({})", pointer_text(explanation, "/reason")), style);
    let changes = explanation["changesInMs"].as_f64().map(|ms| format!("automatically in {}", format_millis(ms)));
    fields.add("changes", changes.unwrap_or_default());
    let joined = |name: &str| {
        let all = explanation[name].as_array().into_iter().flatten().filter_map(Value::as_str);
        all.collect::<Vec<_>>().join(", ")
    };
    fields.add("call first", joined("missing"));
    fields.add("denied by", pointer_text(explanation, "/deniedBy"));
    fields.add(
        "failures",
        format!("{} consecutive, threshold {}", explanation["consecutiveFailures"], explanation["failureThreshold"]),
    );
    if let Some(at) = explanation["lastFailure"]["at"].as_str() {
        let (kind, message) =
            (pointer_text(explanation, "/lastFailure/kind"), pointer_text(explanation, "/lastFailure/text"));
        fields.add("last failure", format!("{}: {kind}: {message}", format_ago(at, SystemClock.now())));
    }
    fields.add("rules", joined("rules"));
    fields.render(width, 0)
}

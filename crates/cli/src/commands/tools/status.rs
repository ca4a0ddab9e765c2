//! `tools reset`, `maintenance`, `disable` and `enable`: change the status of a tool.

use axum::http::Method;
use serde_json::{Value, json};
use toolhub::clock::{Clock as _, SystemClock, Timestamp};

use super::{super::paging::pointer_text, with_help};
use crate::{
    client::{ApiResponse, Request},
    exit::Exit,
    failure::Failure,
    global,
    output::{format_status, strip_hidden},
    session::Session,
};

/// Clear failures and maintenance of a tool.
#[derive(Debug, clap::Args)]
pub(crate) struct Reset {
    /// Name of the tool
    tool: String,
}

/// Put a tool in maintenance, or end it; with --thread for one thread.
#[derive(Debug, clap::Args)]
pub(crate) struct Maintenance {
    /// Name of the tool
    tool: String,
    /// Reason, shown to callers
    #[arg(long, value_name = "TEXT", conflicts_with = "off")]
    reason: Option<String>,
    /// End of the maintenance: a duration such as 2h, or a timestamp such as 2027-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = parse_future_time, conflicts_with = "off")]
    until: Option<Timestamp>,
    /// End the maintenance
    #[arg(long)]
    off: bool,
}

/// Disable or enable a tool.
#[derive(Debug, clap::Args)]
pub(crate) struct Switch {
    /// Name of the tool
    tool: String,
}

/// Parses a timestamp or a duration from now.
fn parse_future_time(text: &str) -> Result<Timestamp, String> {
    if let Ok(timestamp) = text.parse() {
        return Ok(timestamp);
    }
    let delay = global::parse_duration(text);
    delay
        .map(|delay| SystemClock.now() + delay)
        .map_err(|why| format!("{why}; or a timestamp such as 2027-01-31T12:00:00Z"))
}

pub(super) async fn reset(session: &Session, args: &Reset) -> Result<Exit, Failure> {
    let add_help = |failure| with_help(failure, "reset", &args.tool);
    if let Some(thread) = &session.global.thread {
        let path = ["agents", thread, "tool-states", "reset"];
        let request = Request::at_root(Method::POST, path).body(json!({"toolName": args.tool}));
        let response = session.send_checked(request).await.map_err(add_help)?;
        let states = response.json()?;
        let state = states["data"]["toolStates"][&args.tool].clone();
        return print_status(session, &response, &args.tool, &state);
    }
    let response = session.send_checked(Request::post(["tools", &args.tool, "reset"])).await.map_err(add_help)?;
    let state = response.json()?;
    print_status(session, &response, &args.tool, &state)
}

pub(super) async fn set_maintenance(session: &Session, args: &Maintenance) -> Result<Exit, Failure> {
    let mut body = if args.off {
        json!({"status": "available"})
    } else {
        let mut body = json!({"status": "maintenance"});
        if let Some(reason) = &args.reason {
            body["reason"] = reason.as_str().into();
        }
        if let Some(until) = args.until {
            body["until"] = until.to_string().into();
        }
        body
    };
    if let Some(thread) = &session.global.thread {
        body["threadId"] = thread.as_str().into();
    }
    let request = Request::new(Method::PUT, ["tools", &args.tool, "status"]).body(body);
    let response =
        session.send_checked(request).await.map_err(|failure| with_help(failure, "maintenance", &args.tool))?;
    let state = response.json()?;
    print_status(session, &response, &args.tool, &state)
}

/// Disables or enables a tool.
pub(super) async fn switch(session: &Session, args: &Switch, action: &str) -> Result<Exit, Failure> {
    let request = Request::post(["tools", &args.tool, action]);
    let response = session.send_checked(request).await.map_err(|failure| with_help(failure, action, &args.tool))?;
    let state = response.json()?;
    print_status(session, &response, &args.tool, &state)
}

/// Prints the new status of the tool.
fn print_status(session: &Session, response: &ApiResponse, tool: &str, state: &Value) -> Result<Exit, Failure> {
    let printer = &session.printer;
    if printer.json {
        printer.print_json(&response.text());
    } else {
        let (status, style) = format_status(&pointer_text(state, "/status"), printer.ascii);
        printer.print(&format!("{}  {style}{status}{style:#}", strip_hidden(tool)));
        printer.note(&strip_hidden(&pointer_text(state, "/reason")));
    }
    Ok(Exit::Success)
}

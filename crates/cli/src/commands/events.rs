//! `events`, `tools watch` and `calls tail`: print events of a server as they happen.

use super::paging::pointer_text;
use crate::{
    client::{Request, StreamResponse},
    exit::Exit,
    failure::Failure,
    session::Session,
};

/// Print events as they happen; with --thread, only those of the thread.
#[derive(Debug, clap::Args)]
pub(crate) struct EventsArgs {
    /// Only these types, separated by commas; tool.* for all with that prefix
    #[arg(long, value_name = "TYPES")]
    types: Option<String>,
    #[command(flatten)]
    bound: EventBound,
}

/// How many events to print.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct EventBound {
    /// Stop after this many events
    #[arg(long, value_name = "N")]
    count: Option<u64>,
}

pub(crate) async fn run(session: &Session, args: &EventsArgs) -> Result<Exit, Failure> {
    follow(session, args.types.as_deref(), None, &args.bound).await
}

/// Prints events of these types, of one tool or of all.
pub(crate) async fn follow(
    session: &Session,
    types: Option<&str>,
    tool: Option<&str>,
    bound: &EventBound,
) -> Result<Exit, Failure> {
    // A hub that was opened for this command alone has no events but its own.
    let no_server = || {
        Failure::usage("events come from a server, and none is running on this config")
            .help("start one with `toolhub serve`, or name one with --server URL")
    };
    let client = session.server_client().await?.ok_or_else(no_server)?;
    let request = Request::get(["events"]).query("types", types).query("threadId", session.global.thread.as_deref());
    let mut events = match client.stream(request).await? {
        StreamResponse::Events(events) => events,
        StreamResponse::Response(response) => return Err(response.failure()),
    };
    session.printer.note_verbose("connected; Ctrl-C stops");
    let mut printed = 0;
    while bound.count.is_none_or(|count| printed < count) {
        let Some(event) = events.next().await? else {
            return Err(Failure::new("unreachable", "the server ended the event stream"));
        };
        if tool.is_some_and(|tool| pointer_text(&event.data, "/toolName") != tool) {
            continue;
        }
        printed += 1;
        if session.printer.json {
            session.printer.print(&serde_json::json!({"event": event.name, "data": event.data}).to_string());
        } else {
            session.printer.print_untrusted(&format!("{}  {}", event.name, event.text));
        }
    }
    Ok(Exit::Success)
}

//! `state history`, `state versions` and `state rollback`: what a state was before.

use serde_json::json;
use toolhub::clock::{Clock as _, SystemClock};

use super::{
    super::paging::{self, Paging, pointer_text},
    StateRef, print_version, state_request_below, with_not_found_help,
};
use crate::{
    exit::Exit,
    failure::Failure,
    output::{Column, Table, format_ago, truncate_value},
    session::Session,
};

/// Maximum width of data in a table.
const DATA_WIDTH: usize = 60;

/// A state, and how much of its past to list.
#[derive(Debug, clap::Args)]
pub(crate) struct Past {
    #[command(flatten)]
    state: StateRef,
    #[command(flatten)]
    paging: Paging,
}

/// Write a new version with the data of an old one.
#[derive(Debug, clap::Args)]
pub(crate) struct Rollback {
    #[command(flatten)]
    state: StateRef,
    /// The version whose data to restore
    #[arg(long, value_name = "N")]
    to: u64,
}

pub(super) async fn history(session: &Session, args: &Past) -> Result<Exit, Failure> {
    let request = state_request_below(axum::http::Method::GET, &args.state, "history");
    let entries = paging::fetch_items(session, request, &args.paging).await.map_err(with_not_found_help)?;
    let Some(entries) = entries else { return Ok(Exit::Success) };
    let now = SystemClock.now();
    let mut table = Table::new([Column::new("AT"), Column::new("EVENT"), Column::new("DETAILS").shrink_to(20)]);
    for mut entry in entries {
        let (at, event) = (pointer_text(&entry, "/timestamp"), pointer_text(&entry, "/type"));
        if let Some(entry) = entry.as_object_mut() {
            entry.retain(|name, _| name != "timestamp" && name != "type");
        }
        table.add_row([format_ago(&at, now), event, truncate_value(&entry, DATA_WIDTH, session.printer.ascii)]);
    }
    session.printer.print(&table.render(session.printer.width, session.printer.ascii));
    Ok(Exit::Success)
}

pub(super) async fn versions(session: &Session, args: &Past) -> Result<Exit, Failure> {
    let request = state_request_below(axum::http::Method::GET, &args.state, "versions");
    let versions = paging::fetch_items(session, request, &args.paging).await.map_err(with_not_found_help)?;
    let Some(versions) = versions else { return Ok(Exit::Success) };
    let now = SystemClock.now();
    let columns = [Column::new("VERSION").align_right(), Column::new("WRITTEN"), Column::new("DATA").shrink_to(20)];
    let mut table = Table::new(columns);
    for version in &versions {
        let data = truncate_value(&version["data"], DATA_WIDTH, session.printer.ascii);
        let written = format_ago(&pointer_text(version, "/createdAt"), now);
        table.add_row([pointer_text(version, "/version"), written, data]);
    }
    session.printer.print(&table.render(session.printer.width, session.printer.ascii));
    Ok(Exit::Success)
}

pub(super) async fn rollback(session: &Session, args: &Rollback) -> Result<Exit, Failure> {
    let request = state_request_below(axum::http::Method::POST, &args.state, "rollback");
    let sent = session.send_checked(request.body(json!({"version": args.to}))).await;
    let response = sent.map_err(|failure| match failure.code.as_str() {
        // The state or this version of it does not exist.
        "state_not_found" => failure.help(format!("toolhub state versions {}", args.state.context)),
        _ => with_not_found_help(failure),
    })?;
    print_version(session, &args.state, &response)
}

//! `audit`: lists who changed what, and denied requests; follows them with `--follow`.

use std::{collections::HashSet, time::Duration};

use serde_json::Value;
use toolhub::clock::{Clock as _, SystemClock, Timestamp};

use super::{
    calls::parse_past_time,
    paging::{self, Paging, pointer_text},
};
use crate::{
    client::Request,
    exit::Exit,
    failure::Failure,
    output::{Column, Table, format_ago},
    session::Session,
};

/// How often new entries are looked for.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Entries of the last seconds are read again: those of other nodes may appear a little late.
const OVERLAP: Duration = Duration::from_secs(10);

/// List changes and denied requests, newest first.
#[derive(Debug, clap::Args)]
pub(crate) struct AuditArgs {
    /// Only entries since this time: an age such as 2h, or a timestamp such as 2027-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = parse_past_time)]
    since: Option<Timestamp>,
    /// Only entries before this time
    #[arg(long, value_name = "TIME", value_parser = parse_past_time)]
    until: Option<Timestamp>,
    /// Only this action, such as key.create; tool.* for all with that prefix
    #[arg(long, value_name = "ACTION")]
    action: Option<String>,
    /// Only what this principal did: the name of a key, or local
    #[arg(long, value_name = "NAME")]
    principal: Option<String>,
    /// Only what was done to this object, such as tools/weather; tools/* for all tools
    #[arg(long, value_name = "OBJECT")]
    object: Option<String>,
    /// Print new entries as they appear, the oldest first
    #[arg(long, conflicts_with_all = ["until", "cursor"])]
    follow: bool,
    #[command(flatten)]
    paging: Paging,
}

const COLUMNS: [Column; 7] = [
    Column::new("AT"),
    Column::new("WHO"),
    Column::new("VIA").drop_order(3),
    Column::new("ACTION"),
    Column::new("OBJECT").shrink_to(12),
    Column::new("STATUS").align_right(),
    Column::new("PATH").drop_order(1).shrink_to(12),
];

impl AuditArgs {
    fn request(&self) -> Request {
        Request::get(["audit"])
            .query("until", self.until)
            .query("action", self.action.as_deref())
            .query("principal", self.principal.as_deref())
            .query("object", self.object.as_deref())
    }
}

pub(crate) async fn run(session: &Session, args: &AuditArgs) -> Result<Exit, Failure> {
    if args.follow {
        return follow(session, args).await;
    }
    let entries = paging::fetch_items(session, args.request().query("since", args.since), &args.paging).await?;
    let Some(entries) = entries else { return Ok(Exit::Success) };
    let (printer, now) = (&session.printer, SystemClock.now());
    if entries.is_empty() {
        printer.note("no entries");
        return Ok(Exit::Success);
    }
    let mut table = Table::new(COLUMNS);
    for entry in &entries {
        table.add_row([
            format_ago(&pointer_text(entry, "/at"), now),
            pointer_text(entry, "/who"),
            pointer_text(entry, "/via"),
            pointer_text(entry, "/act"),
            pointer_text(entry, "/object"),
            pointer_text(entry, "/status"),
            format!("{} {}", pointer_text(entry, "/method"), pointer_text(entry, "/path")),
        ]);
    }
    printer.print(&table.render(printer.width, printer.ascii));
    Ok(Exit::Success)
}

/// Prints entries as they appear, until it is interrupted.
async fn follow(session: &Session, args: &AuditArgs) -> Result<Exit, Failure> {
    let mut since = args.since.unwrap_or_else(|| SystemClock.now());
    let (mut printed, mut has_connected) = (HashSet::new(), false);
    loop {
        let request = args.request().query("since", Some(since));
        let entries = match paging::read_items(session, request, &Paging::all()).await {
            Ok(entries) => entries,
            // A server that restarts answers again.
            Err(failure) if has_connected && failure.exit == Exit::Unreachable => {
                tokio::time::sleep(POLL_INTERVAL).await;
                continue;
            }
            Err(failure) => return Err(failure),
        };
        has_connected = true;
        // They come newest first.
        for entry in entries.iter().rev() {
            if printed.insert(pointer_text(entry, "/id")) {
                print_entry(session, entry);
            }
        }
        let ids: HashSet<String> = entries.iter().map(|entry| pointer_text(entry, "/id")).collect();
        printed.retain(|id| ids.contains(id));
        let latest = entries.first().and_then(|entry| pointer_text(entry, "/at").parse::<Timestamp>().ok());
        since = latest.map_or(since, |latest| since.max(latest - OVERLAP));
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn print_entry(session: &Session, entry: &Value) {
    if session.printer.json {
        session.printer.print(&entry.to_string());
        return;
    }
    let text = |pointer| pointer_text(entry, pointer);
    let (at, who, via) = (text("/at"), text("/who"), text("/via"));
    let (act, object, status) = (text("/act"), text("/object"), text("/status"));
    session.printer.print_untrusted(&format!("{at}  {who} ({via})  {act}  {object}  {status}"));
}

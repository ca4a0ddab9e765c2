//! `audit`: lists who changed what, and denied requests.

use toolhub::clock::{Clock as _, SystemClock};

use super::paging::{self, Paging, pointer_text};
use crate::{
    client::Request,
    exit::Exit,
    failure::Failure,
    output::{Column, Table, format_ago},
    session::Session,
};

/// List changes and denied requests, newest first.
#[derive(Debug, clap::Args)]
pub(crate) struct AuditArgs {
    #[command(flatten)]
    paging: Paging,
}

const COLUMNS: [Column; 5] = [
    Column::new("AT"),
    Column::new("WHO"),
    Column::new("ACTION"),
    Column::new("STATUS").align_right(),
    Column::new("PATH").drop_order(1).shrink_to(12),
];

pub(crate) async fn run(session: &Session, args: &AuditArgs) -> Result<Exit, Failure> {
    let entries = paging::fetch_items(session, Request::get(["audit"]), &args.paging).await?;
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
            pointer_text(entry, "/act"),
            pointer_text(entry, "/status"),
            format!("{} {}", pointer_text(entry, "/method"), pointer_text(entry, "/path")),
        ]);
    }
    printer.print(&table.render(printer.width, printer.ascii));
    Ok(Exit::Success)
}

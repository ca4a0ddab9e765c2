//! `backup`: copies the store while it is in use.

use super::paging::pointer_text;
use crate::{client::Request, exit::Exit, failure::Failure, session::Session};

/// Back up the store.
#[derive(Debug, clap::Args)]
pub(crate) struct BackupArgs {}

pub(crate) async fn run(session: &Session) -> Result<Exit, Failure> {
    let response = session.send_checked(Request::post(["backups"])).await?;
    if session.printer.json {
        session.printer.print_json(&response.text());
        return Ok(Exit::Success);
    }
    let backup = response.json()?;
    session.printer.print(&pointer_text(&backup, "/path"));
    session.printer.note(&format!(
        "{} bytes; restore it with: toolhub restore {}",
        pointer_text(&backup, "/bytes"),
        pointer_text(&backup, "/path")
    ));
    Ok(Exit::Success)
}

//! `backup`: a copy of the store, made while it is in use.

use super::paging::pointer_text;
use crate::{client::Request, exit::Exit, failure::Failure, session::Session};

/// Make a backup of the store.
#[derive(Debug, clap::Args)]
pub(crate) struct BackupArgs {}

pub(crate) async fn run(session: &Session) -> Result<Exit, Failure> {
    let answer = session.send_checked(Request::post(["backups"])).await?;
    if session.printer.json {
        session.printer.print_json(&answer.text());
        return Ok(Exit::Success);
    }
    let backup = answer.json()?;
    session.printer.print(&pointer_text(&backup, "/path"));
    session.printer.note(&format!(
        "{} bytes. Put it back with: toolhub restore {}",
        pointer_text(&backup, "/bytes"),
        pointer_text(&backup, "/path")
    ));
    Ok(Exit::Success)
}

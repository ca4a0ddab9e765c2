//! `backup`: copies a store while it is in use.

use super::paging::pointer_text;
use crate::{client::Request, exit::Exit, failure::Failure, session::Session};

/// Back up the store.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A persistent state manager (manager_type = \"persistent\" in [state] or of a tool) has a store of its own: --state backs up that one.")]
pub(crate) struct BackupArgs {
    /// Back up the store of the persistent state manager instead
    #[arg(long)]
    state: bool,
}

pub(crate) async fn run(session: &Session, args: &BackupArgs) -> Result<Exit, Failure> {
    let request = Request::post(["backups"]).query("store", args.state.then_some("state"));
    let response = session.send_checked(request).await?;
    if session.printer.json {
        session.printer.print_json(&response.text());
        return Ok(Exit::Success);
    }
    let backup = response.json()?;
    session.printer.print(&pointer_text(&backup, "/path"));
    session.printer.note(&format!(
        "{} bytes; restore it with: toolhub restore {}{}",
        pointer_text(&backup, "/bytes"),
        if args.state { "--state " } else { "" },
        pointer_text(&backup, "/path")
    ));
    Ok(Exit::Success)
}

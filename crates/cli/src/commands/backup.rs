//! `backup`: a copy of the store, made while it is in use.

use super::list::text;
use crate::{client::Request, exit::Exit, failure::Failure, session::Session};

/// Make a backup of the store.
#[derive(Debug, clap::Args)]
pub(crate) struct Backup {}

pub(crate) async fn run(session: &Session) -> Result<Exit, Failure> {
    let answer = session.ask(Request::post(["backups"])).await?;
    if session.show.json {
        session.show.document(&answer.text());
        return Ok(Exit::Fine);
    }
    let backup = answer.value()?;
    session.show.data(&text(&backup, "/path"));
    session.show.say(&format!(
        "{} bytes. Put it back with: toolhub restore {}",
        text(&backup, "/bytes"),
        text(&backup, "/path")
    ));
    Ok(Exit::Fine)
}

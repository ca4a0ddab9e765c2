//! `version`: which toolhub this is.

use serde_json::json;

use crate::{exit::Exit, failure::Failure, session::Session};

/// Print the version.
#[derive(Debug, clap::Args)]
pub(crate) struct Version {}

pub(crate) fn run(session: &Session) -> Result<Exit, Failure> {
    let version = env!("CARGO_PKG_VERSION");
    if session.show.json {
        let about = json!({"version": version, "os": std::env::consts::OS, "arch": std::env::consts::ARCH});
        session.show.document(&about.to_string());
    } else {
        session.show.data(&format!("toolhub {version}"));
    }
    Ok(Exit::Fine)
}

//! `version`: prints the version and build information.

use serde_json::json;
use toolhub::server::BuildInfo;

use crate::{build_info, exit::Exit, failure::Failure, session::Session};

/// Print the version.
#[derive(Debug, clap::Args)]
pub(crate) struct Version {}

pub(crate) fn run(session: &Session) -> Result<Exit, Failure> {
    let BuildInfo { version, revision, rustc } = build_info::current();
    if session.printer.json {
        let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
        let about = json!({"version": version, "revision": revision, "rustc": rustc, "os": os, "arch": arch});
        session.printer.print_json(&about.to_string());
    } else {
        session.printer.print(&format!("toolhub {version}"));
    }
    Ok(Exit::Success)
}

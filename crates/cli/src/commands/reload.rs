//! `reload`: makes a running server read its config again.

use crate::{client::Request, exit::Exit, failure::Failure, session::Session};

/// Make the server read its config again.
#[derive(Debug, clap::Args)]
pub(crate) struct ReloadArgs {}

pub(crate) async fn run(session: &Session) -> Result<Exit, Failure> {
    let no_server = || {
        Failure::usage("no server is running on this config, so there is nothing to reload")
            .help("commands without a server read the config each time; name a server with --server URL")
    };
    let client = session.server_client().await?.ok_or_else(no_server)?;
    let response = client.send_checked(Request::post(["reload"])).await?;
    if session.printer.json {
        session.printer.print_json(&response.text());
        return Ok(Exit::Success);
    }
    let report = response.json()?;
    let mut changed = false;
    for (field, label) in [
        ("added", "tools added"),
        ("replaced", "tools replaced"),
        ("removed", "tools removed"),
        ("sections", "settings applied"),
        ("needsRestart", "needs a restart"),
    ] {
        let names: Vec<&str> =
            report[field].as_array().into_iter().flatten().filter_map(|name| name.as_str()).collect();
        if !names.is_empty() {
            changed = true;
            session.printer.print_untrusted(&format!("{label}: {}", names.join(", ")));
        }
    }
    if !changed {
        session.printer.note("nothing changed");
    }
    Ok(Exit::Success)
}

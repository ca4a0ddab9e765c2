//! Decides how a command reaches the hub.
//!
//! In: the flags and the config. Out: a client. A server that was named wins; then a server that runs on this config; then
//! the store of this folder, opened in this process.

use std::{path::Path, time::Duration};

use serde_json::Value;

use super::{Client, InProcess, Remote, Request};
use crate::{failure::Failure, global::GlobalFlags, local_hub::LocalHub, output::Printer, serve};

/// How long a server on this machine may take to say who it is.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// The code of a failure that only says: no server runs.
pub(crate) const NO_SERVER: &str = "no_server";

/// Which transports a command may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    /// Whatever is there.
    Either,
    /// A server, or nothing.
    Server,
}

/// Finds the transport to the hub.
///
/// # Errors
/// When the config is bad, the address is none, or the store cannot be opened.
pub(crate) async fn connect(global: &GlobalFlags, show: &Printer, transport: Transport) -> Result<Client, Failure> {
    if let Some(url) = &global.server {
        return Remote::new(url, global.token.clone(), true).map(Client::Remote);
    }
    let local = LocalHub::find(global)?;
    if let Some(running) = find_running_server(&local, global.token.clone()).await? {
        show.note_verbose(&format!("asking the server at {}", local.url()));
        return Ok(Client::Remote(running));
    }
    if transport == Transport::Server {
        return Err(Failure::new(NO_SERVER, "no server runs here"));
    }
    show.note_verbose("no server runs on this config: opening the store");
    let opened = serve::open_in_process(&local).await?;
    Ok(Client::InProcess(Box::new(InProcess::new(opened))))
}

/// The server that runs on this config, if one does.
async fn find_running_server(local: &LocalHub, token: Option<String>) -> Result<Option<Remote>, Failure> {
    let remote = Remote::new(&local.url(), token, false)?;
    let Ok(Ok(answer)) = tokio::time::timeout(PROBE_TIMEOUT, remote.send(Request::get(["info"]))).await else {
        return Ok(None);
    };
    match answer.status {
        200 if answer.json().is_ok_and(|info| serves_config(&info, local)) => Ok(Some(remote)),
        // This config says that keys are needed, and somebody asks for one at its address: that is its server.
        401 | 403 if local.requires_keys() => Err(answer.failure()),
        _ => Ok(None),
    }
}

fn serves_config(info: &Value, local: &LocalHub) -> bool {
    match info.get("configFile") {
        Some(theirs) => same_file(theirs.as_str(), local.config_file()),
        // Only those who may do everything are told. A server that takes a key of ours, where this config asks for keys, is
        // its server.
        None => local.requires_keys() && info.get("scopes").is_some(),
    }
}

/// Whether both are the same file, or both are none.
fn same_file(theirs: Option<&str>, ours: Option<&Path>) -> bool {
    let whole = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    theirs.map(|theirs| whole(Path::new(theirs))) == ours.map(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_ours_only_if_it_runs_on_the_same_file() {
        let (name, file) = ("/nowhere/toolhub.toml", Path::new("/nowhere/toolhub.toml"));
        assert!(same_file(Some(name), Some(file)));
        assert!(same_file(None, None));
        assert!(!same_file(None, Some(file)));
        assert!(!same_file(Some("/elsewhere/toolhub.toml"), Some(file)));
        assert!(!same_file(Some(name), None));
    }
}

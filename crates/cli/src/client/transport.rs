//! Chooses the transport of a command.
//!
//! In: the flags and the config. Out: a client. An explicitly named server wins; then a running server of this config; then the
//! store of this folder, opened in this process.

use std::{path::Path, time::Duration};

use serde_json::Value;

use super::{Client, InProcess, Remote, Request};
use crate::{failure::Failure, global::GlobalFlags, local_hub::LocalHub, output::Printer, serve};

/// Timeout of the probe for a running server on this machine.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// The code of the failure "no server runs".
pub(crate) const NO_SERVER: &str = "no_server";

/// Which transports a command may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    /// A server or the store.
    Either,
    /// Only a server.
    Server,
}

/// Connects to the hub.
///
/// # Errors
/// When the config or the URL is invalid, or the store cannot be opened.
pub(crate) async fn connect(global: &GlobalFlags, printer: &Printer, transport: Transport) -> Result<Client, Failure> {
    if let Some(url) = &global.server {
        return Remote::new(url, global.token.clone(), true).map(Client::Remote);
    }
    let local = match LocalHub::find(global) {
        Ok(local) => local,
        Err(failure) => return connect_despite(failure, global, printer, transport).await,
    };
    if let Some(running) = find_running_server(&local, global.token.clone()).await? {
        printer.note_verbose(&format!("using the server at {}", local.url()));
        return Ok(Client::Remote(running));
    }
    if transport == Transport::Server {
        return Err(no_server());
    }
    local.require_config()?;
    printer.note_verbose("no server is running on this config; opening the store");
    let hub = serve::open_in_process(&local).await?;
    Ok(Client::InProcess(Box::new(InProcess::new(hub))))
}

/// Uses the running server of a config that has problems now: the server still runs on an earlier version of it.
async fn connect_despite(
    failure: Failure,
    global: &GlobalFlags,
    printer: &Printer,
    transport: Transport,
) -> Result<Client, Failure> {
    let Some(local) = LocalHub::find_partial(global)? else { return Err(failure) };
    // Secrets are the server's business: this process need not have the variables that hold them.
    let lacks_only_variables = LocalHub::load(global.load_options()?.assuming_variables_set()).is_ok();
    match find_running_server(&local, global.token.clone()).await {
        Ok(Some(running)) => {
            if !lacks_only_variables {
                let (problem, url) = (&failure.message, local.url());
                printer.note(&format!("{problem}; using the server at {url}: toolhub config check"));
            }
            Ok(Client::Remote(running))
        }
        Ok(None) if lacks_only_variables && transport == Transport::Server => Err(no_server()),
        Ok(None) | Err(_) => Err(failure),
    }
}

fn no_server() -> Failure {
    Failure::new(NO_SERVER, "no server is running on this config")
}

/// The running server of this config, if there is one.
async fn find_running_server(local: &LocalHub, token: Option<String>) -> Result<Option<Remote>, Failure> {
    let remote = Remote::new(&local.url(), token, false)?;
    match probe(&remote, local).await? {
        Occupant::Server => Ok(Some(remote)),
        Occupant::Other(_) | Occupant::Silent | Occupant::Unknown(_) => Ok(None),
    }
}

/// What answers at the address of a config.
#[derive(Debug)]
pub(crate) enum Occupant {
    /// Its server.
    Server,
    /// Another server; the text says which.
    Other(String),
    /// Something that accepts connections and does not answer in time.
    Silent,
    /// Nothing, or nothing that speaks the API; the text says why.
    Unknown(String),
}

/// Asks what answers at the address of a config.
///
/// # Errors
/// When it is the server of this config, and refuses the key.
pub(crate) async fn probe(remote: &Remote, local: &LocalHub) -> Result<Occupant, Failure> {
    let response = match tokio::time::timeout(PROBE_TIMEOUT, remote.send(Request::get(["info"]))).await {
        Err(_) => return Ok(Occupant::Silent),
        Ok(Err(failure)) => return Ok(Occupant::Unknown(failure.message.clone())),
        Ok(Ok(response)) => response,
    };
    let info = response.json().unwrap_or_default();
    Ok(match response.status {
        200 if serves_config(&info, local) => Occupant::Server,
        // The key is valid and lacks the scope of this request, which others may not need.
        403 if local.requires_keys() && info["code"] == "forbidden" => Occupant::Server,
        // This config requires keys, and a server at its address asks for one: that is its server.
        401 | 403 if local.requires_keys() => return Err(response.failure()),
        200 => Occupant::Other(match info["configFile"].as_str() {
            Some(file) => format!("the Toolhub server of {file}"),
            None => "the Toolhub server of another config".into(),
        }),
        401 | 403 => Occupant::Other("a server that requires a key, which this config does not".into()),
        status => Occupant::Other(format!("a program that is not a Toolhub server (HTTP status {status})")),
    })
}

fn serves_config(info: &Value, local: &LocalHub) -> bool {
    match info.get("configFile") {
        Some(theirs) => same_file(theirs.as_str(), local.config_file()),
        // Only `admin` keys see `configFile`. A server that accepts our key, where this config requires keys, is its server.
        None => local.requires_keys() && info.get("scopes").is_some(),
    }
}

/// Whether both are the same file, or both are `None`.
fn same_file(theirs: Option<&str>, ours: Option<&Path>) -> bool {
    let resolve = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    theirs.map(|theirs| resolve(Path::new(theirs))) == ours.map(resolve)
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

//! `toolhub mcp serve --stdio`: an MCP server on stdin and stdout.
//!
//! In: JSON-RPC messages, one per line. Out: the messages of the hub, one per line, and nothing else on stdout. Every message goes to
//! the MCP endpoint of the server of this config, over HTTP; so any number of such processes share one store, their sessions and their
//! threads. If no server runs, one of the processes runs it: see `hub_link`. `bridge` passes messages on; `lines` reads and writes them.

mod bridge;
mod endpoint;
mod errors;
mod exchange;
mod hub_link;
mod in_flight;
mod legacy_session;
mod line_ends;
mod lines;
mod message;
mod modern_headers;
mod notices;
mod recovery;
mod requests;
mod responsiveness;
mod session_stream;

use std::{pin::pin, sync::Arc, time::Duration};

use bridge::Bridge;
use endpoint::Endpoint;
use hub_link::HubLink;
use toolhub_net::Secret;

use crate::{
    exit::Exit,
    failure::Failure,
    global::GlobalFlags,
    local_hub::LocalHub,
    serve::{self, ShutdownSignals},
};

/// How long requests in flight may take after the end of stdin.
const FINISH_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum length of a message for a server whose limit is not known; the server has its own.
const MAX_MESSAGE: usize = 64 << 20;

/// Serves until stdin or stdout is closed, or a signal arrives.
pub(crate) async fn run(global: &GlobalFlags) -> Result<Exit, Failure> {
    let listening = ShutdownSignals::listen();
    let mut signals = listening.map_err(|error| Failure::unexpected(format!("cannot listen for signals: {error}")))?;
    let token = client_key(global)?;
    let (hub, max_message) = find_hub(global, token.clone()).await?;
    tokio::select! {
        connected = hub.connect() => connected?,
        () = signals.next() => return Ok(Exit::Success),
    }
    let endpoint = Endpoint::new(hub.url(), global.thread.as_deref(), token.as_deref())?;
    let mut input = lines::read_stdin(max_message);
    let (output, written) = lines::write_stdout();
    let closed = output.clone();
    let bridge = Bridge::new(hub.clone(), endpoint, output, global.thread.clone());
    let watching = tokio::spawn(hub.clone().watch());
    let mut is_signalled = tokio::select! {
        () = bridge.serve(&mut input) => false,
        () = closed.closed() => false,
        () = signals.next() => true,
    };
    watching.abort();
    if !is_signalled {
        is_signalled = tokio::select! {
            _ = tokio::time::timeout(FINISH_TIMEOUT, bridge.finish()) => false,
            () = signals.next() => true,
        };
    }
    let mut stopping = pin!(async {
        bridge.close().await;
        drop((bridge, closed));
        hub.stop().await;
        written.wait().await;
    });
    if !is_signalled {
        // Clients close stdin first and send a signal a moment later: only a second one is impatience.
        tokio::select! {
            () = &mut stopping => return Ok(Exit::Success),
            () = signals.next() => {}
        }
    }
    tokio::select! {
        () = stopping => Ok(Exit::Success),
        () = signals.next() => Ok(Exit::Interrupted),
    }
}

/// The key of the client, if there is one.
fn client_key(global: &GlobalFlags) -> Result<Option<String>, Failure> {
    let Some(key) = global.token.clone().filter(|key| !key.is_empty()) else { return Ok(None) };
    match Secret::literal(key.clone()).header("Bearer ") {
        Ok(_) => Ok(Some(key)),
        Err(error) => Err(Failure::usage(format!("the key in TOOLHUB_TOKEN or --token is invalid: {error}"))),
    }
}

/// The hub, and the maximum length of a message.
async fn find_hub(global: &GlobalFlags, token: Option<String>) -> Result<(Arc<HubLink>, usize), Failure> {
    if let Some(url) = &global.server {
        return Ok((Arc::new(HubLink::named(url, token)?), MAX_MESSAGE));
    }
    let local = match LocalHub::find(global) {
        Ok(local) => local,
        // The server runs on an earlier version of the config, or has variables that this process need not have.
        Err(failure) => return running_despite(global, failure, token).await,
    };
    serve::init_logs(&local.loaded.config.telemetry);
    let max_message = local.loaded.config.server.body_limit;
    Ok((Arc::new(HubLink::of_config(local, token)?), max_message))
}

/// The running server of a config that has problems.
async fn running_despite(
    global: &GlobalFlags,
    failure: Failure,
    token: Option<String>,
) -> Result<(Arc<HubLink>, usize), Failure> {
    let Some(local) = LocalHub::find_partial(global)? else { return Err(failure) };
    serve::init_logs(&local.loaded.config.telemetry);
    let max_message = local.loaded.config.server.body_limit;
    match HubLink::of_running_server(&local, token).await? {
        Some(hub) => Ok((Arc::new(hub), max_message)),
        None => Err(failure),
    }
}

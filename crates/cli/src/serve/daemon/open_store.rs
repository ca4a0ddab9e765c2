//! Opens the store of a config.
//!
//! In: a config, and what for. Out: the open store, or a failure that says what to do.

use std::time::Duration;

use toolhub::sqlite::OpenError;

use crate::{
    config::{Backend, Config, OpenStoreError, StoreHandle},
    failure::Failure,
};

/// How long a command waits for another process to close the store.
const STORE_WAIT: Duration = Duration::from_secs(3);
/// How long it waits between two attempts.
const STORE_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Why the hub is opened; decides the help for a store that is in use.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Purpose {
    /// To serve it.
    Serve,
    /// To run one command, which could use a server instead.
    Command,
}

/// Opens the store. A command waits a moment for another command to end; a server has no reason to.
pub(super) async fn open_store(config: &Config, purpose: Purpose) -> Result<StoreHandle, Failure> {
    if let (Backend::Redis(server), Purpose::Serve) = (&config.store.backend, purpose)
        && !server.has_seal_secret()
    {
        tracing::warn!(
            "`store.redis.seal_secret` is not set: other nodes, and this one after a restart, cannot read secrets in records, nor forms \
             of MCP clients that were sent from here"
        );
    }
    let mut waited = Duration::ZERO;
    loop {
        match config.store.open() {
            Err(OpenStoreError::Open(OpenError::InUse { .. }))
                if matches!(purpose, Purpose::Command) && waited < STORE_WAIT =>
            {
                tokio::time::sleep(STORE_RETRY_INTERVAL).await;
                waited += STORE_RETRY_INTERVAL;
            }
            opened => return opened.map_err(|error| store_failure(&error, purpose)),
        }
    }
}

fn store_failure(error: &OpenStoreError, purpose: Purpose) -> Failure {
    match error {
        OpenStoreError::Open(OpenError::InUse { .. }) => {
            let failure = Failure::new("store_in_use", error.to_string());
            match purpose {
                Purpose::Serve => failure.help("stop that process first, or set another `store.path`"),
                // No server responded at the address of this config.
                Purpose::Command => failure
                    .help("if that process is a server, add `--server` and the URL it printed")
                    .help("if it is another command, let it end first, or answer its prompt")
                    .help("or start `toolhub serve` to use several terminals: commands then use the server"),
            }
        }
        _ => Failure::new("store_unavailable", error.to_string()),
    }
}

//! A server that runs beside other work of the process, such as an MCP client on stdin.
//!
//! In: a config. Out: the same server as that of `toolhub serve`, without its banner and stop signals; or why there is none. A store
//! or an address that another process has is told apart, because that process may be a server of the same config.

use std::{io, net::TcpListener, sync::Arc, time::Duration};

use futures_util::FutureExt;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use toolhub::{server::ServeError, tasks};

use super::{
    daemon::{Daemon, Purpose, wait_for_first_connections},
    serve_failure, signals,
};
use crate::{failure::Failure, local_hub::LocalHub};

/// How long running calls of others may take when the server stops: they wait for the process that takes over.
const MAX_DRAIN: Duration = Duration::from_secs(2);

/// A running server.
pub(crate) struct BackgroundServer {
    stop: CancellationToken,
    serving: JoinHandle<Result<(), ServeError>>,
    reloads: JoinHandle<()>,
}

/// Why a server cannot start.
pub(crate) enum StartError {
    /// Another process has the store or the address.
    Taken(Failure),
    /// Anything else.
    Failed(Failure),
}

impl BackgroundServer {
    /// Starts the server of a config. Waits at most `connecting` for the first connections to MCP servers before it answers: no client
    /// gets a list without their tools, or an error for a call of one.
    ///
    /// # Errors
    /// When the store, the address or a tool cannot be used.
    pub(crate) async fn start(local: &LocalHub, connecting: Duration) -> Result<Self, StartError> {
        let server = &local.loaded.config.server;
        // Before the store is opened and MCP servers are started.
        if let Err(source) = TcpListener::bind((server.host, server.port)) {
            let address = format!("{}:{}", server.host, server.port);
            return Err(listen_error(ServeError::Listen { address, source }));
        }
        let opened = Daemon::open(local, local.config_file(), Purpose::Serve).await;
        let daemon = Arc::new(opened.map_err(|failure| match failure.code.as_str() {
            "store_in_use" => StartError::Taken(failure),
            _ => StartError::Failed(failure),
        })?);
        let bound = match daemon.clone().replaceable_server(MAX_DRAIN).bind().await {
            Ok(bound) => bound,
            Err(error) => {
                daemon.agents.stop().await;
                daemon.hub.shutdown(Duration::ZERO).await;
                return Err(listen_error(error));
            }
        };
        daemon.link_alerts(&daemon.url(bound.address()));
        let (reloading, mut first) = (daemon.clone(), Some(signals::reload_on_hangup(daemon.clone()).boxed()));
        let reloads = tasks::spawn("reload on SIGHUP", CancellationToken::new(), move |_| {
            first.take().unwrap_or_else(|| signals::reload_on_hangup(reloading.clone()).boxed())
        });
        let _ = tokio::time::timeout(connecting, wait_for_first_connections(&daemon.hub)).await;
        let stop = CancellationToken::new();
        // Not supervised: the caller sees when it has ended, and starts another one.
        let serving = tokio::spawn(bound.serve(stop.clone().cancelled_owned()));
        Ok(Self { stop, serving, reloads })
    }

    /// Whether it runs.
    pub(crate) fn is_running(&self) -> bool {
        !self.serving.is_finished()
    }

    /// Stops the server: running calls may finish within [`MAX_DRAIN`].
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        if let Ok(Err(error)) = self.serving.await {
            tracing::error!(%error, "server failed");
        }
        self.reloads.abort();
    }
}

fn listen_error(error: ServeError) -> StartError {
    let is_taken = matches!(&error, ServeError::Listen { source, .. } if source.kind() == io::ErrorKind::AddrInUse);
    let failure = serve_failure(error);
    if is_taken { StartError::Taken(failure) } else { StartError::Failed(failure) }
}

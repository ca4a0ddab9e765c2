//! What a person or a supervisor tells a running server by signals.

use std::{io, sync::Arc};

use tokio::signal::unix::{Signal, SignalKind, signal};
use toolhub::server::HostControlError;

use super::daemon::Daemon;

/// Ready when the process is asked to stop, from the moment this is called: before that the signal would end it.
pub(super) fn stop_requested() -> impl Future<Output = ()> + Send {
    let signals = ShutdownSignals::listen();
    async move {
        let Ok(mut signals) = signals else { return };
        signals.next().await;
        tracing::info!("stopping: calls that run come to their end; asked once more it stops at once");
    }
}

/// Ready when the process is asked to stop a second time, counted from the moment this is called.
pub(super) fn second_stop_requested() -> impl Future<Output = ()> + Send {
    let signals = ShutdownSignals::listen();
    async move {
        let Ok(mut signals) = signals else { return };
        signals.next().await;
        signals.next().await;
    }
}

/// SIGTERM and Ctrl-C, from the moment this is made: before that they would end the process, and none is lost between two waits.
pub(crate) struct ShutdownSignals {
    term: Signal,
    interrupt: Signal,
}

impl ShutdownSignals {
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self { term: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Reads the config again whenever the process is told to, from the moment this is called: before that the signal would end it.
pub(super) fn reload_on_hangup(daemon: Arc<Daemon>) -> impl Future<Output = ()> {
    let hangup = signal(SignalKind::hangup());
    async move {
        let Ok(mut hangup) = hangup else { return };
        while hangup.recv().await.is_some() {
            reload(&daemon, "told to").await;
        }
    }
}

/// Reads the config again and says what came of it.
pub(super) async fn reload(daemon: &Daemon, why: &str) {
    match daemon.reload_config().await {
        Ok(done) => tracing::info!(
            why,
            added = ?done.added,
            replaced = ?done.replaced,
            removed = ?done.removed,
            needs_restart = ?done.needs_restart,
            "the config was read again"
        ),
        Err(error) => {
            tracing::error!(why, %error, "the config was not taken; what held before still holds");
            if let HostControlError::Config(problems) = error {
                for problem in problems {
                    tracing::error!(place = problem.location, key = problem.key, "{}", problem.detail);
                }
            }
        }
    }
}

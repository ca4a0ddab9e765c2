//! Signals that stop or reload a running server.

use std::{io, sync::Arc};

use tokio::signal::unix::{Signal, SignalKind, signal};
use toolhub::server::HostControlError;

use super::daemon::Daemon;

/// Resolves on the first stop signal. Listens from the call on; before it, the signal would kill the process.
pub(super) fn stop_requested() -> impl Future<Output = ()> + Send {
    let signals = ShutdownSignals::listen();
    async move {
        let Ok(mut signals) = signals else { return };
        signals.next().await;
        tracing::info!("shutting down: waiting for running calls; a second signal stops immediately");
    }
}

/// Resolves on the second stop signal, counted from the call on.
pub(super) fn second_stop_requested() -> impl Future<Output = ()> + Send {
    let signals = ShutdownSignals::listen();
    async move {
        let Ok(mut signals) = signals else { return };
        signals.next().await;
        signals.next().await;
    }
}

/// SIGTERM and Ctrl-C. Listens from its creation on; before it, the signals would kill the process. None is lost between two waits.
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

/// Reloads the config on SIGHUP. Listens from the call on; before it, the signal would kill the process.
pub(super) fn reload_on_hangup(daemon: Arc<Daemon>) -> impl Future<Output = ()> {
    let hangup = signal(SignalKind::hangup());
    async move {
        let Ok(mut hangup) = hangup else { return };
        while hangup.recv().await.is_some() {
            reload(&daemon, "SIGHUP").await;
        }
    }
}

/// Reloads the config and logs the result.
pub(super) async fn reload(daemon: &Daemon, trigger: &str) {
    match daemon.reload_config().await {
        Ok(report) => tracing::info!(
            trigger,
            added = ?report.added,
            replaced = ?report.replaced,
            removed = ?report.removed,
            sections = ?report.sections,
            needs_restart = ?report.needs_restart,
            "config reloaded"
        ),
        Err(error) => {
            tracing::error!(trigger, %error, "config reload failed; keeping the previous config");
            if let HostControlError::Config(problems) = error {
                for problem in problems {
                    tracing::error!(
                        location = problem.location,
                        key = problem.key,
                        hint = problem.hint,
                        "{}",
                        problem.detail
                    );
                }
            }
        }
    }
}

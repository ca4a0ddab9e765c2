//! What a person or a supervisor tells a running server by signals.

use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};
use toolhub::server::StewardError;

use super::house::House;

/// Ready when the process is asked to stop.
pub(super) async fn asked_to_stop() {
    asked().await;
    tracing::info!("stopping: calls that run come to their end; asked once more it stops at once");
}

/// Ready when the process is asked to stop a second time.
pub(super) async fn asked_twice() {
    asked().await;
    asked().await;
}

async fn asked() {
    let Ok(mut term) = signal(SignalKind::terminate()) else { return };
    tokio::select! {
        _ = term.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}

/// Reads the config again whenever the process is told to, from the moment this is called: before that the signal would end it.
pub(super) fn reload_on_hangup(house: Arc<House>) -> impl Future<Output = ()> {
    let hangup = signal(SignalKind::hangup());
    async move {
        let Ok(mut hangup) = hangup else { return };
        while hangup.recv().await.is_some() {
            reload(&house, "told to").await;
        }
    }
}

/// Reads the config again and says what came of it.
pub(super) async fn reload(house: &House, why: &str) {
    match house.read_again().await {
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
            if let StewardError::Config(problems) = error {
                for problem in problems {
                    tracing::error!(place = problem.place, key = problem.key, "{}", problem.detail);
                }
            }
        }
    }
}

//! A run, as whoever began it holds it: its end can be waited for, and it can be stopped.

use tokio::sync::watch;
use toolhub_core::{CancellationToken, ids::RunId};

use crate::record::{RunRecord, RunStatus};

/// A run that goes on by itself.
#[derive(Debug, Clone)]
pub struct RunHandle {
    pub(super) record_rx: watch::Receiver<RunRecord>,
    pub(super) replayed: bool,
    pub(super) cancel: Option<CancellationToken>,
}

impl RunHandle {
    /// The run.
    #[must_use]
    pub fn id(&self) -> RunId {
        self.record_rx.borrow().id
    }

    /// Whether the same message had begun this run before.
    #[must_use]
    pub fn is_replayed(&self) -> bool {
        self.replayed
    }

    /// The run as it stands.
    #[must_use]
    pub fn record(&self) -> RunRecord {
        self.record_rx.borrow().clone()
    }

    /// Waits until the run has ended, or waits for somebody. A run that its process lets go of is told as it stands then.
    pub async fn wait_while_running(&mut self) -> RunRecord {
        self.wait_until(|status| status != RunStatus::Running).await
    }

    /// Waits until the run has ended. A run that its process lets go of is told as it stands then.
    pub async fn wait_ended(&mut self) -> RunRecord {
        self.wait_until(RunStatus::is_end).await
    }

    /// Whether the process has let go of the run before its end.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.record_rx.has_changed().is_err() && !self.record_rx.borrow().status.is_end()
    }

    /// Asks the run to stop. It still has an end: cancelled, or what it was if that was faster.
    pub fn cancel(&self) {
        if let Some(cancel) = &self.cancel {
            cancel.cancel();
        }
    }

    async fn wait_until(&mut self, until: impl Fn(RunStatus) -> bool) -> RunRecord {
        let found = self.record_rx.wait_for(|record| until(record.status)).await.ok().map(|record| record.clone());
        found.unwrap_or_else(|| self.record())
    }
}

//! The handle of a run: waits for its end, and cancels it.

use tokio::sync::watch;
use toolhub_core::{CancellationToken, ids::RunId};

use crate::record::{RunRecord, RunStatus};

/// A run that continues in the background.
#[derive(Debug, Clone)]
pub struct RunHandle {
    pub(super) record_rx: watch::Receiver<RunRecord>,
    pub(super) replayed: bool,
    /// Whether the run is not driven here: then its events may not arrive here.
    pub(super) remote: bool,
    pub(super) cancel: Option<CancellationToken>,
}

impl RunHandle {
    /// The run's id.
    #[must_use]
    pub fn id(&self) -> RunId {
        self.record_rx.borrow().id
    }

    /// Whether the same message started this run before.
    #[must_use]
    pub fn is_replayed(&self) -> bool {
        self.replayed
    }

    /// The current record of the run.
    #[must_use]
    pub fn record(&self) -> RunRecord {
        self.record_rx.borrow().clone()
    }

    /// Waits until the run has ended, or awaits an approval or an external result. If its process abandons the run,
    /// returns the record at that point.
    pub async fn wait_while_running(&mut self) -> RunRecord {
        self.wait_until(|status| status != RunStatus::Running).await
    }

    /// Waits until the run has ended. If its process abandons the run, returns the record at that point.
    pub async fn wait_ended(&mut self) -> RunRecord {
        self.wait_until(RunStatus::is_end).await
    }

    /// Whether the run is known from the store only, so that its events may not arrive here.
    pub(crate) fn is_remote(&self) -> bool {
        self.remote
    }

    /// Whether the process stopped driving the run before its end.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.record_rx.has_changed().is_err() && !self.record_rx.borrow().status.is_end()
    }

    /// Requests cancellation. The run still ends on its own: as cancelled, or with its result if that came first.
    pub fn cancel(&self) {
        if let Some(cancel) = &self.cancel {
            cancel.cancel();
        }
    }

    async fn wait_until(&mut self, condition: impl Fn(RunStatus) -> bool) -> RunRecord {
        let record = self.record_rx.wait_for(|record| condition(record.status)).await.ok().map(|record| record.clone());
        record.unwrap_or_else(|| self.record())
    }
}

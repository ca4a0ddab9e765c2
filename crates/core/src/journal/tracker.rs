//! Live status of a call that runs in its own task.
//!
//! In: status updates of the pipeline stages, and reports of external results. Out: the current record; whether the
//! call is journaled, so that its caller can disconnect and poll; and cancellation. Plain calls have no tracker: they
//! run in their caller's task.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{CallRecord, OpenCall};
use crate::call::{Call, CallHead, ReportError};
use toolhub_types::{
    error::ToolError, ids::ApprovalId, json::CompactJson, outcome::Status, timestamp::Timestamp, tool::ToolName,
};

/// The live status of a call.
pub(crate) struct CallTracker {
    pub(crate) head: Arc<CallHead>,
    pub(crate) cancel: CancellationToken,
    state: Mutex<TrackerState>,
    changed: Notify,
}

struct TrackerState {
    status: Status,
    /// The approval it waits for.
    approval: Option<ApprovalId>,
    /// Set when the call waits or runs externally; `null` before.
    arguments: CompactJson,
    /// Its open record, once its tool has started.
    started: Option<Arc<OpenCall>>,
    /// Its open record, if the journal got it before the tool started.
    preopened: Option<Arc<OpenCall>>,
    /// Whether the call is in the journal.
    journaled: bool,
    /// Whether the journal may have the call although the store did not say so, and another node may resume it.
    may_be_resumed: bool,
    /// Whether the call stays open in the journal, for recovery at the next start.
    left_for_recovery: bool,
    /// Whether the shutdown of the hub cancelled it, rather than a request.
    cancelled_by_shutdown: bool,
    /// The state of the external execution.
    external: ExternalWork,
    /// The deadline for the external result, once the external execution has started.
    external_until: Option<Timestamp>,
    /// Whether the call has stopped running.
    ended: bool,
}

/// The state of an external execution.
enum ExternalWork {
    /// The call is not executed externally.
    NotExternal,
    /// The external execution has not started yet.
    NotStarted,
    /// The external execution is in progress.
    InProgress,
    /// The result was reported.
    Reported(Result<Value, ToolError>),
    /// The result was taken, or the deadline has passed.
    Closed,
}

impl CallTracker {
    pub(crate) fn new(call: &Call, cancel: CancellationToken) -> Arc<Self> {
        let state = TrackerState {
            status: Status::Validating,
            approval: None,
            arguments: Value::Null.into(),
            started: None,
            preopened: None,
            journaled: false,
            may_be_resumed: false,
            left_for_recovery: false,
            cancelled_by_shutdown: false,
            external: if call.external.is_some() { ExternalWork::NotStarted } else { ExternalWork::NotExternal },
            external_until: None,
            ended: false,
        };
        Arc::new(Self { head: call.head.clone(), cancel, state: Mutex::new(state), changed: Notify::new() })
    }

    /// Records that the tool starts, and the open record of the call if it has one.
    pub(crate) fn set_executing(&self, open: Option<Arc<OpenCall>>) {
        let mut state = self.lock();
        (state.status, state.approval, state.started) = (Status::Executing, None, open);
    }

    /// Updates the status.
    pub(crate) fn set_status(&self, status: Status) {
        let mut state = self.lock();
        (state.status, state.approval) = (status, None);
    }

    /// Records that the call waits in the queue or for an approval.
    pub(crate) fn set_waiting(&self, status: Status, approval: Option<ApprovalId>, arguments: &CompactJson) {
        let mut state = self.lock();
        (state.status, state.approval) = (status, approval);
        if state.arguments.is_null() {
            state.arguments = arguments.clone();
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Records that the journal has the call before its tool starts.
    pub(crate) fn set_journaled(&self, open: Arc<OpenCall>) {
        let mut state = self.lock();
        (state.preopened, state.journaled) = (Some(open), true);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Starts the external execution with these arguments.
    pub(crate) fn start_external_work(&self, arguments: &CompactJson, until: Timestamp) {
        let mut state = self.lock();
        state.arguments = arguments.clone();
        (state.external, state.external_until) = (ExternalWork::InProgress, Some(until));
        drop(state);
        self.changed.notify_waiters();
    }

    /// The deadline for the external result.
    pub(crate) fn external_until(&self) -> Option<Timestamp> {
        self.lock().external_until
    }

    /// The arguments, while the external execution is in progress.
    pub(crate) fn external_arguments(&self) -> Option<Value> {
        let state = self.lock();
        let arguments = matches!(state.external, ExternalWork::InProgress).then(|| state.arguments.clone());
        drop(state);
        arguments.map(CompactJson::into_value)
    }

    /// Reports the external result. After `Ok` the call ends with this result.
    pub(crate) fn report(&self, result: Result<Value, ToolError>) -> Result<(), ReportError> {
        let mut state = self.lock();
        match state.external {
            ExternalWork::NotExternal => return Err(ReportError::NotExternal),
            ExternalWork::NotStarted => return Err(ReportError::Early),
            ExternalWork::Reported(_) | ExternalWork::Closed => return Err(ReportError::Late),
            ExternalWork::InProgress => state.external = ExternalWork::Reported(result),
        }
        drop(state);
        self.changed.notify_waiters();
        Ok(())
    }

    /// Waits for the external result.
    pub(crate) async fn wait_report(&self) -> Result<Value, ToolError> {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if matches!(self.lock().external, ExternalWork::Reported(_))
                && let Some(result) = self.take_report()
            {
                return result;
            }
            changed.await;
        }
    }

    /// Takes the external result, if it was reported. Later reports are refused.
    pub(crate) fn take_report(&self) -> Option<Result<Value, ToolError>> {
        match std::mem::replace(&mut self.lock().external, ExternalWork::Closed) {
            ExternalWork::Reported(result) => Some(result),
            _ => None,
        }
    }

    /// Records that the call has stopped running.
    pub(crate) fn mark_ended(&self) {
        self.lock().ended = true;
        self.changed.notify_waiters();
    }

    /// Waits until the call has stopped running.
    pub(crate) async fn wait_ended(&self) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.lock().ended {
                return;
            }
            changed.await;
        }
    }

    /// Takes the open record, which the caller of this method must close if the call is refused.
    pub(crate) fn take_preopened(&self) -> Option<Arc<OpenCall>> {
        self.lock().preopened.take()
    }

    /// Leaves the call open in the journal for recovery at the next start; `false` if the journal does not have it.
    pub(crate) fn leave_for_recovery(&self) -> bool {
        let mut state = self.lock();
        state.left_for_recovery = state.preopened.is_some();
        state.left_for_recovery
    }

    /// Cancels the call because of the shutdown, unless it was cancelled before.
    pub(crate) fn cancel_by_shutdown(&self) {
        if !self.cancel.is_cancelled() {
            self.lock().cancelled_by_shutdown = true;
            self.cancel.cancel();
        }
    }

    /// Whether the shutdown cancelled the call.
    pub(crate) fn is_cancelled_by_shutdown(&self) -> bool {
        self.lock().cancelled_by_shutdown
    }

    /// Whether the call was left for recovery at the next start.
    pub(crate) fn is_left_for_recovery(&self) -> bool {
        self.lock().left_for_recovery
    }

    /// Waits until the call is journaled and waits or runs; returns the approval it waits for, if any.
    pub(crate) async fn wait_accepted(&self) -> Option<ApprovalId> {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            {
                let state = self.lock();
                // The journal write comes before the approval request, so check the status too.
                if state.journaled && state.status != Status::Validating {
                    return state.approval;
                }
            }
            changed.await;
        }
    }

    /// Records that the store did not say whether the journal has the call, which another node could resume.
    pub(crate) fn set_may_be_resumed(&self) {
        self.lock().may_be_resumed = true;
    }

    /// Whether another node may resume the call although it was refused here.
    pub(crate) fn may_be_resumed(&self) -> bool {
        self.lock().may_be_resumed
    }

    /// Whether the journal has the call: as an open one, or as one that has ended.
    pub(crate) fn is_in_journal(&self) -> bool {
        let state = self.lock();
        state.journaled || state.started.is_some()
    }

    /// The current status, and the approval it waits for.
    pub(crate) fn status(&self) -> (Status, Option<ApprovalId>) {
        let state = self.lock();
        (state.status, state.approval)
    }

    /// The current record; `None` if the name is not a valid tool name.
    pub(crate) fn record(&self) -> Option<CallRecord> {
        let tool = ToolName::new(self.head.tool.clone()).ok()?;
        let (status, approval, external_until, arguments) = {
            let state = self.lock();
            let arguments = match &state.started {
                Some(open) => open.record.arguments.clone(),
                None => state.arguments.clone(),
            };
            (state.status, state.approval, state.external_until, arguments)
        };
        let record = CallRecord::opened(&self.head, tool, arguments.into_value(), self.head.arrived_at);
        Some(CallRecord { status, approval, external_until, ..record })
    }

    fn lock(&self) -> MutexGuard<'_, TrackerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

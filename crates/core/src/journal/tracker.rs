//! Where a call on a task of its own is on its way, for others who look.
//!
//! In: what the doors say as the call passes them. Out: its record as it would be written now; whether the journal has it, so
//! that its caller may be told to come back; and a way to cancel it. Plain calls have none: they run in their caller's task.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{CallRecord, OpenCall};
use crate::call::{Call, CallHead, ReportError};
use toolhub_types::{error::ToolError, ids::ApprovalId, outcome::Status, timestamp::Timestamp, tool::ToolName};

/// Where a call is.
pub(crate) struct CallTracker {
    pub(crate) head: Arc<CallHead>,
    pub(crate) cancel: CancellationToken,
    state: Mutex<TrackerState>,
    changed: Notify,
}

struct TrackerState {
    status: Status,
    /// The question it waits for.
    approval: Option<ApprovalId>,
    /// Known once the call waits; before that nobody has the time to look.
    arguments: Value,
    /// Its record in the journal, where it was written down ahead of its tool.
    preopened: Option<Box<OpenCall>>,
    /// The journal has it.
    journaled: bool,
    /// It stays in the journal as it is, for the next start.
    left_for_recovery: bool,
    /// It was cancelled because the hub goes down, and not because anybody wants it to end.
    cancelled_by_shutdown: bool,
    /// What is known of its result, if somebody outside does the work.
    external: ExternalWork,
    /// Until when the result must be there, once the work was handed out.
    external_until: Option<Timestamp>,
    /// It does not run any more.
    ended: bool,
}

/// How far the work of a call is that somebody outside does.
enum ExternalWork {
    /// Nobody outside has anything to do with it.
    NotExternal,
    /// It was not handed out yet.
    NotStarted,
    /// Somebody does it.
    InProgress,
    /// It is done.
    Reported(Result<Value, ToolError>),
    /// The result was taken, or it is too late for one.
    Closed,
}

impl CallTracker {
    pub(crate) fn new(call: &Call, cancel: CancellationToken) -> Arc<Self> {
        let stage = TrackerState {
            status: Status::Validating,
            approval: None,
            arguments: Value::Null,
            preopened: None,
            journaled: false,
            left_for_recovery: false,
            cancelled_by_shutdown: false,
            external: if call.external.is_some() { ExternalWork::NotStarted } else { ExternalWork::NotExternal },
            external_until: None,
            ended: false,
        };
        Arc::new(Self { head: call.head.clone(), cancel, state: Mutex::new(stage), changed: Notify::new() })
    }

    /// The call has come so far.
    pub(crate) fn set_status(&self, status: Status) {
        let mut stage = self.lock();
        (stage.status, stage.approval) = (status, None);
    }

    /// The call waits, for its turn or for a person.
    pub(crate) fn set_waiting(&self, status: Status, asked: Option<ApprovalId>, arguments: &Value) {
        let mut stage = self.lock();
        (stage.status, stage.approval) = (status, asked);
        if stage.arguments.is_null() {
            stage.arguments = arguments.clone();
        }
        drop(stage);
        self.changed.notify_waiters();
    }

    /// The journal has the call, ahead of its tool.
    pub(crate) fn set_journaled(&self, open: &OpenCall) {
        let mut stage = self.lock();
        (stage.preopened, stage.journaled) = (Some(Box::new(open.clone())), true);
        drop(stage);
        self.changed.notify_waiters();
    }

    /// Somebody outside may do the work from here on, with these arguments.
    pub(crate) fn start_external_work(&self, arguments: &Value, until: Timestamp) {
        let mut stage = self.lock();
        stage.arguments = arguments.clone();
        (stage.external, stage.external_until) = (ExternalWork::InProgress, Some(until));
        drop(stage);
        self.changed.notify_waiters();
    }

    /// Until when the result of a call must be there whose work was handed out.
    pub(crate) fn external_until(&self) -> Option<Timestamp> {
        self.lock().external_until
    }

    /// The arguments of a call whose work somebody outside does now.
    pub(crate) fn external_arguments(&self) -> Option<Value> {
        let stage = self.lock();
        matches!(stage.external, ExternalWork::InProgress).then(|| stage.arguments.clone())
    }

    /// The work is done. Whoever is told yes will see the call end with this result.
    pub(crate) fn report(&self, result: Result<Value, ToolError>) -> Result<(), ReportError> {
        let mut stage = self.lock();
        match stage.external {
            ExternalWork::NotExternal => return Err(ReportError::NotExternal),
            ExternalWork::NotStarted => return Err(ReportError::Early),
            ExternalWork::Reported(_) | ExternalWork::Closed => return Err(ReportError::Late),
            ExternalWork::InProgress => stage.external = ExternalWork::Reported(result),
        }
        drop(stage);
        self.changed.notify_waiters();
        Ok(())
    }

    /// Waits for the result.
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

    /// The result, if it is there. After this it is too late for one.
    pub(crate) fn take_report(&self) -> Option<Result<Value, ToolError>> {
        match std::mem::replace(&mut self.lock().external, ExternalWork::Closed) {
            ExternalWork::Reported(result) => Some(result),
            _ => None,
        }
    }

    /// The call does not run any more.
    pub(crate) fn mark_ended(&self) {
        self.lock().ended = true;
        self.changed.notify_waiters();
    }

    /// Waits until the call does not run any more.
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

    /// The record that was written ahead and must be closed if the call is refused. From here on it is its owner's affair.
    pub(crate) fn take_preopened(&self) -> Option<Box<OpenCall>> {
        self.lock().preopened.take()
    }

    /// The call stays in the journal as it is, for the next start; says no where the journal does not have it.
    pub(crate) fn leave_for_recovery(&self) -> bool {
        let mut stage = self.lock();
        stage.left_for_recovery = stage.preopened.is_some();
        stage.left_for_recovery
    }

    /// Cancels it because the hub goes down, unless it was cancelled before.
    pub(crate) fn cancel_by_shutdown(&self) {
        if !self.cancel.is_cancelled() {
            self.lock().cancelled_by_shutdown = true;
            self.cancel.cancel();
        }
    }

    /// Whether it was cancelled because the hub goes down.
    pub(crate) fn is_cancelled_by_shutdown(&self) -> bool {
        self.lock().cancelled_by_shutdown
    }

    /// Whether it was left for the next start.
    pub(crate) fn is_left_for_recovery(&self) -> bool {
        self.lock().left_for_recovery
    }

    /// Waits until the journal has the call and it waits or runs; answers the question it waits for, if it does.
    pub(crate) async fn wait_accepted(&self) -> Option<ApprovalId> {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            {
                let stage = self.lock();
                // It is written down before its question is asked.
                if stage.journaled && stage.status != Status::Validating {
                    return stage.approval;
                }
            }
            changed.await;
        }
    }

    /// How the call stands now.
    pub(crate) fn status(&self) -> (Status, Option<ApprovalId>) {
        let stage = self.lock();
        (stage.status, stage.approval)
    }

    /// Its record, as it would be written now; none where its name is no tool's.
    pub(crate) fn record(&self) -> Option<CallRecord> {
        let tool = ToolName::new(self.head.tool.clone()).ok()?;
        let stage = self.lock();
        Some(CallRecord {
            status: stage.status,
            approval: stage.approval,
            external_until: stage.external_until,
            ..CallRecord::opened(&self.head, tool, stage.arguments.clone(), self.head.arrived_at)
        })
    }

    fn lock(&self) -> MutexGuard<'_, TrackerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

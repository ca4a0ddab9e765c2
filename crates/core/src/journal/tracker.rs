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
    stage: Mutex<Stage>,
    changed: Notify,
}

struct Stage {
    status: Status,
    /// The question it waits for.
    asked: Option<ApprovalId>,
    /// Known once the call waits; before that nobody has the time to look.
    arguments: Value,
    /// Its record in the journal, where it was written down ahead of its tool.
    ahead: Option<Box<OpenCall>>,
    /// The journal has it.
    written: bool,
    /// It stays in the journal as it is, for the next start.
    left: bool,
    /// It was cancelled because the hub goes down, and not because anybody wants it to end.
    cut_off: bool,
    /// What is known of its result, if somebody outside does the work.
    outside: Outside,
    /// Until when the result must be there, once the work was handed out.
    external_until: Option<Timestamp>,
    /// It does not run any more.
    ended: bool,
}

/// How far the work of a call is that somebody outside does.
enum Outside {
    /// Nobody outside has anything to do with it.
    Never,
    /// It was not handed out yet.
    Later,
    /// Somebody does it.
    HandedOut,
    /// It is done.
    Reported(Result<Value, ToolError>),
    /// The result was taken, or it is too late for one.
    Over,
}

impl CallTracker {
    pub(crate) fn of(call: &Call, cancel: CancellationToken) -> Arc<Self> {
        let stage = Stage {
            status: Status::Validating,
            asked: None,
            arguments: Value::Null,
            ahead: None,
            written: false,
            left: false,
            cut_off: false,
            outside: if call.external.is_some() { Outside::Later } else { Outside::Never },
            external_until: None,
            ended: false,
        };
        Arc::new(Self { head: call.head.clone(), cancel, stage: Mutex::new(stage), changed: Notify::new() })
    }

    /// The call has come so far.
    pub(crate) fn at(&self, status: Status) {
        let mut stage = self.stage();
        (stage.status, stage.asked) = (status, None);
    }

    /// The call waits, for its turn or for a person.
    pub(crate) fn waits(&self, status: Status, asked: Option<ApprovalId>, arguments: &Value) {
        let mut stage = self.stage();
        (stage.status, stage.asked) = (status, asked);
        if stage.arguments.is_null() {
            stage.arguments = arguments.clone();
        }
        drop(stage);
        self.changed.notify_waiters();
    }

    /// The journal has the call, ahead of its tool.
    pub(crate) fn written(&self, open: &OpenCall) {
        let mut stage = self.stage();
        (stage.ahead, stage.written) = (Some(Box::new(open.clone())), true);
        drop(stage);
        self.changed.notify_waiters();
    }

    /// Somebody outside may do the work from here on, with these arguments.
    pub(crate) fn hands_out(&self, arguments: &Value, until: Timestamp) {
        let mut stage = self.stage();
        stage.arguments = arguments.clone();
        (stage.outside, stage.external_until) = (Outside::HandedOut, Some(until));
        drop(stage);
        self.changed.notify_waiters();
    }

    /// Until when the result of a call must be there whose work was handed out.
    pub(crate) fn external_until(&self) -> Option<Timestamp> {
        self.stage().external_until
    }

    /// The arguments of a call whose work somebody outside does now.
    pub(crate) fn handed_out(&self) -> Option<Value> {
        let stage = self.stage();
        matches!(stage.outside, Outside::HandedOut).then(|| stage.arguments.clone())
    }

    /// The work is done. Whoever is told yes will see the call end with this result.
    pub(crate) fn report(&self, result: Result<Value, ToolError>) -> Result<(), ReportError> {
        let mut stage = self.stage();
        match stage.outside {
            Outside::Never => return Err(ReportError::NotExternal),
            Outside::Later => return Err(ReportError::Early),
            Outside::Reported(_) | Outside::Over => return Err(ReportError::Late),
            Outside::HandedOut => stage.outside = Outside::Reported(result),
        }
        drop(stage);
        self.changed.notify_waiters();
        Ok(())
    }

    /// Waits for the result.
    pub(crate) async fn reported(&self) -> Result<Value, ToolError> {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if matches!(self.stage().outside, Outside::Reported(_))
                && let Some(result) = self.last_report()
            {
                return result;
            }
            changed.await;
        }
    }

    /// The result, if it is there. After this it is too late for one.
    pub(crate) fn last_report(&self) -> Option<Result<Value, ToolError>> {
        match std::mem::replace(&mut self.stage().outside, Outside::Over) {
            Outside::Reported(result) => Some(result),
            _ => None,
        }
    }

    /// The call does not run any more.
    pub(crate) fn ends(&self) {
        self.stage().ended = true;
        self.changed.notify_waiters();
    }

    /// Waits until the call does not run any more.
    pub(crate) async fn ended(&self) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.stage().ended {
                return;
            }
            changed.await;
        }
    }

    /// The record that was written ahead and must be closed if the call is refused. From here on it is its owner's affair.
    pub(crate) fn take_ahead(&self) -> Option<Box<OpenCall>> {
        self.stage().ahead.take()
    }

    /// The call stays in the journal as it is, for the next start; says no where the journal does not have it.
    pub(crate) fn leave(&self) -> bool {
        let mut stage = self.stage();
        stage.left = stage.ahead.is_some();
        stage.left
    }

    /// Cancels it because the hub goes down, unless it was cancelled before.
    pub(crate) fn cut_off(&self) {
        if !self.cancel.is_cancelled() {
            self.stage().cut_off = true;
            self.cancel.cancel();
        }
    }

    /// Whether it was cancelled because the hub goes down.
    pub(crate) fn is_cut_off(&self) -> bool {
        self.stage().cut_off
    }

    /// Whether it was left for the next start.
    pub(crate) fn is_left(&self) -> bool {
        self.stage().left
    }

    /// Waits until the journal has the call and it waits or runs; answers the question it waits for, if it does.
    pub(crate) async fn accepted(&self) -> Option<ApprovalId> {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            {
                let stage = self.stage();
                // It is written down before its question is asked.
                if stage.written && stage.status != Status::Validating {
                    return stage.asked;
                }
            }
            changed.await;
        }
    }

    /// How the call stands now.
    pub(crate) fn status(&self) -> (Status, Option<ApprovalId>) {
        let stage = self.stage();
        (stage.status, stage.asked)
    }

    /// Its record, as it would be written now; none where its name is no tool's.
    pub(crate) fn record(&self) -> Option<CallRecord> {
        let tool = ToolName::new(self.head.tool.clone()).ok()?;
        let stage = self.stage();
        Some(CallRecord {
            status: stage.status,
            approval: stage.asked,
            external_until: stage.external_until,
            ..CallRecord::opened(&self.head, tool, stage.arguments.clone(), self.head.arrived_at)
        })
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! The shared state of one step: the tool calls of one model response, and the order in which they may run.
//!
//! In: which calls are parallel-safe, and which depend on which; then the progress of each. Out: which calls may start.
//! `step/plan.rs` decides; `pipeline/batch.rs` runs the calls.

mod plan;

use std::{
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::Notify;

use plan::{CallProgress, Resumption};
pub(crate) use plan::{Plan, PlannedCall, earlier_dependencies};
use toolhub_types::ids::{ApprovalId, CallId};

/// Why a call of a step has started to wait, longer than for a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitReason {
    /// It awaits this approval.
    Approval(ApprovalId),
    /// It is external: a worker outside the hub reports the result.
    ExternalResult,
}

/// Callback for when a call of the step starts to wait.
pub(crate) type OnWait = Box<dyn Fn(CallId, WaitReason) + Send + Sync>;

/// A call's position among the calls of its step.
#[derive(Clone)]
pub(crate) struct StepCall {
    pub(crate) index: usize,
    pub(crate) step: Arc<Step>,
}

/// One step and the progress of its calls.
pub(crate) struct Step {
    plan: Mutex<Plan>,
    pub(crate) changed: Notify,
    on_wait: Option<OnWait>,
}

impl StepCall {
    /// The call awaits approval; others may overtake it.
    pub(crate) fn mark_awaiting_approval(&self, call: CallId, approval: ApprovalId) {
        self.step.with_plan(|plan| plan.mark_awaiting_approval(self.index));
        self.step.changed.notify_waiters();
        self.notify_wait(call, WaitReason::Approval(approval));
    }

    /// The call waits for an external worker. It counts as running.
    pub(crate) fn mark_external(&self, call: CallId) {
        self.notify_wait(call, WaitReason::ExternalResult);
    }

    fn notify_wait(&self, call: CallId, reason: WaitReason) {
        if let Some(on_wait) = &self.step.on_wait {
            on_wait(call, reason);
        }
    }

    /// The call is approved: waits until the plan lets it continue.
    pub(crate) async fn resume_after_approval(&self) {
        let mut resumption = self.step.with_plan(|plan| plan.mark_approved(self.index));
        self.step.changed.notify_waiters();
        while resumption == Resumption::Later {
            let mut changed = pin!(self.step.changed.notified());
            changed.as_mut().enable();
            if self.step.with_plan(|plan| plan.state(self.index)) != CallProgress::Approved {
                resumption = Resumption::Now;
            } else {
                changed.await;
            }
        }
    }
}

impl Step {
    /// A step none of whose calls has started.
    pub(crate) fn new(plan: Plan, on_wait: Option<OnWait>) -> Arc<Self> {
        Arc::new(Self { plan: Mutex::new(plan), changed: Notify::new(), on_wait })
    }

    pub(crate) fn with_plan<T>(&self, change: impl FnOnce(&mut Plan) -> T) -> T {
        change(&mut self.plan.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Marks the calls that may run now as running and returns them. An approved call that was held is among them; its
    /// own task continues it.
    pub(crate) fn begin_ready(&self) -> Vec<usize> {
        let ready = self.with_plan(|plan| {
            let ready = plan.ready();
            ready.iter().for_each(|index| plan.mark_running(*index));
            ready
        });
        if !ready.is_empty() {
            self.changed.notify_waiters();
        }
        ready
    }
}

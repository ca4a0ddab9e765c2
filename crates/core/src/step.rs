//! The order of the calls of one step: those a model asks for at once.
//!
//! In: which calls are safe, and which wait for which; then how far each is. Out: who may begin. `step/plan.rs` decides;
//! `pipeline/batch.rs` makes the calls.

mod plan;

use std::{
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::Notify;

pub(crate) use plan::{Plan, PlannedCall, earlier_dependencies};
use plan::{Resumption, State};
use toolhub_types::ids::{ApprovalId, CallId};

/// What a call of a step has begun to wait for, longer than for a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitReason {
    /// A person, who was asked this question.
    Approval(ApprovalId),
    /// The result, which somebody outside has to report.
    ExternalResult,
}

/// Told when a call of the step begins to wait.
pub(crate) type OnWait = Box<dyn Fn(CallId, WaitReason) + Send + Sync>;

/// A call's place among the calls of its step.
#[derive(Clone)]
pub(crate) struct StepCall {
    pub(crate) index: usize,
    pub(crate) step: Arc<Step>,
}

/// One step and how far its calls are.
pub(crate) struct Step {
    plan: Mutex<Plan>,
    pub(crate) changed: Notify,
    on_wait: Option<OnWait>,
}

impl StepCall {
    /// The call waits for a person; others may go past it.
    pub(crate) fn mark_awaiting_approval(&self, call: CallId, question: ApprovalId) {
        self.step.with_plan(|plan| plan.mark_awaiting_approval(self.index));
        self.step.changed.notify_waiters();
        self.notify_wait(call, WaitReason::Approval(question));
    }

    /// Somebody outside does the work of the call. It counts as running.
    pub(crate) fn mark_external(&self, call: CallId) {
        self.notify_wait(call, WaitReason::ExternalResult);
    }

    fn notify_wait(&self, call: CallId, waiting: WaitReason) {
        if let Some(hear) = &self.step.on_wait {
            hear(call, waiting);
        }
    }

    /// The person said yes: the call goes on when it is its turn.
    pub(crate) async fn resume_after_approval(&self) {
        let mut turn = self.step.with_plan(|plan| plan.mark_approved(self.index));
        self.step.changed.notify_waiters();
        while turn == Resumption::Later {
            let mut changed = pin!(self.step.changed.notified());
            changed.as_mut().enable();
            if self.step.with_plan(|plan| plan.state(self.index)) != State::Approved {
                turn = Resumption::Now;
            } else {
                changed.await;
            }
        }
    }
}

impl Step {
    /// A step none of whose calls has begun.
    pub(crate) fn new(plan: Plan, hear: Option<OnWait>) -> Arc<Self> {
        Arc::new(Self { plan: Mutex::new(plan), changed: Notify::new(), on_wait: hear })
    }

    pub(crate) fn with_plan<T>(&self, change: impl FnOnce(&mut Plan) -> T) -> T {
        change(&mut self.plan.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The calls that begin now. One that was held goes on by itself when it is told.
    pub(crate) fn begin_ready(&self) -> Vec<usize> {
        let ready = self.with_plan(|plan| {
            let ready = plan.ready();
            ready.iter().for_each(|at| plan.mark_running(*at));
            ready
        });
        if !ready.is_empty() {
            self.changed.notify_waiters();
        }
        ready
    }
}

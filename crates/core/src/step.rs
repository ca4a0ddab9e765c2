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

pub(crate) use plan::{Plan, Planned, earlier_bases};
use plan::{State, Turn};
use toolhub_types::ids::{ApprovalId, CallId};

/// What a call of a step has begun to wait for, longer than for a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Waiting {
    /// A person, who was asked this question.
    Person(ApprovalId),
    /// The result, which somebody outside has to report.
    Result,
}

/// Told when a call of the step begins to wait.
pub(crate) type Hear = Box<dyn Fn(CallId, Waiting) + Send + Sync>;

/// A call's place among the calls of its step.
#[derive(Clone)]
pub(crate) struct Member {
    pub(crate) at: usize,
    pub(crate) step: Arc<Step>,
}

/// One step and how far its calls are.
pub(crate) struct Step {
    plan: Mutex<Plan>,
    pub(crate) changed: Notify,
    hear: Option<Hear>,
}

impl Member {
    /// The call waits for a person; others may go past it.
    pub(crate) fn asks(&self, call: CallId, question: ApprovalId) {
        self.step.with(|plan| plan.asks(self.at));
        self.step.changed.notify_waiters();
        self.tell(call, Waiting::Person(question));
    }

    /// Somebody outside does the work of the call. It counts as running.
    pub(crate) fn hands_out(&self, call: CallId) {
        self.tell(call, Waiting::Result);
    }

    fn tell(&self, call: CallId, waiting: Waiting) {
        if let Some(hear) = &self.step.hear {
            hear(call, waiting);
        }
    }

    /// The person said yes: the call goes on when it is its turn.
    pub(crate) async fn goes_on(&self) {
        let mut turn = self.step.with(|plan| plan.goes_on(self.at));
        self.step.changed.notify_waiters();
        while turn == Turn::Later {
            let mut changed = pin!(self.step.changed.notified());
            changed.as_mut().enable();
            if self.step.with(|plan| plan.state(self.at)) != State::Held {
                turn = Turn::Now;
            } else {
                changed.await;
            }
        }
    }
}

impl Step {
    /// A step none of whose calls has begun.
    pub(crate) fn new(plan: Plan, hear: Option<Hear>) -> Arc<Self> {
        Arc::new(Self { plan: Mutex::new(plan), changed: Notify::new(), hear })
    }

    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut Plan) -> T) -> T {
        change(&mut self.plan.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The calls that begin now. One that was held goes on by itself when it is told.
    pub(crate) fn begin_ready(&self) -> Vec<usize> {
        let ready = self.with(|plan| {
            let ready = plan.ready();
            ready.iter().for_each(|at| plan.began(*at));
            ready
        });
        if !ready.is_empty() {
            self.changed.notify_waiters();
        }
        ready
    }
}

//! The calls of one step: those a model asks for at once.
//!
//! In: calls in their order. Out: their outcomes in the same order. Which call may run beside which is decided by
//! `step/plan.rs`; here they are started, and held where the plan says so.

mod plan;

use std::{
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
};

use futures_util::{StreamExt, future, stream::FuturesUnordered};
use tokio::sync::Notify;

use crate::{
    call::Call,
    engine::Engine,
    pipeline,
    registry::{Tool, Tools},
};
use plan::{Plan, Planned, State, Turn, earlier_bases};
use toolhub_types::{
    ids::{ApprovalId, CallId, ThreadId},
    outcome::Outcome,
    tool::DependsOn,
};

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
    at: usize,
    step: Arc<Step>,
}

/// One step and how far its calls are.
struct Step {
    plan: Mutex<Plan>,
    changed: Notify,
    hear: Option<Hear>,
}

/// Runs the calls of one step. The outcomes are in the order of the calls.
pub(crate) async fn run(engine: &Arc<Engine>, mut calls: Vec<Call>, hear: Option<Hear>) -> Vec<Outcome> {
    let tools: Vec<Option<Arc<Tool>>> = calls.iter().map(|call| find(&engine.registry.snapshot(), call)).collect();
    share_a_thread(&mut calls, &tools);
    let step = Arc::new(Step { plan: Mutex::new(plan(&calls, &tools)), changed: Notify::new(), hear });
    let mut waiting: Vec<Option<Call>> = calls.into_iter().map(Some).collect();
    let mut outcomes: Vec<Option<Outcome>> = waiting.iter().map(|_| None).collect();
    // Before the calls, so that it is dropped after them: those that are cancelled with the step know it by then.
    let _order = Order(&step);
    let mut running = FuturesUnordered::new();
    loop {
        let mut changed = pin!(step.changed.notified());
        changed.as_mut().enable();
        for at in step.begin_ready() {
            if let Some(mut call) = waiting[at].take() {
                call.member = Some(Member { at, step: step.clone() });
                running.push(async move { (at, pipeline::run(engine, Box::new(call)).await) });
            }
        }
        if running.is_empty() {
            break;
        }
        if let future::Either::Left((Some((at, outcome)), _)) = future::select(running.next(), changed).await {
            step.with(|plan| plan.ended(at, outcome.is_success()));
            outcomes[at] = Some(outcome);
        }
    }
    outcomes.into_iter().flatten().collect()
}

/// Keeps the order of a step for as long as somebody waits for it.
struct Order<'a>(&'a Step);

impl Drop for Order<'_> {
    /// A call that goes on without its caller would wait for ever for its turn: nobody hears any more that others end.
    fn drop(&mut self) {
        self.0.with(Plan::give_up);
        self.0.changed.notify_waiters();
    }
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
    fn with<T>(&self, change: impl FnOnce(&mut Plan) -> T) -> T {
        change(&mut self.plan.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The calls that begin now. One that was held goes on by itself when it is told.
    fn begin_ready(&self) -> Vec<usize> {
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

fn find(now: &Tools, call: &Call) -> Option<Arc<Tool>> {
    call.among.as_deref().unwrap_or(now).get(&call.tool).cloned()
}

fn plan(calls: &[Call], tools: &[Option<Arc<Tool>>]) -> Plan {
    let nothing = DependsOn::default();
    let names: Vec<(&str, &DependsOn)> = calls
        .iter()
        .zip(tools)
        .map(|(call, tool)| (call.tool.as_str(), tool.as_ref().map_or(&nothing, |tool| &tool.definition.depends_on)))
        .collect();
    let safe = |tool: &Option<Arc<Tool>>| {
        // A tool nobody knows does nothing.
        tool.as_ref().is_none_or(|tool| tool.definition.annotations.read_only || tool.limits.parallel_safe)
    };
    let planned = tools.iter().zip(earlier_bases(&names)).map(|(tool, bases)| Planned::new(safe(tool), bases));
    Plan::new(planned.collect())
}

/// Calls of one step that name no thread belong to the same conversation, if any of them needs one.
fn share_a_thread(calls: &mut [Call], tools: &[Option<Arc<Tool>>]) {
    let needs = calls
        .iter()
        .zip(tools)
        .any(|(call, tool)| call.thread.is_none() && tool.as_ref().is_some_and(|tool| tool.needs_thread));
    if needs {
        let thread = ThreadId::mint();
        for call in calls.iter_mut().filter(|call| call.thread.is_none()) {
            call.thread = Some(thread.clone());
        }
    }
}

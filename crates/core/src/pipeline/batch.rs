//! Makes the calls of one step, those a model asks for at once.
//!
//! In: calls in their order. Out: their outcomes in the same order. Which call may run beside which is decided by
//! `step.rs`; here they are started, and held where the plan says so.

use std::{pin::pin, sync::Arc};

use futures_util::{StreamExt, future, stream::FuturesUnordered};

use super::{Submission, launch};
use crate::{
    engine::Engine,
    execution::Tool,
    registry::Tools,
    step::{OnWait, Plan, PlannedCall, Step, StepCall, earlier_dependencies},
};
use toolhub_types::{ids::ThreadId, outcome::Outcome, tool::DependsOn};

/// Runs the calls of one step. The outcomes are in the order of the calls.
pub(crate) async fn run_batch(engine: &Arc<Engine>, mut calls: Vec<Submission>, hear: Option<OnWait>) -> Vec<Outcome> {
    let tools: Vec<Option<Arc<Tool>>> = calls.iter().map(|call| find_tool(&engine.registry.snapshot(), call)).collect();
    assign_shared_thread(&mut calls, &tools);
    let step = Step::new(plan(&calls, &tools), hear);
    let mut waiting: Vec<Option<Submission>> = calls.into_iter().map(Some).collect();
    let mut outcomes: Vec<Option<Outcome>> = waiting.iter().map(|_| None).collect();
    // Before the calls, so that it is dropped after them: those that are cancelled with the step know it by then.
    let _order = StepGuard(&step);
    let mut running = FuturesUnordered::new();
    loop {
        let mut changed = pin!(step.changed.notified());
        changed.as_mut().enable();
        for at in step.begin_ready() {
            if let Some(mut call) = waiting[at].take() {
                call.step_call = Some(StepCall { index: at, step: step.clone() });
                running.push(async move { (at, launch::run(engine, call).await) });
            }
        }
        if running.is_empty() {
            break;
        }
        if let future::Either::Left((Some((at, outcome)), _)) = future::select(running.next(), changed).await {
            step.with_plan(|plan| plan.mark_ended(at, outcome.is_success()));
            outcomes[at] = Some(outcome);
        }
    }
    outcomes.into_iter().flatten().collect()
}

/// Keeps the order of a step for as long as somebody waits for it.
struct StepGuard<'a>(&'a Step);

impl Drop for StepGuard<'_> {
    /// A call that goes on without its caller would wait for ever for its turn: nobody hears any more that others end.
    fn drop(&mut self) {
        self.0.with_plan(Plan::abandon);
        self.0.changed.notify_waiters();
    }
}

fn find_tool(now: &Tools, submission: &Submission) -> Option<Arc<Tool>> {
    submission.offer.as_deref().unwrap_or(now).get(&submission.call.tool).cloned()
}

fn plan(calls: &[Submission], tools: &[Option<Arc<Tool>>]) -> Plan {
    let nothing = DependsOn::default();
    let names: Vec<(&str, &DependsOn)> = calls
        .iter()
        .zip(tools)
        .map(|(call, tool)| {
            (call.call.tool.as_str(), tool.as_ref().map_or(&nothing, |tool| &tool.definition.depends_on))
        })
        .collect();
    let safe = |tool: &Option<Arc<Tool>>| {
        // A tool nobody knows does nothing.
        tool.as_ref().is_none_or(|tool| tool.definition.annotations.read_only || tool.limits.parallel_safe)
    };
    let planned =
        tools.iter().zip(earlier_dependencies(&names)).map(|(tool, bases)| PlannedCall::new(safe(tool), bases));
    Plan::new(planned.collect())
}

/// Calls of one step that name no thread belong to the same conversation, if any of them needs one.
fn assign_shared_thread(calls: &mut [Submission], tools: &[Option<Arc<Tool>>]) {
    let needs = calls
        .iter()
        .zip(tools)
        .any(|(call, tool)| call.call.thread.is_none() && tool.as_ref().is_some_and(|tool| tool.needs_thread));
    if needs {
        let thread = ThreadId::mint();
        for call in calls.iter_mut().filter(|call| call.call.thread.is_none()) {
            call.call.head_mut().thread = Some(thread.clone());
        }
    }
}

//! Runs the calls of one step: the tool calls of one model response.
//!
//! In: calls in their order. Out: their outcomes in the same order. `step.rs` decides which calls may run concurrently;
//! this file starts them when the plan allows it. A call whose idempotency key is held by a running call waits for that
//! call, so that a repeated batch keeps the order of its calls.

use std::{pin::pin, sync::Arc, time::Duration};

use futures_util::{StreamExt, future, stream::FuturesUnordered};

use super::{Submission, launch};
use crate::{
    call::{BatchProgress, CallReceipt},
    engine::Engine,
    execution::Tool,
    registry::Tools,
    step::{OnWait, Plan, PlannedCall, Step, StepCall, earlier_dependencies},
};
use toolhub_types::{
    error::{CallError, Detail, ErrorKind},
    ids::ThreadId,
    outcome::Outcome,
    tool::DependsOn,
};

/// How often a call on another node that has the same idempotency key is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Runs the calls of one step. The outcomes are in the order of the calls. `progress` is updated for a caller that does
/// not wait for them.
pub(crate) async fn run_batch(
    engine: &Arc<Engine>,
    mut calls: Vec<Submission>,
    on_wait: Option<OnWait>,
    progress: Option<&BatchProgress>,
) -> Vec<Outcome> {
    let tools: Vec<Option<Arc<Tool>>> = calls.iter().map(|call| find_tool(&engine.registry.snapshot(), call)).collect();
    assign_shared_thread(&mut calls, &tools);
    let step = Step::new(plan(&calls, &tools), on_wait);
    let mut submissions: Vec<Option<Submission>> = calls.into_iter().map(Some).collect();
    let mut outcomes: Vec<Option<Outcome>> = submissions.iter().map(|_| None).collect();
    // Declared before the calls, so that it is dropped after them: calls that are cancelled with the step are cancelled
    // before the plan is abandoned.
    let _guard = StepGuard(&step);
    let mut running = FuturesUnordered::new();
    loop {
        let mut changed = pin!(step.changed.notified());
        changed.as_mut().enable();
        let ready = step.begin_ready();
        if let Some(progress) = progress {
            progress.mark_started(&ready);
        }
        for index in ready {
            if let Some(mut call) = submissions[index].take() {
                call.step_call = Some(StepCall { index, step: step.clone() });
                running.push(async move { (index, run_call(engine, index, call, progress).await) });
            }
        }
        if running.is_empty() {
            break;
        }
        if let future::Either::Left((Some((index, outcome)), _)) = future::select(running.next(), changed).await {
            step.with_plan(|plan| plan.mark_ended(index, outcome.is_success()));
            if let Some(progress) = progress {
                progress.set(index, CallReceipt::Ended(outcome.clone()));
            }
            outcomes[index] = Some(outcome);
        }
    }
    outcomes.into_iter().flatten().collect()
}

/// Runs one call. If its idempotency key is held by a running call, waits for that call, and for its approval as long as
/// the caller waits for approvals.
async fn run_call(
    engine: &Arc<Engine>,
    index: usize,
    submission: Submission,
    progress: Option<&BatchProgress>,
) -> Outcome {
    if submission.call.idempotency_key.is_none() {
        return run_once(engine, index, submission, progress).await;
    }
    let Submission { call, offer, step_call } = submission;
    loop {
        let (offer, step_call) = (offer.clone(), step_call.clone());
        let outcome = run_once(engine, index, Submission { call: call.clone(), offer, step_call }, progress).await;
        let Some(error) = outcome.error.as_ref().filter(|error| error.kind == ErrorKind::IdempotencyInProgress) else {
            return outcome;
        };
        let live = error.running_call().and_then(|running| engine.live_calls.find(running));
        let approval = live.as_ref().map_or_else(|| error.approval(), |live| live.status().1);
        if let Some(approval) = approval.filter(|_| !call.waits_for_approval(engine.services.clock.instant())) {
            let pending = CallError::new(ErrorKind::ApprovalRequired).operator(error.operator.clone());
            let pending = pending.model(error.model.clone()).detail(Detail::Approval(approval));
            return Outcome { id: error.running_call().unwrap_or(outcome.id), error: Some(pending), ..outcome };
        }
        if let Some(progress) = progress {
            let (call, thread) = (error.running_call().unwrap_or(call.id), call.thread.clone());
            progress.set(
                index,
                match approval {
                    Some(approval) => CallReceipt::AwaitingApproval { call, approval, thread },
                    None => CallReceipt::Accepted { call, thread },
                },
            );
        }
        match (live, call.approval_until.filter(|_| approval.is_some())) {
            (None, _) => tokio::time::sleep(POLL_INTERVAL).await,
            (Some(live), None) => live.wait_ended().await,
            (Some(live), Some(until)) => drop(tokio::time::timeout_at(until, live.wait_ended()).await),
        }
    }
}

/// Makes a call once. With `progress` it runs without its caller, and is reported as soon as it is in the journal.
async fn run_once(engine: &Arc<Engine>, index: usize, call: Submission, progress: Option<&BatchProgress>) -> Outcome {
    let Some(progress) = progress else { return launch::run(engine, call).await };
    let mut pending = launch::start(engine, call);
    match pending.accepted().await {
        CallReceipt::Ended(outcome) => outcome,
        accepted => {
            progress.set(index, accepted);
            pending.outcome().await
        }
    }
}

/// Keeps the order of a step for as long as its caller waits.
struct StepGuard<'a>(&'a Step);

impl Drop for StepGuard<'_> {
    /// A call that outlives its caller would otherwise wait for its turn forever, because no task records the ends of
    /// the other calls any more.
    fn drop(&mut self) {
        self.0.with_plan(Plan::abandon);
        self.0.changed.notify_waiters();
    }
}

fn find_tool(current: &Tools, submission: &Submission) -> Option<Arc<Tool>> {
    submission.offer.as_deref().unwrap_or(current).get(&submission.call.tool).cloned()
}

fn plan(calls: &[Submission], tools: &[Option<Arc<Tool>>]) -> Plan {
    let no_dependencies = DependsOn::default();
    let names: Vec<(&str, &DependsOn)> = calls
        .iter()
        .zip(tools)
        .map(|(call, tool)| {
            (call.call.tool.as_str(), tool.as_ref().map_or(&no_dependencies, |tool| &tool.definition.depends_on))
        })
        .collect();
    let parallel_safe = |tool: &Option<Arc<Tool>>| {
        // A call of an unknown tool has no effect.
        tool.as_ref().is_none_or(|tool| tool.definition.annotations.read_only || tool.limits.parallel_safe)
    };
    let planned = tools
        .iter()
        .zip(earlier_dependencies(&names))
        .map(|(tool, bases)| PlannedCall::new(parallel_safe(tool), bases));
    Plan::new(planned.collect())
}

/// Gives the calls of one step that name no thread the same new one, if any of them needs a thread.
fn assign_shared_thread(calls: &mut [Submission], tools: &[Option<Arc<Tool>>]) {
    let needs = calls
        .iter()
        .zip(tools)
        .any(|(call, tool)| call.call.thread.is_none() && tool.as_ref().is_some_and(|tool| tool.needs_thread));
    if needs {
        let thread = ThreadId::mint();
        for call in calls.iter_mut().filter(|call| call.call.thread.is_none()) {
            call.call.head_mut().mint_thread(thread.clone());
        }
    }
}

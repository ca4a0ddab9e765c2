//! The calls of one step, made or found again.
//!
//! In: what the model asked for, with the ids the calls have here. Out: one result for each, always, in the words a model may read.
//! They go through the hub's doors as a step of their own, and go on when nobody waits for them: whoever drives the run next finds
//! them by their ids.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::watch;
use toolhub_core::{
    CallRequest, Cancellation, CancellationToken, Content, ErrorKind, Outcome, Status, ToolHub, Tools, WaitReason,
    backend::StoreError,
    events::{EventKind, MessageCall},
    ids::ThreadKey,
};

use crate::{
    message::{AskedCall, CallResult, Picture},
    plan::{AgentPlan, ToolExecution},
    record::{RunRecord, RunStatus},
    run::{NextAction, PlannedCall},
    run_store::OpenRun,
};

/// How much of arguments that cannot be read is shown.
const MALFORMED_PREVIEW_CHARS: usize = 200;

type CompletedCall = (CallResult, Status);

/// The step whose calls are made.
#[derive(Clone, Copy)]
pub(crate) struct Step<'a> {
    pub(crate) hub: &'a ToolHub,
    pub(crate) thread_key: &'a ThreadKey,
    /// What the agent is.
    pub(crate) plan: &'a AgentPlan,
    /// The run, as it is written down.
    pub(crate) open_run: &'a OpenRun,
    /// Whether an earlier driver may have begun the calls.
    pub(crate) resumed: bool,
    /// The run, as others see it.
    pub(crate) record_tx: &'a watch::Sender<RunRecord>,
}

/// Makes the calls of the step the run is in, until they are unwanted.
pub(crate) async fn execute_calls(
    step: Step<'_>,
    unwanted: &CancellationToken,
) -> Result<Vec<CompletedCall>, StoreError> {
    let NextAction::ExecuteCalls(planned) = step.open_run.run.next_action() else { return Ok(Vec::new()) };
    emit_tool_calls(step, planned);
    let mut ends: Vec<Option<CompletedCall>> = planned.iter().map(|call| reject_malformed(&call.asked)).collect();
    if step.resumed {
        for (end, call) in ends.iter_mut().zip(planned).filter(|(end, _)| end.is_none()) {
            *end = recover_call(step, call, unwanted).await?;
        }
    }
    // Whether a tool may be used now is decided at the doors, with a reason; one outside the toolset does not exist for the agent.
    let among = Arc::new(step.hub.tools().in_toolset(&step.plan.toolset));
    let missing: Vec<usize> = (0..planned.len()).filter(|at| ends[*at].is_none()).collect();
    let requests: Vec<CallRequest<'_>> =
        missing.iter().map(|at| request(step, &planned[*at], &among, unwanted)).collect();
    let (told, external) = (step.record_tx.clone(), planned.to_vec());
    let outcomes = step
        .hub
        .batch(requests)
        .on_wait(move |id, waiting| {
            let asked = external.iter().find(|call| call.id == id).map(|call| &call.asked.arguments);
            mark_waiting(&told, |record| record_waiting(record, id, &waiting, asked));
        })
        .await;
    for (at, outcome) in missing.into_iter().zip(outcomes) {
        let made_before =
            matches!(outcome.error_kind(), Some(ErrorKind::IdempotencyInProgress | ErrorKind::IdempotencyKeyReused));
        // Somebody else who drives the run was faster; what came of the call is the same for both.
        let end = if made_before { recover_concurrent_call(step, &planned[at], unwanted).await? } else { None };
        ends[at] = Some(end.unwrap_or_else(|| completed_call(&planned[at].asked, &outcome)));
    }
    Ok(ends.into_iter().flatten().collect())
}

fn request<'hub>(
    step: Step<'hub>,
    call: &PlannedCall,
    among: &Arc<Tools>,
    unwanted: &CancellationToken,
) -> CallRequest<'hub> {
    let Step { hub, thread_key, plan, open_run: open, .. } = step;
    let request = hub
        .call(call.asked.tool.clone(), call.asked.arguments.clone())
        .with_id(call.id)
        .tenant(thread_key.tenant.clone())
        .caller(open.caller.clone())
        .thread(thread_key.thread.as_str())
        .run(open.run.id)
        .model_call(call.asked.id.clone())
        .from_offer(among)
        .cancel_on(unwanted)
        .detached();
    let request = match &open.trace {
        Some(trace) => request.trace(trace.clone()),
        None => request,
    };
    match plan.execution {
        ToolExecution::Internal { max_retries: Some(retries) } => request.retries(retries),
        ToolExecution::Internal { max_retries: None } => request,
        ToolExecution::External { deadline } => request.external(deadline),
    }
}

/// What became of a call that an earlier driver may have made. None where it never began.
async fn recover_call(
    step: Step<'_>,
    call: &PlannedCall,
    unwanted: &CancellationToken,
) -> Result<Option<CompletedCall>, StoreError> {
    let Step { hub, thread_key, .. } = step;
    let Some(record) = hub.call_record(&thread_key.tenant, call.id).await? else { return Ok(None) };
    if record.status == Status::AwaitingApproval {
        mark_waiting(step.record_tx, |told| {
            if let Some(call) = told.calls.iter_mut().find(|it| it.id == call.id) {
                (call.status, call.approval) = (record.status, record.approval);
            }
        });
    }
    let ended = hub.wait_for_call(&thread_key.tenant, call.id);
    tokio::pin!(ended);
    let record = tokio::select! {
        record = &mut ended => record?,
        () = unwanted.cancelled() => match hub.cancel_call(&thread_key.tenant, call.id).await? {
            Cancellation::OnOtherNode | Cancellation::NotFound => None,
            _ => ended.await?,
        },
    };
    Ok(record.and_then(|record| record.outcome).map(|outcome| completed_call(&call.asked, &outcome)))
}

/// What became of a call that somebody else makes at this moment, and may not have written down yet.
async fn recover_concurrent_call(
    step: Step<'_>,
    call: &PlannedCall,
    unwanted: &CancellationToken,
) -> Result<Option<CompletedCall>, StoreError> {
    let ended = step.hub.wait_for_call(&step.thread_key.tenant, call.id);
    if let Some(record) = unwanted.run_until_cancelled(ended).await {
        record?;
    }
    recover_call(step, call, unwanted).await
}

/// What the model is told of a call.
fn completed_call(asked: &AskedCall, outcome: &Outcome) -> CompletedCall {
    let picture = |piece: &Content| match piece {
        Content::Image { data, mime_type } => Some(Picture { data: data.clone(), mime_type: mime_type.clone() }),
        _ => None,
    };
    let result = CallResult {
        id: asked.id.clone(),
        call_id: Some(outcome.id),
        tool: asked.tool.clone(),
        text: outcome.model_text().into_owned(),
        is_error: !outcome.is_success(),
        pictures: outcome.content.iter().filter_map(picture).collect(),
    };
    (result, outcome.status)
}

/// What the model is told of arguments that nobody can read: no call is made of them.
fn reject_malformed(asked: &AskedCall) -> Option<CompletedCall> {
    let written = asked.malformed.as_ref()?;
    let shown: String = written.chars().take(MALFORMED_PREVIEW_CHARS).collect();
    let text = format!(
        "The arguments of this call are not a JSON object, so it was not made. They began: {shown}\nCall `{}` again with a \
         complete JSON object; if your answer was cut off, make it shorter.",
        asked.tool
    );
    let (id, tool) = (asked.id.clone(), asked.tool.clone());
    Some((CallResult { id, call_id: None, tool, text, is_error: true, pictures: Vec::new() }, Status::Error))
}

/// What the model is told of a call whose result cannot be kept.
pub(crate) fn lost_result(call: &PlannedCall) -> CompletedCall {
    let text = "What came of this call could not be kept; it may have had its effect.".to_owned();
    let (id, tool) = (call.asked.id.clone(), call.asked.tool.clone());
    let result = CallResult { id, call_id: Some(call.id), tool, text, is_error: true, pictures: Vec::new() };
    (result, Status::Error)
}

/// A call of this step waits, for a person or for its result.
fn mark_waiting(told: &watch::Sender<RunRecord>, change: impl FnOnce(&mut RunRecord)) {
    told.send_modify(|record| {
        record.status = RunStatus::Waiting;
        change(record);
    });
}

/// Notes in the record that a call waits.
fn record_waiting(record: &mut RunRecord, id: toolhub_core::ids::CallId, waiting: &WaitReason, asked: Option<&Value>) {
    let Some(call) = record.calls.iter_mut().find(|call| call.id == id) else { return };
    match waiting {
        WaitReason::Approval(approval) => (call.status, call.approval) = (Status::AwaitingApproval, Some(*approval)),
        WaitReason::ExternalResult => (call.status, call.arguments) = (Status::Executing, asked.cloned()),
        _ => {}
    }
}

/// Tells listeners what the model asks for.
fn emit_tool_calls(step: Step<'_>, planned: &[PlannedCall]) {
    let calls = planned.iter().map(|call| MessageCall {
        id: call.id,
        tool: call.asked.tool.clone(),
        arguments: call.asked.arguments.clone(),
    });
    let (run_id, content) = (step.open_run.run.id, step.open_run.run.assistant_text().to_owned());
    step.hub.publish(
        &step.thread_key.tenant,
        &step.thread_key.thread,
        EventKind::MessageCompleted { run_id, role: "assistant".into(), content, calls: calls.collect() },
    );
}

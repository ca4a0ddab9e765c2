//! Executes the tool calls of one step, or recovers the results of calls that an earlier driver made.
//!
//! In: the calls the model requested, with the ids they have in the hub. Out: always one result for each, as text for
//! the model. The calls pass the hub's pipeline as one batch and are detached: if this driver dies, the next one finds
//! them by their ids.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::watch;
use toolhub_core::{
    CallRequest, Cancellation, CancellationToken, Content, ErrorKind, Outcome, Status, ToolHub, Tools, WaitReason,
    backend::StoreError,
    events::{EventKind, MessageCall},
    ids::{CallId, ThreadKey},
};

use crate::{
    definition::{AgentDefinition, ToolExecution},
    message::{CallResult, Image, ToolCall},
    record::{RunRecord, RunStatus},
    run::{NextAction, PlannedCall},
    run_store::OpenRun,
};

/// How many characters of malformed arguments are shown to the model.
const MALFORMED_PREVIEW_CHARS: usize = 200;

type CompletedCall = (CallResult, Status);

/// The step whose calls are executed.
#[derive(Clone, Copy)]
pub(crate) struct Step<'a> {
    pub(crate) hub: &'a ToolHub,
    pub(crate) thread_key: &'a ThreadKey,
    pub(crate) plan: &'a AgentDefinition,
    /// The run, as it is stored.
    pub(crate) open_run: &'a OpenRun,
    /// Whether an earlier driver may have started the calls.
    pub(crate) resumed: bool,
    /// The public record of the run.
    pub(crate) record_tx: &'a watch::Sender<RunRecord>,
}

/// Executes the calls of the run's current step, until they are cancelled.
pub(crate) async fn execute_calls(
    step: Step<'_>,
    cancel: &CancellationToken,
) -> Result<Vec<CompletedCall>, StoreError> {
    let NextAction::ExecuteCalls(planned) = step.open_run.run.next_action() else { return Ok(Vec::new()) };
    emit_tool_calls(step, planned);
    let mut results: Vec<Option<CompletedCall>> =
        planned.iter().map(|call| reject_malformed(step.hub, &call.tool_call)).collect();
    if step.resumed {
        for (result, call) in results.iter_mut().zip(planned).filter(|(result, _)| result.is_none()) {
            *result = recover_call(step, call, cancel).await?.or_else(|| reject_lost_arguments(call));
        }
    }
    // The pipeline decides, with a reason, whether a tool is available now; one outside the toolset does not exist for
    // the agent.
    let tools = Arc::new(step.hub.tools().in_toolset(&step.plan.toolset));
    let missing: Vec<usize> = (0..planned.len()).filter(|index| results[*index].is_none()).collect();
    let requests: Vec<CallRequest<'_>> =
        missing.iter().map(|index| request(step, &planned[*index], &tools, cancel)).collect();
    let (record_tx, waiting_calls) = (step.record_tx.clone(), planned.to_vec());
    let outcomes = step
        .hub
        .batch(requests)
        .on_wait(move |id, reason| {
            let arguments = waiting_calls.iter().find(|call| call.id == id).map(|call| &call.tool_call.arguments);
            mark_waiting(&record_tx, |record| record_waiting(record, id, &reason, arguments));
        })
        .await;
    for (index, outcome) in missing.into_iter().zip(outcomes) {
        let is_duplicate =
            matches!(outcome.error_kind(), Some(ErrorKind::IdempotencyInProgress | ErrorKind::IdempotencyKeyReused));
        // Another driver of the run has made the call; its result is the same for both.
        let result = if is_duplicate { recover_concurrent_call(step, &planned[index], cancel).await? } else { None };
        results[index] = Some(result.unwrap_or_else(|| completed_call(&planned[index].tool_call, &outcome)));
    }
    Ok(results.into_iter().flatten().collect())
}

fn request<'hub>(
    step: Step<'hub>,
    call: &PlannedCall,
    tools: &Arc<Tools>,
    cancel: &CancellationToken,
) -> CallRequest<'hub> {
    let Step { hub, thread_key, plan, open_run, .. } = step;
    let request = hub
        .call(call.tool_call.tool.clone(), call.tool_call.arguments.clone())
        .with_id(call.id)
        .tenant(thread_key.tenant.clone())
        .caller(open_run.caller.clone())
        .thread(thread_key.thread.as_str())
        .run(open_run.run.id)
        .model_call(call.tool_call.id.clone())
        .from_offer(tools)
        .cancel_on(cancel)
        .detached();
    let request = match &open_run.trace {
        Some(trace) => request.trace(trace.clone()),
        None => request,
    };
    match plan.execution {
        ToolExecution::Internal { max_retries: Some(retries) } => request.retries(retries),
        ToolExecution::Internal { max_retries: None } => request,
        ToolExecution::External { deadline } => request.external(deadline),
    }
}

/// The result of a call that an earlier driver may have made; `None` if it never started.
async fn recover_call(
    step: Step<'_>,
    call: &PlannedCall,
    cancel: &CancellationToken,
) -> Result<Option<CompletedCall>, StoreError> {
    let Step { hub, thread_key, .. } = step;
    let Some(record) = hub.call_record(&thread_key.tenant, call.id).await? else { return Ok(None) };
    if record.status == Status::AwaitingApproval {
        mark_waiting(step.record_tx, |run| {
            if let Some(call) = run.calls.iter_mut().find(|run_call| run_call.id == call.id) {
                (call.status, call.approval) = (record.status, record.approval);
            }
        });
    }
    let ended = hub.wait_for_call(&thread_key.tenant, call.id);
    tokio::pin!(ended);
    let record = tokio::select! {
        biased;
        record = &mut ended => record?,
        () = cancel.cancelled() => match hub.cancel_call(&thread_key.tenant, call.id).await? {
            Cancellation::NotRunning | Cancellation::NotFound => None,
            _ => ended.await?,
        },
    };
    Ok(record.and_then(|record| record.outcome).map(|outcome| completed_call(&call.tool_call, &outcome)))
}

/// The result of a call that another driver is making, and may not have journaled yet.
async fn recover_concurrent_call(
    step: Step<'_>,
    call: &PlannedCall,
    cancel: &CancellationToken,
) -> Result<Option<CompletedCall>, StoreError> {
    let ended = step.hub.wait_for_call(&step.thread_key.tenant, call.id);
    if let Some(record) = cancel.run_until_cancelled(ended).await {
        record?;
    }
    recover_call(step, call, cancel).await
}

/// The result of a call, for the model.
fn completed_call(tool_call: &ToolCall, outcome: &Outcome) -> CompletedCall {
    let image = |piece: &Content| match piece {
        Content::Image { data, mime_type } => Some(Image { data: data.clone(), mime_type: mime_type.clone() }),
        _ => None,
    };
    let result = CallResult {
        id: tool_call.id.clone(),
        call_id: Some(outcome.id),
        tool: tool_call.tool.clone(),
        text: outcome.model_text().into_owned(),
        is_error: !outcome.is_success(),
        images: outcome.content.iter().filter_map(image).collect(),
    };
    (result, outcome.status)
}

/// The error result for malformed arguments; no call is made with them.
fn reject_malformed(hub: &ToolHub, tool_call: &ToolCall) -> Option<CompletedCall> {
    let mut malformed = tool_call.malformed.clone()?;
    hub.redact_text(&mut malformed);
    let shown: String = malformed.chars().take(MALFORMED_PREVIEW_CHARS).collect();
    let text = format!(
        "The arguments of this call are not a JSON object, so it was not made. They began: {shown}\nCall `{}` again with a \
         complete JSON object; if your answer was cut off, make it shorter.",
        tool_call.tool
    );
    Some(not_made(tool_call, text))
}

/// The error result for a call whose secret arguments are lost.
fn reject_lost_arguments(call: &PlannedCall) -> Option<CompletedCall> {
    let text = "This call was not made: the process restarted, and its secret arguments are lost. Make it again.";
    call.arguments_lost.then(|| not_made(&call.tool_call, text.into()))
}

fn not_made(tool_call: &ToolCall, text: String) -> CompletedCall {
    let (id, tool) = (tool_call.id.clone(), tool_call.tool.clone());
    (CallResult { id, call_id: None, tool, text, is_error: true, images: Vec::new() }, Status::Error)
}

/// The error result for a call whose own result cannot be stored.
pub(crate) fn lost_result(call: &PlannedCall) -> CompletedCall {
    let text = "The result of this call could not be stored; the call may have had its effect.".to_owned();
    let (id, tool) = (call.tool_call.id.clone(), call.tool_call.tool.clone());
    let result = CallResult { id, call_id: Some(call.id), tool, text, is_error: true, images: Vec::new() };
    (result, Status::Error)
}

/// Marks the run as waiting, for an approval or for an external result.
fn mark_waiting(record_tx: &watch::Sender<RunRecord>, change: impl FnOnce(&mut RunRecord)) {
    record_tx.send_modify(|record| {
        record.status = RunStatus::Waiting;
        change(record);
    });
}

/// Notes in the record that a call waits, and for what.
fn record_waiting(record: &mut RunRecord, id: CallId, reason: &WaitReason, arguments: Option<&Value>) {
    let Some(call) = record.calls.iter_mut().find(|call| call.id == id) else { return };
    match reason {
        WaitReason::Approval(approval) => (call.status, call.approval) = (Status::AwaitingApproval, Some(*approval)),
        WaitReason::ExternalResult => (call.status, call.arguments) = (Status::Executing, arguments.cloned()),
        _ => {}
    }
}

/// Emits the calls that the model requests.
fn emit_tool_calls(step: Step<'_>, planned: &[PlannedCall]) {
    let calls = planned.iter().map(|call| MessageCall {
        id: call.id,
        tool: call.tool_call.tool.clone(),
        arguments: call.tool_call.arguments.clone(),
    });
    let (run_id, content) = (step.open_run.run.id, step.open_run.run.assistant_text().to_owned());
    step.hub.publish(
        &step.thread_key.tenant,
        &step.thread_key.thread,
        EventKind::MessageCompleted { run_id, role: "assistant".into(), content, calls: calls.collect() },
    );
}

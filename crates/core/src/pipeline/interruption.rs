//! Closes an open call that no process runs any more.
//!
//! In: an open call whose process died, or whose end could not be written when it came. Out: its record, closed as
//! `interrupted` or with its known outcome, and entries in the history of its states; or `false` if another node was
//! first. `hub/recovery.rs` decides whether its process is dead.

use std::{sync::Arc, time::Duration};

use serde_json::Value;
use smol_str::SmolStr;

use super::report;
use crate::{
    alerts::{Condition, Signal},
    engine::Engine,
    execution::Tool,
    journal::{CallRecord, CallTracker, OpenCall},
    requests,
};
use toolhub_state::{Draft, ExecutionHistory, HistoryEvent, PendingState};
use toolhub_storage::backend::{Backend, Batch, Durability, Partition, Row, StoreError, Table, Write};
use toolhub_types::{
    effect::Effect,
    error::{CallError, ErrorKind, ToolError},
    ids::Tenant,
    outcome::{Outcome, Status, WriteDurability},
    timestamp::Timestamp,
    tool::ToolName,
};

/// Shortest and longest time between two looks for the end of a call on another node.
const POLL_INTERVALS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// Closes an open call; returns `false` if another node has closed it or taken it over. If the store will never accept
/// the outcome, because it is too large or a row it touches is damaged, the call is closed with a shorter one: every
/// call must end.
pub(crate) async fn close_open_call(
    engine: &Engine,
    tenant: &Tenant,
    open: &OpenCall,
    outcome: &Outcome,
) -> Result<bool, StoreError> {
    let Engine { journal, services, .. } = engine;
    let now = services.clock.now();
    let record = &open.record;
    let commit = async |outcome: Outcome, extra_writes: Vec<Write>| {
        let mut batch = Batch::new(Partition::for_call(tenant.clone(), record.thread.as_ref(), record.id));
        let closed = record.clone().closed(outcome, &services.redactor);
        journal.close(&mut batch, &closed, Some(open.row_version), now)?;
        batch.writes.extend(extra_writes);
        batch.writes.extend(interruption_signal(engine, tenant, open, &closed.outcome)?);
        journal.store.commit(batch, now).await
    };
    let (history, separate_history) = history_writes(engine, tenant, open, outcome).await;
    let mut committed = commit(outcome.clone(), history).await;
    if let Err(error @ (StoreError::Refused(_) | StoreError::Damaged { .. })) = &committed {
        tracing::warn!(%error, call = %record.id, "store rejected the outcome of a call; closing it as interrupted");
        let reduced = interrupted_outcome(open, &format!("the store rejected the outcome of the call: {error}"), now);
        committed = commit(Outcome { effect: outcome.effect, ..reduced }, Vec::new()).await;
    }
    match committed {
        Ok(_) => {}
        Err(StoreError::Conflict { .. }) => return Ok(false),
        Err(error) => return Err(error),
    }
    for batch in separate_history {
        if let Err(error) = services.state.store_router().commit(batch, now).await {
            tracing::warn!(%error, call = %record.id, "could not write interrupted call to state history");
        }
    }
    Ok(true)
}

/// The signal of a call that ended with its process, for alerts.
fn interruption_signal(
    engine: &Engine,
    tenant: &Tenant,
    open: &OpenCall,
    outcome: &Option<Outcome>,
) -> Result<Option<Write>, StoreError> {
    let is_interrupted =
        outcome.as_ref().and_then(|it| it.error.as_ref()).is_some_and(|it| it.kind == ErrorKind::Interrupted);
    if !is_interrupted || !engine.services.alerts.is_enabled() {
        return Ok(None);
    }
    let effect = match outcome.as_ref().map(|outcome| outcome.effect) {
        Some(Effect::Unknown) => "its effect is unknown",
        _ => "it had no effect",
    };
    let (record, now) = (&open.record, engine.services.clock.now());
    let reason = format!("the process of a call of `{}` ended; {effect}", record.tool);
    let signal = Signal::happened(Condition::CallsInterrupted, SmolStr::from(record.id), now, reason);
    let signal = Signal { tool: ToolName::new(record.tool.as_str()).ok(), ..signal.tenant(tenant) };
    signal.write(Durability::KillSafe).map(Some)
}

/// Closes a call that was refused because the store did not answer when it was opened, and that is not open: from now on the store refuses
/// that opening, should it still arrive. Returns `false` if it has arrived before.
pub(crate) async fn close_unopened_call(
    engine: &Engine,
    tenant: &Tenant,
    open: &OpenCall,
    outcome: &Outcome,
) -> Result<bool, StoreError> {
    let Engine { journal, services, .. } = engine;
    let (record, now) = (&open.record, services.clock.now());
    let partition = Partition::for_call(tenant.clone(), record.thread.as_ref(), record.id);
    let mut batch = Batch::new(partition).with(journal.expect_not_open(record.id));
    // Another node may have run it, and its record may have been deleted with its thread.
    let is_resumable = engine.registry.find(&record.tool).is_none_or(|(tool, _)| is_resumable(&tool, open));
    let outcome = match &outcome.error {
        Some(error) if record.thread.is_some() && is_resumable => {
            let error = CallError::new(error.kind).operator(error.operator.as_str());
            Outcome { effect: Effect::Unknown, error: Some(error), ..outcome.clone() }
        }
        _ => outcome.clone(),
    };
    let closed = record.clone().closed(outcome, &services.redactor);
    journal.close(&mut batch, &closed, None, now)?;
    match journal.store.commit(batch, now).await {
        // In the second case it was opened and closed meanwhile.
        Ok(_) | Err(StoreError::Conflict { table: Table::Calls, .. }) => Ok(true),
        Err(StoreError::Conflict { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether another node may run an open call, if it takes this one for dead.
pub(super) fn is_resumable(tool: &Tool, open: &OpenCall) -> bool {
    let is_external = open.record.opening.as_ref().is_some_and(|opening| opening.external.is_some());
    open.is_waiting() || (tool.rerun_interrupted && !is_external)
}

/// Emits the end of a call that was closed here.
pub(crate) fn emit_interrupted(engine: &Engine, tenant: &Tenant, open: &OpenCall, outcome: &Outcome) {
    report::log_failure(outcome);
    report::emit_end(&engine.services, tenant, (outcome.id, open.record.run, Some(open.record.tool.clone())), outcome);
}

/// The outcome of a call of this node that another node has closed or taken over, because it took this one for dead; waits for it.
/// `None` if the call is this node's after all, was deleted, or the hub shuts down.
pub(crate) async fn outcome_elsewhere(engine: &Engine, tracker: &CallTracker) -> Option<Outcome> {
    let Engine { journal, services, .. } = engine;
    let (head, mut delay, mut is_cancel_passed_on) = (&tracker.head, POLL_INTERVALS.0, false);
    let partition = Partition::for_call(head.tenant.clone(), head.thread.as_ref(), head.id);
    loop {
        let now = services.clock.now();
        match journal.find_record(&head.tenant, head.thread.as_ref(), head.id, now).await {
            Ok(Some(CallRecord { outcome: Some(outcome), .. })) => return Some(outcome),
            Ok(Some(record)) if record.opening.as_ref().is_some_and(|opening| opening.node != journal.node) => {}
            Ok(_) => return None,
            Err(error) => tracing::debug!(%error, call = %head.id, "outcome on another node not read; retrying"),
        }
        if engine.is_shutting_down() {
            return None;
        }
        if tracker.cancel.is_cancelled() && !is_cancel_passed_on {
            let key = requests::cancel_key(partition.clone(), head.id);
            is_cancel_passed_on = requests::put_cancel(&*journal.store, key, now).await.is_ok();
        }
        tokio::time::sleep(delay).await;
        delay = (2 * delay).min(POLL_INTERVALS.1);
    }
}

/// The outcome of a call whose process died. The effect is unknown, unless the tool is read-only or had not started.
pub(crate) fn interrupted_outcome(open: &OpenCall, reason: &str, now: Timestamp) -> Outcome {
    let record = &open.record;
    let opening = record.opening.as_deref();
    let harmless = open.is_waiting() || opening.is_some_and(|opening| opening.read_only);
    let mut error = CallError::new(ErrorKind::Interrupted).operator(reason);
    if harmless {
        error = error.model("The call was interrupted and had no effect. It can be repeated.");
    }
    Outcome {
        id: record.id,
        tool: record.tool.as_str().into(),
        thread: record.thread.clone(),
        model_call: opening.and_then(|opening| opening.model_call.clone()),
        status: Status::Error,
        effect: if harmless { Effect::None } else { Effect::Unknown },
        output: Value::Null,
        content: Vec::new(),
        error: Some(error),
        attempts: open.start_count(),
        replayed: false,
        cached: false,
        durability: WriteDurability::Durable,
        approval: record.approval,
        trace_id: record.trace_id,
        queued: Duration::ZERO,
        duration: now.since(record.opened_at),
        timing: None,
        started_at: record.opened_at,
        ended_at: now,
    }
}

/// The entries for the history of the tool's states, as after any failed call: first the writes for the call's own
/// batch, then the batches for other partitions or stores. Empty if the tool is no longer registered or its states
/// cannot be read, because the call must be closed anyway.
async fn history_writes(
    engine: &Engine,
    tenant: &Tenant,
    open: &OpenCall,
    outcome: &Outcome,
) -> (Vec<Write>, Vec<Batch>) {
    let (record, state) = (&open.record, &engine.services.state);
    let tool = engine.registry.find(&record.tool).filter(|(tool, _)| !tool.definition.annotations.read_only);
    let (mut own_writes, mut separate) = (Vec::new(), Vec::new());
    let (Some((tool, _)), Some(error)) = (tool, &outcome.error) else { return (own_writes, separate) };
    let parameters = state.redact_parameters(&record.arguments.to_value());
    let history = ExecutionHistory { started_at: record.opened_at, parameters, end_event: HistoryEvent::error(error) };
    let own_partition = Partition::for_call(tenant.clone(), record.thread.as_ref(), record.id);
    for name in &tool.state.names {
        let Some(context) = state.context_for(name, record.thread.as_ref()) else { continue };
        let Ok(loaded) = state.check_out(tenant, &context).await else { continue };
        let draft = Draft { context, loaded, text: None, pending: Arc::new(UnchangedState) };
        let writes = state.draft_writes(tenant, &draft, &tool.state, Some(&history), outcome.ended_at).await;
        // History rows only: they are appended and cannot conflict with another writer.
        let writes = writes.unwrap_or_default().into_iter().filter(|write| write.table == Table::History);
        let partition = draft.context.partition(tenant);
        if partition == own_partition && state.store_router().is_in_hub_store(name.as_str()) {
            own_writes.extend(writes);
        } else {
            separate.push(Batch { writes: writes.collect(), ..Batch::new(partition) });
        }
    }
    separate.retain(|batch| !batch.writes.is_empty());
    (own_writes, separate)
}

/// A state without changes: what a dead process changed in memory is lost.
struct UnchangedState;

impl PendingState for UnchangedState {
    fn encode_changes(&self) -> Result<Option<Vec<u8>>, ToolError> {
        Ok(None)
    }

    fn layout(&self) -> u32 {
        0
    }

    fn reapply(&self, _: Option<&Row>) -> Result<Option<Vec<u8>>, ToolError> {
        Ok(None)
    }

    fn merge(&self, _: Option<&Row>, _: &[u8], _: &Row) -> Result<Vec<u8>, String> {
        Err("nothing was changed".into())
    }
}

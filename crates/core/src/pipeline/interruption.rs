//! Closes a call that nobody runs any more.
//!
//! In: an open call whose process died, or whose end could not be written down when it came. Out: its record, closed as
//! `interrupted` or as it ended, and what the history of its states is told; or that somebody else was faster. Whether its
//! process is dead is decided elsewhere.

use std::sync::Arc;

use serde_json::Value;

use super::report;
use crate::{
    engine::Engine,
    journal::OpenCall,
    state::{Draft, ExecutionHistory, HistoryEvent, PendingState},
};
use toolhub_storage::backend::{Backend, Batch, Partition, Row, StoreError, Table, Write};
use toolhub_types::{
    effect::Effect,
    error::{CallError, ErrorKind, ToolError},
    ids::Tenant,
    outcome::{Acknowledged, Outcome, Status},
    timestamp::Timestamp,
};

/// Closes an open call; says no where somebody else has closed it or taken it over. An end that the store will never take, because
/// it is too long or something in its way is damaged, becomes one that says less: a call must have an end.
pub(crate) async fn close_open_call(
    engine: &Engine,
    tenant: &Tenant,
    open: &OpenCall,
    outcome: &Outcome,
) -> Result<bool, StoreError> {
    let Engine { journal, services, .. } = engine;
    let now = services.clock.now();
    let record = &open.record;
    let commit = async |outcome: Outcome, with_it: Vec<Write>| {
        let mut batch = Batch::new(Partition::for_call(tenant.clone(), record.thread.as_ref(), record.id));
        batch.writes =
            journal.close(&record.clone().closed(outcome, &services.redactor), Some(open.row_version), now)?;
        batch.writes.extend(with_it);
        journal.store.commit(batch, now).await
    };
    let (here, elsewhere) = history_writes(engine, tenant, open, outcome).await;
    let mut committed = commit(outcome.clone(), here).await;
    if let Err(error @ (StoreError::Refused(_) | StoreError::Damaged { .. })) = &committed {
        tracing::warn!(%error, call = %record.id, "the store does not take the end of a call; it is closed as interrupted");
        let less =
            self::interrupted_outcome(open, &format!("the store does not take the end of the call: {error}"), now);
        committed = commit(Outcome { effect: outcome.effect, ..less }, Vec::new()).await;
    }
    match committed {
        Ok(_) => {}
        Err(StoreError::Conflict { .. }) => return Ok(false),
        Err(error) => return Err(error),
    }
    for batch in elsewhere {
        if let Err(error) = services.state.store_router().commit(batch, now).await {
            tracing::warn!(%error, call = %record.id, "the history of a state is not told of a call that was interrupted");
        }
    }
    Ok(true)
}

/// Tells listeners of a call that was closed here.
pub(crate) fn emit_interrupted(engine: &Engine, tenant: &Tenant, open: &OpenCall, outcome: &Outcome) {
    report::emit_end(&engine.services, tenant, (outcome.id, open.record.run, Some(open.record.tool.clone())), outcome);
}

/// The end of a call whose process died. Nobody knows what the tool did, unless it is one that changes nothing.
pub(crate) fn interrupted_outcome(open: &OpenCall, why: &str, now: Timestamp) -> Outcome {
    let record = &open.record;
    let opening = record.opening.as_deref();
    let harmless = open.is_waiting() || opening.is_some_and(|opening| opening.read_only);
    let error = CallError::new(ErrorKind::Interrupted).operator(why);
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
        durability: Acknowledged::Durable,
        approval: record.approval,
        trace_id: record.trace_id,
        queued: std::time::Duration::ZERO,
        duration: now.since(record.opened_at),
        started_at: record.opened_at,
        ended_at: now,
    }
}

/// What the history of the tool's states is told, as after any call that failed: what is written with the end of the call,
/// and after it what lies elsewhere. Nothing where the tool is not known any more, or the states cannot be read: the call
/// must be closed all the same.
async fn history_writes(
    engine: &Engine,
    tenant: &Tenant,
    open: &OpenCall,
    outcome: &Outcome,
) -> (Vec<Write>, Vec<Batch>) {
    let (record, state) = (&open.record, &engine.services.state);
    let tool = engine.registry.find(&record.tool).filter(|(tool, _)| !tool.definition.annotations.read_only);
    let (mut with_it, mut after_it) = (Vec::new(), Vec::new());
    let (Some((tool, _)), Some(error)) = (tool, &outcome.error) else { return (with_it, after_it) };
    let mut parameters = record.arguments.clone();
    engine.services.redactor.redact(&mut parameters);
    let parameters = HistoryEvent::redact_parameters(&parameters);
    let told = ExecutionHistory { started_at: record.opened_at, parameters, end_event: HistoryEvent::error(error) };
    let here = Partition::for_call(tenant.clone(), record.thread.as_ref(), record.id);
    for name in &tool.state.names {
        let Some(context) = state.context_for(name, record.thread.as_ref()) else { continue };
        let Ok(found) = state.check_out(tenant, &context).await else { continue };
        let draft = Draft { context, loaded: found, text: None, pending: Arc::new(UnchangedState) };
        let all = state.draft_writes(tenant, &draft, &tool.state, Some(&told), outcome.ended_at).await;
        // Only what cannot be in anybody's way.
        let writes = all.unwrap_or_default().into_iter().filter(|write| write.table == Table::History);
        let partition = draft.context.partition(tenant);
        if partition == here && state.store_router().is_in_hub_store(name.as_str()) {
            with_it.extend(writes);
        } else {
            after_it.push(Batch { writes: writes.collect(), ..Batch::new(partition) });
        }
    }
    after_it.retain(|batch| !batch.writes.is_empty());
    (with_it, after_it)
}

/// A state that a dead process may have changed in its memory, and nobody will ever know how.
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

//! Stage 11: writes the opening record to the journal before the tool starts (a write-ahead record).
//!
//! In: a placed call. Out: its open record, or a refusal. Calls with effects, with an idempotency key or with an
//! approval get an opening record, so that recovery can close them after a crash. A detached call is opened before it
//! waits, for a person or in the queue, so that another process can resume it. Opening also consumes the approval: the
//! first call that opens with it has it. A call whose process died is not opened a second time but taken over, by
//! exactly one node.

use std::sync::Arc;

use futures_core::future::BoxFuture;

use super::{Allowed, Opened, Placed, interruption, policy, replay, ticket::Ticket, time_limit};
use crate::{
    engine::Engine,
    execution::{CallEnvelope, Extras},
    journal::{self, CallRecord, Claim, Journal, OpenCall, Opening},
    services::Services,
};
use toolhub_storage::backend::{Batch, Partition, RowVersion, StoreError, Table};
use toolhub_types::{
    digest,
    effect::Effect,
    error::{CallError, ErrorKind},
    event_kind::{EventClass, EventKind},
    ids::ApprovalId,
    outcome::{Outcome, Status},
};

/// Writes the opening record; `None` for a call that needs none.
pub(super) fn write_record<'a>(
    engine: &'a Engine,
    placed: &'a Placed,
) -> Result<Option<BoxFuture<'a, Result<OpenCall, CallError>>>, CallError> {
    let (envelope, services) = (&placed.envelope, &engine.services);
    if envelope.call.is_cancelled() {
        return Err(CallError::new(ErrorKind::Cancelled));
    }
    if let Some(stored) = envelope.approval().filter(|stored| !stored.approval.is_usable(services.clock.now())) {
        let error = policy::approval_expired(&stored.approval, "was not used in time");
        return Err(error.model("The approval of this call ran out before the call could start."));
    }
    if let Some(open) = envelope.open_record() {
        return Ok(Some(Box::pin(take_over(engine, envelope, open))));
    }
    let stage = OpenStage { status: Status::Executing, approval: envelope.approval().map(|stored| stored.approval.id) };
    Ok(if needs_record(envelope) { Some(Box::pin(write_opening(engine, envelope, stage))) } else { None })
}

/// Marks the call as executing and emits the event.
pub(super) fn open(services: &Services, placed: Placed, record: Option<OpenCall>, ticket: &mut Ticket<'_>) -> Opened {
    let Placed { envelope, slot, rate_permit, probe_guard } = placed;
    if let Some(approval) = record.as_ref().and_then(|open| open.record.approval) {
        ticket.set_approval(approval);
    }
    let record = record.map(Arc::new);
    if let Some(tracker) = &envelope.tracker {
        // The preopened record is this record now.
        tracker.take_preopened();
        tracker.set_executing(record.clone());
        if envelope.call.external.is_some() {
            tracker.start_external_work(&envelope.call.arguments, services.clock.now() + time_limit(&envelope));
        }
    }
    if services.events.has_subscribers(EventClass::Calls) {
        let (call_id, run_id, tool_name) = (envelope.call.id, envelope.call.run, envelope.call.tool.clone());
        let event = EventKind::ExecutionStarted { call_id, run_id, tool_name };
        services.events.emit_for_tenant(
            services.clock.now(),
            &envelope.call.tenant,
            envelope.call.thread.as_ref(),
            event,
        );
    }
    Opened { envelope, slot, rate_permit, probe_guard, record }
}

/// Opens a call that waits for a person: when the answer comes, the caller may be gone and another process may have to
/// resume the call.
pub(super) async fn preopen_for_approval(
    engine: &Engine,
    envelope: CallEnvelope,
    approval: ApprovalId,
) -> Result<CallEnvelope, CallError> {
    preopen(engine, envelope, OpenStage { status: Status::AwaitingApproval, approval: Some(approval) }).await
}

/// Opens a call before it queues, unless it is open already.
pub(super) async fn preopen_for_queue(engine: &Engine, allowed: Allowed) -> Result<Allowed, CallError> {
    let Allowed(envelope) = allowed;
    if envelope.open_record().is_some() {
        return Ok(Allowed(envelope));
    }
    if envelope.call.is_cancelled() {
        return Err(CallError::new(ErrorKind::Cancelled));
    }
    let envelope = preopen(engine, envelope, OpenStage { status: Status::Scheduled, approval: None }).await?;
    envelope.set_waiting(Status::Scheduled, None);
    Ok(Allowed(envelope))
}

async fn preopen(engine: &Engine, mut envelope: CallEnvelope, stage: OpenStage) -> Result<CallEnvelope, CallError> {
    let open = Arc::new(match envelope.open_record() {
        None => write_opening(engine, &envelope, stage).await?,
        Some(open) => {
            let mut call = open.clone();
            (call.record.status, call.record.approval) = (stage.status, stage.approval);
            rewrite(engine, &envelope, call).await?
        }
    });
    if let Some(tracker) = &envelope.tracker {
        tracker.set_journaled(open.clone());
    }
    envelope.extras_mut().open_record = Some(open);
    Ok(envelope)
}

/// How far a call is when its opening record is written.
#[derive(Clone, Copy)]
struct OpenStage {
    status: Status,
    approval: Option<ApprovalId>,
}

fn needs_record(envelope: &CallEnvelope) -> bool {
    let call = &envelope.call;
    !envelope.tool.definition.annotations.read_only
        || call.idempotency_key.is_some()
        || call.caller_minted_id
        || call.external.is_some()
        || envelope.approval().is_some()
}

async fn write_opening(engine: &Engine, envelope: &CallEnvelope, stage: OpenStage) -> Result<OpenCall, CallError> {
    let Engine { journal, services, .. } = engine;
    let now = services.clock.now();
    let executing = stage.status == Status::Executing;
    let opening = Opening {
        node: journal.node.clone(),
        starts: u32::from(executing),
        read_only: envelope.tool.definition.annotations.read_only,
        digest: envelope.extras.as_ref().and_then(|extras| extras.digest.clone()),
        model_call: envelope.call.model_call.clone(),
        trace: envelope.call.trace.clone(),
        retries: envelope.call.retries,
        external: envelope.call.external,
    };
    let record =
        CallRecord::opened(&envelope.call, envelope.tool.definition.name.clone(), envelope.call.arguments.clone(), now);
    let OpenStage { status, approval } = stage;
    let external_until = envelope.call.external.filter(|_| executing).map(|_| now + time_limit(envelope));
    let record = CallRecord { status, approval, external_until, opening: Some(Box::new(opening)), ..record };
    let partition = Partition::for_call(envelope.call.tenant.clone(), envelope.call.thread.as_ref(), envelope.call.id);
    let batch = Batch::new(partition.clone()).with(journal.open(&envelope.call.tenant, &record)?);
    let batch = batch.with(journal.expect_never_ended(envelope.call.id));
    let batch = if executing { with_approval_consumed(engine, envelope, batch).await? } else { batch };
    let mut open = OpenCall { record, row_version: RowVersion { number: 1, stamp: batch.stamp } };
    commit(engine, envelope, batch, (&mut open, 0)).await?;
    if let Err(refusal) = claim_key(journal, services, envelope).await {
        let removal = Batch::new(partition).with(journal.remove_open(open.record.id, open.row_version));
        if let Err(error) = journal.store.commit(removal, now).await {
            // The record may stay, and be closed as interrupted. The caller must not be told of another end: with the same key it
            // learns what became of the call that holds the key.
            mark_refused(engine, &open, 0);
            let reason = format!("the call was refused ({refusal}), but its record could not be removed: {error}");
            return Err(CallError::new(ErrorKind::StoreUnavailable).operator(reason));
        }
        return Err(refusal);
    }
    Ok(open)
}

/// Adds to the batch that opens a call the write that consumes its approval.
async fn with_approval_consumed(
    engine: &Engine,
    envelope: &CallEnvelope,
    mut batch: Batch,
) -> Result<Batch, CallError> {
    let Some(stored) = envelope.approval() else { return Ok(batch) };
    let consume = engine.approvals.mark_used(stored, envelope.call.id)?;
    if stored.partition == batch.partition {
        batch.writes.push(consume);
    } else {
        // The approval of a call without a thread lies in another partition. It is consumed first: a crash in between
        // costs an approval, never a second execution.
        let consuming = Batch::new(stored.partition.clone()).with(consume);
        let committed = engine.journal.store.commit(consuming, engine.services.clock.now()).await;
        committed.map_err(|error| open_error(envelope, error))?;
    }
    Ok(batch)
}

/// Commits the batch whose first write is the call's record, and takes over the row version the store assigned: in a
/// restored store, versions do not start at one. `earlier_starts` says how often the call was started before.
async fn commit(
    engine: &Engine,
    envelope: &CallEnvelope,
    batch: Batch,
    (open, earlier_starts): (&mut OpenCall, u32),
) -> Result<(), CallError> {
    open.row_version.stamp = batch.stamp;
    let committed = engine.journal.store.commit(batch, engine.services.clock.now()).await;
    let versions = committed.map_err(|error| {
        if matches!(error, StoreError::Unknown(_)) {
            mark_refused(engine, open, earlier_starts);
            if envelope.open_record().is_none() {
                engine.journal.note_unconfirmed(&envelope.call.tenant, open);
            }
            let is_resumable = interruption::is_resumable(&envelope.tool, open);
            if let Some(tracker) = envelope.tracker.as_ref().filter(|_| is_resumable) {
                tracker.set_may_be_resumed();
            }
        }
        open_error(envelope, error)
    })?;
    open.row_version.number = versions.first().copied().unwrap_or_default();
    Ok(())
}

/// The call is refused, but the journal may hold it as open. Recovery will close it: as a call without effect, unless a process
/// that died has started it before.
fn mark_refused(engine: &Engine, open: &OpenCall, earlier_starts: u32) {
    let reason = "the call was refused: the store did not answer when the call was opened";
    let outcome = interruption::interrupted_outcome(open, reason, engine.services.clock.now());
    let effect = if earlier_starts == 0 { Effect::None } else { outcome.effect };
    engine.journal.note_unwritten(&Outcome { effect, attempts: earlier_starts, ..outcome });
}

/// Takes over a call that was opened before, by this process or by one that died, and increments its start count. The
/// call has claimed its key already, and the approval of a call that is started again is already consumed. The row
/// version decides between two nodes: the second one gets a conflict.
async fn take_over(engine: &Engine, envelope: &CallEnvelope, open: &OpenCall) -> Result<OpenCall, CallError> {
    let mut call = open.clone();
    call.record.status = Status::Executing;
    call.record.arguments = envelope.call.arguments.clone();
    if let Some(stored) = envelope.approval() {
        call.record.approval = Some(stored.approval.id);
    }
    rewrite(engine, envelope, call).await
}

/// Whether an open call of a dead process holds its idempotency key; true for a call without a key. If the process died
/// before it claimed the key, the key is claimed now. If another call holds the key, this call was never admitted.
pub(super) async fn holds_idempotency_key(
    engine: &Engine,
    envelope: &CallEnvelope,
    open: &OpenCall,
) -> Result<bool, CallError> {
    let Engine { journal, services, .. } = engine;
    let (call, tool) = (&envelope.call, &envelope.tool.definition.name);
    let Some(key) = &call.idempotency_key else { return Ok(true) };
    let now = services.clock.now();
    if let Some((claim, _)) = journal.find_claim(&call.tenant, tool, key, now).await? {
        return Ok(claim.call == call.id);
    }
    let recorded = open.record.opening.as_ref().and_then(|opening| opening.digest.clone());
    let digest = recorded.unwrap_or_else(|| digest::hash_json(&call.arguments.to_value()));
    let claim = Claim { call: call.id, thread: call.thread.clone(), named_thread: None, digest, at: now };
    let batch = Batch::new(journal::claim_partition(&call.tenant, tool, key)).with(journal.claim(&claim, None)?);
    match journal.store.commit(batch, now).await {
        Ok(_) => Ok(true),
        // The claim was lost to another call with the key, or to another node that resumes this call.
        Err(StoreError::Conflict { .. }) => {
            let found = journal.find_claim(&call.tenant, tool, key, now).await?;
            Ok(found.is_some_and(|(claim, _)| claim.call == call.id))
        }
        Err(error) => Err(error.into()),
    }
}

/// Takes over a call that a dead process left waiting; it keeps waiting on this node.
pub(super) async fn adopt(engine: &Engine, envelope: &CallEnvelope, open: &OpenCall) -> Result<OpenCall, CallError> {
    rewrite(engine, envelope, open.clone()).await
}

/// Rewrites the record of an open call with this node as its owner.
async fn rewrite(engine: &Engine, envelope: &CallEnvelope, mut call: OpenCall) -> Result<OpenCall, CallError> {
    let journal = &engine.journal;
    let (executing, earlier_starts) = (call.record.status == Status::Executing, call.start_count());
    let opening = call.record.opening.get_or_insert_with(|| {
        let read_only = envelope.tool.definition.annotations.read_only;
        Box::new(Opening {
            node: journal.node.clone(),
            starts: 1,
            read_only,
            digest: None,
            model_call: None,
            trace: None,
            retries: None,
            external: envelope.call.external,
        })
    });
    opening.node = journal.node.clone();
    opening.starts += u32::from(executing);
    if executing && envelope.call.external.is_some() {
        call.record.external_until = Some(engine.services.clock.now() + time_limit(envelope));
    }
    let partition = Partition::for_call(envelope.call.tenant.clone(), envelope.call.thread.as_ref(), envelope.call.id);
    let batch = Batch::new(partition).with(journal.take_over(&envelope.call.tenant, &call)?);
    let batch = if executing { with_approval_consumed(engine, envelope, batch).await? } else { batch };
    commit(engine, envelope, batch, (&mut call, earlier_starts)).await?;
    Ok(call)
}

/// Why the record was not written. An identical call may have used the approval in the meantime, or a call with the
/// same id was opened first.
fn open_error(envelope: &CallEnvelope, error: StoreError) -> CallError {
    match (error, envelope.approval()) {
        (StoreError::Conflict { table: table @ (Table::OpenCalls | Table::Calls), .. }, _)
            if envelope.call.caller_minted_id && envelope.open_record().is_none() =>
        {
            replay::duplicate_call_error(envelope.call.id, table == Table::Calls)
        }
        (StoreError::Conflict { table: Table::Approvals, .. }, Some(stored)) => {
            policy::approval_consumed(envelope, &stored.approval)
        }
        (other, _) => other.into(),
    }
}

/// Claims the call's idempotency key, if it has one. This is a commit of its own, because a key is shared by all
/// threads and a commit covers one partition. It comes after the opening record, so that every claim points to a
/// record; only a call that holds its key runs.
async fn claim_key(journal: &Journal, services: &Services, envelope: &CallEnvelope) -> Result<(), CallError> {
    let CallEnvelope { call, tool, extras, .. } = envelope;
    let Some(Extras { stale_claim, digest: Some(digest), .. }) = extras.as_deref() else { return Ok(()) };
    let Some(key) = &call.idempotency_key else { return Ok(()) };
    let now = services.clock.now();
    let (thread, named_thread) = (call.thread.clone(), Some(call.named_thread().is_some()));
    let claim = Claim { call: call.id, thread, named_thread, digest: digest.clone(), at: now };
    let batch = Batch::new(journal::claim_partition(&call.tenant, &tool.definition.name, key));
    match journal.store.commit(batch.with(journal.claim(&claim, *stale_claim)?), now).await {
        Ok(_) => Ok(()),
        Err(StoreError::Conflict { .. }) => Err(CallError::new(ErrorKind::IdempotencyInProgress)),
        Err(error) => Err(error.into()),
    }
}

//! Door 11: writes down what must not be forgotten, before the tool starts.
//!
//! Calls with effects, with a key or with an approval get an opening record, so that a crash can never leave them
//! without an end. Asynchronous ones have it before they wait, for a person or for their turn, so that they go on afterwards. The approval is used up here: whoever opens on it first has it. A call whose process died is not opened
//! anew but taken over, by one node.

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
    event_kind::EventKind,
    ids::ApprovalId,
    outcome::{Outcome, Status},
};

/// The opening record, as soon as it is written; none for a call that may be forgotten.
pub(super) fn write_record<'a>(
    engine: &'a Engine,
    placed: &'a Placed,
) -> Result<Option<BoxFuture<'a, Result<OpenCall, CallError>>>, CallError> {
    let (envelope, services) = (&placed.envelope, &engine.services);
    if envelope.call.is_cancelled() {
        return Err(CallError::new(ErrorKind::Cancelled));
    }
    if let Some(permit) = envelope.approval().filter(|permit| !permit.approval.is_usable(services.clock.now())) {
        let error = policy::approval_expired(&permit.approval, "was not used in time");
        return Err(error.model("The approval of this call ran out before the call could start."));
    }
    if let Some(left) = envelope.open_record() {
        return Ok(Some(Box::pin(take_over(engine, envelope, left))));
    }
    let now = OpenStage { status: Status::Executing, approval: envelope.approval().map(|permit| permit.approval.id) };
    Ok(if needs_record(envelope) { Some(Box::pin(write_opening(engine, envelope, now))) } else { None })
}

/// From here on the call runs, and listeners know it.
pub(super) fn open(services: &Services, placed: Placed, record: Option<OpenCall>, ticket: &mut Ticket<'_>) -> Opened {
    let Placed { envelope, slot, rate_permit: token, probe_guard: standing } = placed;
    if let Some(approval) = record.as_ref().and_then(|open| open.record.approval) {
        ticket.set_approval(approval);
    }
    if let Some(tracker) = &envelope.tracker {
        // What was written ahead of it is this record now.
        tracker.take_preopened();
        tracker.set_status(Status::Executing);
        if envelope.call.external.is_some() {
            tracker.start_external_work(&envelope.call.arguments, services.clock.now() + time_limit(&envelope));
        }
    }
    if services.events.has_subscribers() {
        let (call_id, run_id, tool_name) = (envelope.call.id, envelope.call.run, envelope.call.tool.clone());
        let news = EventKind::ExecutionStarted { call_id, run_id, tool_name };
        services.events.emit_for_tenant(
            services.clock.now(),
            &envelope.call.tenant,
            envelope.call.thread.as_ref(),
            news,
        );
    }
    Opened { envelope, slot, rate_permit: token, probe_guard: standing, record: record.map(Box::new) }
}

/// Writes a call down that waits for a person: nobody may be there when the answer comes, and the process may not be the same.
pub(super) async fn preopen_for_approval(
    engine: &Engine,
    envelope: CallEnvelope,
    approval: ApprovalId,
) -> Result<CallEnvelope, CallError> {
    preopen(engine, envelope, OpenStage { status: Status::AwaitingApproval, approval: Some(approval) }).await
}

/// Writes a call down before it waits for its turn, unless that has been done.
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

async fn preopen(engine: &Engine, mut envelope: CallEnvelope, now: OpenStage) -> Result<CallEnvelope, CallError> {
    let open = match envelope.open_record() {
        None => write_opening(engine, &envelope, now).await?,
        Some(left) => {
            let mut call = left.clone();
            (call.record.status, call.record.approval) = (now.status, now.approval);
            rewrite(engine, &envelope, call).await?
        }
    };
    if let Some(tracker) = &envelope.tracker {
        tracker.set_journaled(&open);
    }
    envelope.extras_mut().open_record = Some(Box::new(open));
    Ok(envelope)
}

/// How far a call is when it is written down.
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
    let runs = stage.status == Status::Executing;
    let opening = Opening {
        node: journal.node.clone(),
        starts: u32::from(runs),
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
    let external_until = envelope.call.external.filter(|_| runs).map(|_| now + time_limit(envelope));
    let record = CallRecord { status, approval, external_until, opening: Some(Box::new(opening)), ..record };
    let partition = Partition::for_call(envelope.call.tenant.clone(), envelope.call.thread.as_ref(), envelope.call.id);
    let mut batch = Batch::new(partition.clone()).with(journal.open(&record)?);
    if envelope.call.caller_minted_id {
        batch.writes.push(journal.expect_never_ended(envelope.call.id));
    }
    let batch = if runs { with_approval_consumed(engine, envelope, batch).await? } else { batch };
    let mut open = OpenCall { record, row_version: RowVersion { number: 1, stamp: batch.stamp } };
    commit(engine, envelope, batch, &mut open).await?;
    if let Err(refused) = claim_key(journal, services, envelope).await {
        let unopen = Batch::new(partition).with(journal.remove_open(open.record.id, open.row_version));
        if journal.store.commit(unopen, now).await.is_err() {
            mark_never_ran(engine, &open);
        }
        return Err(refused);
    }
    Ok(open)
}

/// The batch that opens a call, with what uses its approval up.
async fn with_approval_consumed(
    engine: &Engine,
    envelope: &CallEnvelope,
    mut batch: Batch,
) -> Result<Batch, CallError> {
    let Some(permit) = envelope.approval() else { return Ok(batch) };
    let used = engine.approvals.mark_used(permit, envelope.call.id)?;
    if permit.partition == batch.partition {
        batch.writes.push(used);
    } else {
        // The approval of a call without a thread lies elsewhere. Used up first: a crash in between costs an answer, never a
        // second execution.
        let apart = Batch::new(permit.partition.clone()).with(used);
        let using = engine.journal.store.commit(apart, engine.services.clock.now()).await;
        using.map_err(|error| open_error(envelope, error))?;
    }
    Ok(batch)
}

/// Commits the batch whose first write is the call's record, and notes as what it was written: a store that was restored does not
/// count from one.
async fn commit(engine: &Engine, envelope: &CallEnvelope, batch: Batch, open: &mut OpenCall) -> Result<(), CallError> {
    open.row_version.stamp = batch.stamp;
    let committed = engine.journal.store.commit(batch, engine.services.clock.now()).await;
    let versions = committed.map_err(|error| {
        if matches!(error, StoreError::Unknown(_)) {
            mark_never_ran(engine, open);
        }
        open_error(envelope, error)
    })?;
    open.row_version.number = versions.first().copied().unwrap_or_default();
    Ok(())
}

/// The call is refused, and may be open in the journal. It will be closed as what it is: one that has changed nothing.
fn mark_never_ran(engine: &Engine, open: &OpenCall) {
    let why = "the call was refused, because the store did not answer when it was opened";
    let outcome = interruption::interrupted_outcome(open, why, engine.services.clock.now());
    engine.journal.note_unwritten(&Outcome { effect: Effect::None, attempts: 0, ..outcome });
}

/// Takes over a call that was written down before, by this process or by one that died, and counts that it is started. It has
/// its key already, and the approval of one that is started once more is used up. Whoever is second finds another row than it
/// expects.
async fn take_over(engine: &Engine, envelope: &CallEnvelope, left: &OpenCall) -> Result<OpenCall, CallError> {
    let mut call = left.clone();
    call.record.status = Status::Executing;
    call.record.arguments = envelope.call.arguments.clone();
    if let Some(permit) = envelope.approval() {
        call.record.approval = Some(permit.approval.id);
    }
    rewrite(engine, envelope, call).await
}

/// Whether an open call of a dead process has its key, if it has one. It may have died before it took it, and takes it now; or
/// when another had it, and then it was never let in.
pub(super) async fn holds_idempotency_key(
    engine: &Engine,
    envelope: &CallEnvelope,
    left: &OpenCall,
) -> Result<bool, CallError> {
    let Engine { journal, services, .. } = engine;
    let (call, tool) = (&envelope.call, &envelope.tool.definition.name);
    let Some(key) = &call.idempotency_key else { return Ok(true) };
    let now = services.clock.now();
    if let Some((claim, _)) = journal.find_claim(&call.tenant, tool, key, now).await? {
        return Ok(claim.call == call.id);
    }
    let written = left.record.opening.as_ref().and_then(|opening| opening.digest.clone());
    let digest = written.unwrap_or_else(|| digest::hash_json(&call.arguments));
    let claim = Claim { call: call.id, thread: call.thread.clone(), digest, at: now };
    let batch = Batch::new(journal::claim_partition(&call.tenant, tool, key)).with(journal.claim(&claim, None)?);
    match journal.store.commit(batch, now).await {
        Ok(_) => Ok(true),
        // Somebody was faster: another call with the key, or another node that goes on with this one.
        Err(StoreError::Conflict { .. }) => {
            let found = journal.find_claim(&call.tenant, tool, key, now).await?;
            Ok(found.is_some_and(|(claim, _)| claim.call == call.id))
        }
        Err(error) => Err(error.into()),
    }
}

/// Takes over a call that a dead process left waiting; it goes on waiting here.
pub(super) async fn adopt(engine: &Engine, envelope: &CallEnvelope, left: &OpenCall) -> Result<OpenCall, CallError> {
    rewrite(engine, envelope, left.clone()).await
}

/// Writes the record of an open call anew, as one of this node.
async fn rewrite(engine: &Engine, envelope: &CallEnvelope, mut call: OpenCall) -> Result<OpenCall, CallError> {
    let journal = &engine.journal;
    let runs = call.record.status == Status::Executing;
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
    opening.starts += u32::from(runs);
    if runs && envelope.call.external.is_some() {
        call.record.external_until = Some(engine.services.clock.now() + time_limit(envelope));
    }
    let partition = Partition::for_call(envelope.call.tenant.clone(), envelope.call.thread.as_ref(), envelope.call.id);
    let batch = Batch::new(partition).with(journal.take_over(&call)?);
    let batch = if runs { with_approval_consumed(engine, envelope, batch).await? } else { batch };
    commit(engine, envelope, batch, &mut call).await?;
    Ok(call)
}

/// Why nothing was written. An identical call may have used the approval in the meantime, or one with the same id was faster.
fn open_error(envelope: &CallEnvelope, error: StoreError) -> CallError {
    match (error, envelope.approval()) {
        (StoreError::Conflict { table: table @ (Table::OpenCalls | Table::Calls), .. }, _)
            if envelope.call.caller_minted_id && envelope.open_record().is_none() =>
        {
            replay::duplicate_call_error(envelope.call.id, table == Table::Calls)
        }
        (StoreError::Conflict { table: Table::Approvals, .. }, Some(permit)) => {
            policy::approval_consumed(envelope, &permit.approval)
        }
        (other, _) => other.into(),
    }
}

/// Takes the call's key, if it has one. A commit of its own, because a key is shared by all threads and a commit is not.
/// It comes after the opening record: whoever holds the key has a record to be found by, and only a holder runs.
async fn claim_key(journal: &Journal, services: &Services, envelope: &CallEnvelope) -> Result<(), CallError> {
    let CallEnvelope { call, tool, extras, .. } = envelope;
    let Some(Extras { stale_claim, digest: Some(digest), .. }) = extras.as_deref() else { return Ok(()) };
    let Some(key) = &call.idempotency_key else { return Ok(()) };
    let now = services.clock.now();
    let claim = Claim { call: call.id, thread: call.thread.clone(), digest: digest.clone(), at: now };
    let batch = Batch::new(journal::claim_partition(&call.tenant, &tool.definition.name, key));
    match journal.store.commit(batch.with(journal.claim(&claim, *stale_claim)?), now).await {
        Ok(_) => Ok(()),
        Err(StoreError::Conflict { .. }) => Err(CallError::new(ErrorKind::IdempotencyInProgress)),
        Err(error) => Err(error.into()),
    }
}

//! Door 11: writes down what must not be forgotten, before the tool starts.
//!
//! Calls with effects, with a key or with an approval get an opening record, so that a crash can never leave them
//! without an end. The approval is used up here: whoever opens on it first has it. A call whose process died is not opened
//! anew but taken over, by one node.

use futures_core::future::BoxFuture;

use super::{Along, Opened, Placed, Way, interrupted, policy, ticket::Ticket};
use crate::{
    backend::{Batch, Partition, Seen, StoreError, Table},
    call::{Effect, Outcome},
    engine::Engine,
    error::{CallError, ErrorKind},
    events::News,
    journal::{self, CallRecord, Claim, Journal, OpenCall, Opening},
    services::Services,
};

/// The opening record, as soon as it is written; none for a call that may be forgotten.
pub(super) fn record<'a>(
    engine: &'a Engine,
    placed: &'a Placed,
) -> Result<Option<BoxFuture<'a, Result<OpenCall, CallError>>>, CallError> {
    let (way, services) = (&placed.way, &engine.services);
    if way.call.is_cancelled() {
        return Err(CallError::new(ErrorKind::Cancelled));
    }
    if let Some(permit) = way.permit().filter(|permit| !permit.approval.is_usable(services.clock.now())) {
        let error = policy::too_late(&permit.approval, "was not used in time");
        return Err(error.model("The approval of this call ran out before the call could start."));
    }
    if let Some(left) = way.left_open() {
        return Ok(Some(Box::pin(take_over(engine, way, left))));
    }
    Ok(if must_open(way) { Some(Box::pin(write(engine, way))) } else { None })
}

/// From here on the call runs, and listeners know it.
pub(super) fn open(services: &Services, placed: Placed, record: Option<OpenCall>, ticket: &mut Ticket<'_>) -> Opened {
    let Placed { way, slot, token, standing } = placed;
    let left_open = || way.left_open()?.record.opening.as_ref()?.approval;
    if let Some(approval) = way.permit().map(|permit| permit.approval.id).or_else(left_open) {
        ticket.approved(approval);
    }
    if services.events.heard() {
        let news = News::ExecutionStarted { call_id: way.call.id, tool_name: way.call.tool.clone() };
        services.events.tell_tenant(services.clock.now(), &way.call.tenant, way.call.thread.as_ref(), news);
    }
    Opened { way, slot, token, standing, record: record.map(Box::new) }
}

fn must_open(way: &Way) -> bool {
    !way.tool.definition.annotations.read_only || way.call.key.is_some() || way.permit().is_some()
}

async fn write(engine: &Engine, way: &Way) -> Result<OpenCall, CallError> {
    let Engine { journal, services, .. } = engine;
    let now = services.clock.now();
    let opening = Opening {
        node: journal.node.clone(),
        starts: 1,
        read_only: way.tool.definition.annotations.read_only,
        model_call: way.call.model_call.clone(),
        approval: way.permit().map(|permit| permit.approval.id),
    };
    let record = CallRecord::opened(&way.call, &way.tool.definition.name, now);
    let record = CallRecord { opening: Some(Box::new(opening)), ..record };
    let partition = Partition::of_call(way.call.tenant.clone(), way.call.thread.as_ref(), way.call.id);
    let mut batch = Batch::on(partition.clone()).with(journal.open(&record)?);
    if let Some(permit) = way.permit() {
        let used = engine.approvals.used(permit, way.call.id)?;
        if permit.partition == partition {
            batch.writes.push(used);
        } else {
            // The approval of a call without a thread lies elsewhere. Used up first: a crash in between costs an answer,
            // never a second execution.
            journal
                .store
                .commit(Batch::on(permit.partition.clone()).with(used), now)
                .await
                .map_err(|error| refused(way, error))?;
        }
    }
    let seen = Seen { version: 1, stamp: batch.stamp };
    let opened = journal.store.commit(batch, now).await;
    let open = OpenCall { record, seen };
    if let Err(error) = opened {
        if matches!(error, StoreError::Unknown(_)) {
            never_ran(engine, &open);
        }
        return Err(refused(way, error));
    }
    if let Err(refused) = claim(journal, services, way).await {
        let unopen = Batch::on(partition).with(journal.unopen(open.record.id, seen));
        if journal.store.commit(unopen, now).await.is_err() {
            never_ran(engine, &open);
        }
        return Err(refused);
    }
    Ok(open)
}

/// The call is refused, and may be open in the journal. It will be closed as what it is: one that has changed nothing.
fn never_ran(engine: &Engine, open: &OpenCall) {
    let why = "the call was refused, because the store did not answer when it was opened";
    let outcome = interrupted::outcome(open, why, engine.services.clock.now());
    engine.journal.not_written(&Outcome { effect: Effect::None, attempts: 0, ..outcome });
}

/// Takes over a call that a dead process left open, and counts that it is started once more. It has its key already, and
/// its approval is used up. Whoever is second finds another row than it expects.
async fn take_over(engine: &Engine, way: &Way, left: &OpenCall) -> Result<OpenCall, CallError> {
    let Engine { journal, services, .. } = engine;
    let mut call = left.clone();
    let opening = call.record.opening.get_or_insert_with(|| {
        let read_only = way.tool.definition.annotations.read_only;
        Box::new(Opening { node: journal.node.clone(), starts: 1, read_only, model_call: None, approval: None })
    });
    opening.node = journal.node.clone();
    opening.starts += 1;
    let partition = Partition::of_call(way.call.tenant.clone(), way.call.thread.as_ref(), way.call.id);
    let batch = Batch::on(partition).with(journal.take_over(&call)?);
    call.seen = Seen { version: left.seen.version + 1, stamp: batch.stamp };
    journal.store.commit(batch, services.clock.now()).await?;
    Ok(call)
}

/// Why nothing was written. An identical call may have used the approval in the meantime.
fn refused(way: &Way, error: StoreError) -> CallError {
    match (error, way.permit()) {
        (StoreError::Conflict { table: Table::Approvals, .. }, Some(permit)) => policy::used_up(way, &permit.approval),
        (other, _) => other.into(),
    }
}

/// Takes the call's key, if it has one. A commit of its own, because a key is shared by all threads and a commit is not.
/// It comes after the opening record: whoever holds the key has a record to be found by, and only a holder runs.
async fn claim(journal: &Journal, services: &Services, way: &Way) -> Result<(), CallError> {
    let Way { call, tool, along, .. } = way;
    let Some(Along { stale_claim, digest: Some(digest), .. }) = along.as_deref() else { return Ok(()) };
    let Some(key) = &call.key else { return Ok(()) };
    let now = services.clock.now();
    let claim = Claim { call: call.id, thread: call.thread.clone(), digest: digest.clone(), at: now };
    let batch = Batch::on(journal::claims(&call.tenant, &tool.definition.name, key));
    match journal.store.commit(batch.with(journal.claim(&claim, *stale_claim)?), now).await {
        Ok(_) => Ok(()),
        Err(StoreError::Conflict { .. }) => Err(CallError::new(ErrorKind::IdempotencyInProgress)),
        Err(error) => Err(error.into()),
    }
}

//! Door 11: writes down what must not be forgotten, before the tool starts.
//!
//! Calls with effects and calls with a key get an opening record, so that a crash can never leave them without an end.

use super::{Opened, Placed, Way};
use crate::{
    backend::{Batch, Partition, StoreError},
    error::{CallError, ErrorKind},
    events::News,
    journal::{self, CallRecord, Claim, Journal},
    services::Services,
};

pub(super) async fn open(journal: &Journal, services: &Services, placed: Placed) -> Result<Opened, CallError> {
    let Placed { way, slot, standing } = placed;
    if way.call.is_cancelled() {
        return Err(CallError::new(ErrorKind::Cancelled));
    }
    let record = if must_open(&way) { Some(Box::new(Box::pin(write(journal, services, &way)).await?)) } else { None };
    if services.events.heard() {
        let news = News::ExecutionStarted { call_id: way.call.id, tool_name: way.call.tool.clone() };
        services.events.tell_tenant(services.clock.now(), &way.call.tenant, way.call.thread.as_ref(), news);
    }
    Ok(Opened { way, slot, standing, record })
}

fn must_open(way: &Way) -> bool {
    !way.tool.definition.annotations.read_only || way.call.key.is_some()
}

async fn write(journal: &Journal, services: &Services, way: &Way) -> Result<CallRecord, CallError> {
    let now = services.clock.now();
    let record = CallRecord::opened(&way.call, &way.tool.definition.name, now);
    let partition = Partition::of_call(way.call.tenant.clone(), way.call.thread.as_ref(), way.call.id);
    journal.store.commit(Batch::on(partition.clone()).with(journal.open(&record, now)?), now).await?;
    if let Err(refused) = claim(journal, services, way).await {
        // If this does not reach the store either, the record is closed as interrupted like any other open one.
        let _ = journal.store.commit(Batch::on(partition).with(journal.unopen(record.id)), now).await;
        return Err(refused);
    }
    Ok(record)
}

/// Takes the call's key, if it has one. A commit of its own, because a key is shared by all threads and a commit is not.
/// It comes after the opening record: whoever holds the key has a record to be found by, and only a holder runs.
async fn claim(journal: &Journal, services: &Services, way: &Way) -> Result<(), CallError> {
    let Way { call, tool, stale_claim, digest, .. } = way;
    let (Some(key), Some(digest)) = (&call.key, digest) else { return Ok(()) };
    let now = services.clock.now();
    let claim = Claim { call: call.id, thread: call.thread.clone(), digest: digest.clone(), at: now };
    let batch = Batch::on(journal::claims(&call.tenant, &tool.definition.name, key));
    match journal.store.commit(batch.with(journal.claim(&claim, *stale_claim)?), now).await {
        Ok(_) => Ok(()),
        Err(StoreError::Conflict { .. }) => Err(CallError::new(ErrorKind::IdempotencyInProgress)),
        Err(error) => Err(error.into()),
    }
}

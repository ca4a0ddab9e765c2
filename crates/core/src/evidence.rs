//! Evidence of the successes in a thread: loaded, recorded, reset and announced.
//!
//! In: a thread, and what happened in it. Out: the evidence that every status question and dependency check of the thread
//! uses; commits of its changes, with an event for each tool that becomes available or unavailable. The types crate decides
//! what is missing, `recall.rs` finds successes in the journal, `expiry.rs` announces evidence that has grown old.

mod expiry;
mod recall;

use std::sync::Arc;

pub(crate) use expiry::watch_expiries;
pub(crate) use recall::{recall_shared, recall_thread};

use crate::{
    engine::Engine,
    execution::{EvidenceDemand, Tool},
    registry::Tools,
    statuses::StatusKey,
};
use toolhub_storage::backend::{Batch, Partition, RowVersion, StoreError};
use toolhub_types::{
    event_kind::EventKind,
    ids::{Tenant, ThreadId},
    language::Language,
    status::{Admission, Evidence, Reason, missing_dependencies, next_expiry, tools_to_call},
    timestamp::Timestamp,
    tool::ToolName,
};

/// The evidence of a thread and its row version. Includes successes of tools on which others did not depend when they
/// happened: these are found in the journal and stored now, because the records of the journal expire.
pub(crate) async fn load(
    engine: &Engine,
    tenant: &Tenant,
    thread: &ThreadId,
) -> Result<(Evidence, Option<RowVersion>), StoreError> {
    let stored = engine.journal.evidence(tenant, thread, engine.services.clock.now()).await?;
    complete(engine, tenant, thread, stored).await
}

/// The stored evidence of a thread and its row version, completed as by [`load`].
pub(crate) async fn complete(
    engine: &Engine,
    tenant: &Tenant,
    thread: &ThreadId,
    (mut stored, mut version): (Evidence, Option<RowVersion>),
) -> Result<(Evidence, Option<RowVersion>), StoreError> {
    recall_thread(engine, tenant, thread).await;
    loop {
        let now = engine.services.clock.now();
        let mut evidence = stored.clone();
        evidence.merge(&recall::unrecorded_successes(engine, tenant, thread, &stored));
        if evidence == stored {
            return Ok((stored, version));
        }
        match commit(engine, tenant, thread, (&evidence, version), now).await {
            Ok(version) => return Ok((evidence, Some(version))),
            // A call stored evidence concurrently: load it.
            Err(StoreError::Conflict { .. }) => {
                (stored, version) = engine.journal.evidence(tenant, thread, now).await?;
            }
            // The successes count nevertheless; the next question stores them.
            Err(_) => return Ok((evidence, version)),
        }
    }
}

/// Changes the evidence of a thread. Announces the tools that become available or unavailable by that.
pub(crate) async fn update(
    engine: &Engine,
    tenant: &Tenant,
    thread: &ThreadId,
    mut change: impl FnMut(&mut Evidence, Timestamp),
) -> Result<(), StoreError> {
    loop {
        let (before, version) = load(engine, tenant, thread).await?;
        let (mut after, now) = (before.clone(), engine.services.clock.now());
        change(&mut after, now);
        if after == before {
            return Ok(());
        }
        match commit(engine, tenant, thread, (&after, version), now).await {
            // A call stored evidence concurrently: change that.
            Err(StoreError::Conflict { .. }) => {}
            result => {
                result?;
                let dependents = engine.registry.snapshot().dependents(None);
                announce(engine, tenant, thread, &dependents, (&before, &after));
                return Ok(());
            }
        }
    }
}

/// Adds a success, as far as the dependents of the tool need to know of it.
pub(crate) fn add_success(
    evidence: &mut Evidence,
    tools: &Tools,
    (tool, demand): (&ToolName, EvidenceDemand),
    now: Timestamp,
) {
    let mut next = evidence.clone();
    next.add(tool, now, tools.sequences_of(tool));
    let says_nothing_new = evidence.get(tool).is_some() && next.has_same_progress(evidence);
    if demand == EvidenceDemand::Latest || !says_nothing_new {
        *evidence = next;
    }
}

/// Emits an event for each of these tools that a change of the thread's evidence makes available or unavailable.
pub(crate) fn announce(
    engine: &Engine,
    tenant: &Tenant,
    thread: &ThreadId,
    dependents: &[Arc<Tool>],
    (before, after): (&Evidence, &Evidence),
) {
    let services = &engine.services;
    services.availability_changed.notify_one();
    let now = services.clock.now();
    for tool in dependents {
        let depends_on = &tool.definition.depends_on;
        let missing = missing_dependencies(depends_on, after, now);
        if missing.is_empty() {
            schedule_expiry(engine, tenant, thread, tool, after);
        }
        if missing.is_empty() != missing_dependencies(depends_on, before, now).is_empty() {
            let reason = match missing.is_empty() {
                true => Reason::DependenciesMet,
                false => Reason::WaitingFor { tools: tools_to_call(&missing) },
            };
            emit_availability(engine, tenant, thread, tool, (missing.is_empty(), &reason));
        }
    }
}

/// Makes sure that an event is emitted when the evidence for a tool whose dependencies are met grows too old.
pub(crate) fn schedule_expiry(engine: &Engine, tenant: &Tenant, thread: &ThreadId, tool: &Tool, evidence: &Evidence) {
    if let Some(at) = next_expiry(&tool.definition.depends_on, evidence) {
        engine.statuses.expiries.schedule(StatusKey::thread(&tool.definition.name, tenant, thread), at);
    }
}

/// Emits that a tool's dependencies are met or not, unless its status withholds it anyway.
fn emit_availability(
    engine: &Engine,
    tenant: &Tenant,
    thread: &ThreadId,
    tool: &Tool,
    (available, reason): (bool, &Reason),
) {
    let (events, name) = (&engine.services.events, &tool.definition.name);
    let is_withheld = || matches!(engine.statuses.admit(name, tenant, Some(thread)), Admission::Refuse { .. });
    if !events.has_consumers() || !tool.is_present() || is_withheld() {
        return;
    }
    let (tool_name, reason) = (name.clone(), reason.text(Language::English));
    let event = EventKind::AvailabilityChanged { tool_name, available, reason };
    events.emit_for_tenant(engine.services.clock.now(), tenant, Some(thread), event);
}

async fn commit(
    engine: &Engine,
    tenant: &Tenant,
    thread: &ThreadId,
    (evidence, replaced): (&Evidence, Option<RowVersion>),
    now: Timestamp,
) -> Result<RowVersion, StoreError> {
    let journal = &engine.journal;
    let batch = Batch::new(Partition::for_thread(tenant.clone(), thread.clone()));
    let batch = batch.with(journal.put_evidence(evidence, replaced)?);
    let stamp = batch.stamp;
    let versions = journal.store.commit(batch, now).await?;
    Ok(RowVersion { number: versions.first().copied().unwrap_or_default(), stamp })
}

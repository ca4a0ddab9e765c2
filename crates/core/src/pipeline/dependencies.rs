//! Stage 4: checks that the tools a tool depends on have succeeded in the thread; records that evidence for others.
//!
//! In: the thread's evidence. Out: a refusal that names the tools to call first; at the end of a successful call, the
//! evidence write for its closing batch. `status/evidence.rs` decides what is missing.

use super::Found;
use crate::{
    engine::Engine,
    execution::{CallEnvelope, EvidenceDemand},
    journal::Journal,
    services::Services,
};
use toolhub_storage::backend::{StoreError, Write};
use toolhub_types::{
    error::{CallError, Detail, ErrorKind},
    event_kind::EventKind,
    language::Language,
    status::{Admission, Evidence, MissingDependency, Reason, missing_dependencies, next_step, tools_to_call},
    tool::Definition,
};

pub(super) async fn check(journal: &Journal, services: &Services, found: &Found) -> Result<(), CallError> {
    if found.0.tool.definition.depends_on.is_empty() || found.0.is_resumed() {
        return Ok(());
    }
    Box::pin(check_evidence(journal, services, &found.0)).await
}

async fn check_evidence(journal: &Journal, services: &Services, envelope: &CallEnvelope) -> Result<(), CallError> {
    // Stage 1 has given every call of a dependent tool a thread.
    let Some(thread) = &envelope.call.thread else { return Ok(()) };
    let now = services.clock.now();
    let (evidence, _) = journal.evidence(&envelope.call.tenant, thread, now).await?;
    let missing = missing_dependencies(&envelope.tool.definition.depends_on, &evidence, now);
    if missing.is_empty() { Ok(()) } else { Err(not_met(envelope, &missing)) }
}

fn not_met(envelope: &CallEnvelope, missing: &[MissingDependency]) -> CallError {
    let (tool, next) = (&envelope.tool.definition.name, next_step(missing, Language::English));
    let names = tools_to_call(missing).iter().map(ToString::to_string).collect();
    CallError::new(ErrorKind::DependencyNotMet)
        .operator(format!("`{tool}` has unmet dependencies in this thread. {next}"))
        .model(format!("`{tool}` cannot be used yet. {next}"))
        .detail(Detail::Missing(names))
}

/// The evidence that a success adds to its thread.
#[derive(Default)]
pub(super) struct EvidenceUpdate {
    /// The write that stores it; none if no tool depends on it.
    pub(super) write: Option<Write>,
    before: Evidence,
    after: Evidence,
}

/// The evidence that the success of this call adds.
pub(super) async fn evidence_update(engine: &Engine, envelope: &CallEnvelope) -> Result<EvidenceUpdate, StoreError> {
    let (Some(thread), true) = (&envelope.call.thread, envelope.evidence_demand != EvidenceDemand::None) else {
        return Ok(EvidenceUpdate::default());
    };
    let now = engine.services.clock.now();
    let (before, version) = engine.journal.evidence(&envelope.call.tenant, thread, now).await?;
    let name = &envelope.tool.definition.name;
    if envelope.evidence_demand == EvidenceDemand::Once && before.get(name).is_some() {
        return Ok(EvidenceUpdate::default());
    }
    let mut after = before.clone();
    after.add(name, now);
    let write = engine.journal.put_evidence(&after, version)?;
    Ok(EvidenceUpdate { write: Some(write), before, after })
}

/// Emits an event for each tool that the new evidence makes available in the thread.
pub(super) fn emit_newly_available(engine: &Engine, envelope: &CallEnvelope, update: &EvidenceUpdate) {
    let Engine { services, registry, statuses, .. } = engine;
    let (Some(_), Some(thread)) = (&update.write, &envelope.call.thread) else { return };
    services.availability_changed.notify_one();
    if !services.events.has_subscribers() {
        return;
    }
    let (tenant, now) = (&envelope.call.tenant, services.clock.now());
    for tool in registry.snapshot().dependents_of(&envelope.tool.definition.name) {
        let Definition { name, depends_on, .. } = &tool.definition;
        let is_blocked = |evidence: &Evidence| !missing_dependencies(depends_on, evidence, now).is_empty();
        let usable = || !matches!(statuses.admit(name, tenant, Some(thread)), Admission::Refuse { .. });
        if is_blocked(&update.before) && !is_blocked(&update.after) && usable() {
            let reason = Reason::DependenciesMet.text(Language::English);
            let event = EventKind::AvailabilityChanged { tool_name: name.clone(), available: true, reason };
            services.events.emit_for_tenant(now, tenant, Some(thread), event);
        }
    }
}

//! Stage 4: checks that the tools a tool depends on have succeeded in the thread; records that evidence for others.
//!
//! In: the thread's evidence. Out: a refusal that names the tools to call first; at the end of a successful call, the
//! evidence write for its closing batch. `status/evidence.rs` decides what is missing, `evidence.rs` loads and announces.

use super::Found;
use crate::{
    engine::Engine,
    evidence,
    execution::{CallEnvelope, EvidenceDemand},
};
use toolhub_storage::backend::{StoreError, Write};
use toolhub_types::{
    error::{CallError, Detail, ErrorKind},
    language::Language,
    status::{Evidence, MissingDependency, missing_dependencies, next_step, tools_to_call},
};

pub(super) async fn check(engine: &Engine, found: &Found) -> Result<(), CallError> {
    if found.0.tool.definition.depends_on.is_empty() || found.0.is_resumed() {
        return Ok(());
    }
    Box::pin(check_evidence(engine, &found.0)).await
}

async fn check_evidence(engine: &Engine, envelope: &CallEnvelope) -> Result<(), CallError> {
    // Stage 1 has given every call of a dependent tool a thread.
    let Some(thread) = &envelope.call.thread else { return Ok(()) };
    let (tenant, tool) = (&envelope.call.tenant, &envelope.tool);
    let missing_in =
        |evidence: &Evidence| missing_dependencies(&tool.definition.depends_on, evidence, engine.services.clock.now());
    let (mut evidence, version) = engine.journal.evidence(tenant, thread, engine.services.clock.now()).await?;
    if !missing_in(&evidence).is_empty() {
        // The journal may know of more successes. Most calls need not read it.
        (evidence, _) = evidence::complete(engine, tenant, thread, (evidence, version)).await?;
    }
    let missing = missing_in(&evidence);
    if missing.is_empty() {
        evidence::schedule_expiry(engine, tenant, thread, tool, &evidence);
        Ok(())
    } else {
        Err(not_met(envelope, &missing))
    }
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
    let (tools, now) = (engine.registry.snapshot(), engine.services.clock.now());
    let (before, version) = engine.journal.evidence(&envelope.call.tenant, thread, now).await?;
    let name = &envelope.tool.definition.name;
    let mut after = before.clone();
    evidence::add_success(&mut after, &tools, (name, envelope.evidence_demand), now);
    if after == before {
        return Ok(EvidenceUpdate::default());
    }
    let write = engine.journal.put_evidence(&after, version)?;
    Ok(EvidenceUpdate { write: Some(write), before, after })
}

/// Emits an event for each tool that the new evidence makes available in the thread.
pub(super) fn announce(engine: &Engine, envelope: &CallEnvelope, update: &EvidenceUpdate) {
    let (Some(_), Some(thread)) = (&update.write, &envelope.call.thread) else { return };
    let dependents = engine.registry.snapshot().dependents(Some(&envelope.tool.definition.name));
    evidence::announce(engine, &envelope.call.tenant, thread, &dependents, (&update.before, &update.after));
}

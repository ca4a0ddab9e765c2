//! Door 4, and its other side: a tool that waits for others is not called before its time, and a tool that others wait
//! for leaves evidence of its success.
//!
//! In: what the thread has achieved. Out: a refusal that says what to call next; at the end of a good call, the write
//! that joins its closing batch. What is missing is decided by `status/evidence.rs`.

use super::{Found, Way};
use crate::{
    backend::{StoreError, Write},
    error::{CallError, Detail, ErrorKind},
    journal::Journal,
    registry::Base,
    services::Services,
    status::{Language, Missing, helpful, missing, next_step},
};

pub(super) async fn check(journal: &Journal, services: &Services, found: &Found) -> Result<(), CallError> {
    if found.0.tool.definition.depends_on.is_empty() {
        return Ok(());
    }
    Box::pin(look(journal, services, &found.0)).await
}

async fn look(journal: &Journal, services: &Services, way: &Way) -> Result<(), CallError> {
    // Door 1 has given every dependent call a thread.
    let Some(thread) = &way.call.thread else { return Ok(()) };
    let now = services.clock.now();
    let (evidence, _) = journal.evidence(&way.call.tenant, thread, now).await?;
    let missing = missing(&way.tool.definition.depends_on, &evidence, now);
    if missing.is_empty() { Ok(()) } else { Err(not_yet(way, &missing)) }
}

fn not_yet(way: &Way, missing: &[Missing]) -> CallError {
    let (tool, next) = (&way.tool.definition.name, next_step(missing, Language::English));
    let names = helpful(missing).iter().map(ToString::to_string).collect();
    CallError::new(ErrorKind::DependencyNotMet)
        .operator(format!("`{tool}` still waits for others in this thread. {next}"))
        .model(format!("`{tool}` cannot be used yet. {next}"))
        .detail(Detail::Missing(names))
}

/// The write that keeps the evidence of a success, where somebody wants to know of it.
pub(super) async fn prove(journal: &Journal, services: &Services, way: &Way) -> Result<Option<Write>, StoreError> {
    let (Some(thread), true) = (&way.call.thread, way.base != Base::No) else { return Ok(None) };
    let now = services.clock.now();
    let (mut evidence, seen) = journal.evidence(&way.call.tenant, thread, now).await?;
    let name = &way.tool.definition.name;
    if way.base == Base::Once && evidence.of(name).is_some() {
        return Ok(None);
    }
    evidence.add(name, now);
    journal.prove(&evidence, seen).map(Some)
}

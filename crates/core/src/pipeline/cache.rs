//! Door 8: the kept answer of an earlier call of a read-only tool.
//!
//! In: an allowed call whose tool wants its answers kept. Out: the answer, if one is known; after the tool has run, a new
//! one to keep. A call that proves something to its thread is always made: an answer from elsewhere proves nothing here.
//! An answer is kept as the tool gave it: what the owner's code makes of it may depend on who asks, so that code looks
//! at a kept answer as it looks at a new one.

use std::sync::Arc;

use super::{Allowed, Done, hooks, output, ticket::Ticket};
use crate::result_cache;
use crate::result_cache::CachedResult;
use crate::result_cache::Fingerprint;
use crate::{
    engine::Engine,
    execution::{CallContext, CallEnvelope, CallSlot, EvidenceDemand, Reply, Times},
    services::Services,
};
use toolhub_types::{content::Content, effect::Effect, error::CallError, outcome::Outcome};

/// Whether the answer is known.
pub(super) enum CacheLookup {
    /// It is.
    Hit(Box<Outcome>),
    /// It is not.
    Miss(Allowed),
}

pub(super) async fn lookup(engine: &Engine, allowed: Allowed, ticket: &Ticket<'_>) -> Result<CacheLookup, CallError> {
    if allowed.0.tool.limits.cache.is_none() {
        return Ok(CacheLookup::Miss(allowed));
    }
    Box::pin(search(engine, allowed, ticket)).await
}

/// Gives an answer again.
async fn serve_cached(
    services: &Services,
    envelope: CallEnvelope,
    answer: &CachedResult,
    ticket: &Ticket<'_>,
) -> Outcome {
    let reply = Reply { output: answer.output.clone(), content: answer.content.clone() };
    let now = services.clock.instant();
    let context = CallContext::new(envelope, Times { started_at: now, deadline: now }, CallSlot::default().downgrade());
    let (effect, result) = (Effect::None, Ok(reply));
    let mut done = Done { context, probe_guard: None, record: None, result, effect, hook_error: None };
    if let Some(asking) = hooks::after(&mut done) {
        asking.await;
    }
    if let Some(cutting) = output::limit(services, &mut done) {
        cutting.await;
    }
    let reply = done.result.ok().filter(|_| done.hook_error.is_none()).unwrap_or_default();
    let error = done.hook_error.map(|why| *why);
    if let Some(error) = &error {
        done.context.envelope().tool.runtime.meter.record_refusal(error.kind);
    }
    Outcome { cached: true, ..ticket.outcome(Effect::None, reply.output, reply.content, error) }
}

async fn search(engine: &Engine, allowed: Allowed, ticket: &Ticket<'_>) -> Result<CacheLookup, CallError> {
    let Allowed(mut envelope) = allowed;
    // What somebody outside says is said to this call alone.
    let outside = envelope.call.external.is_some();
    let keyed =
        envelope.call.idempotency_key.is_some() || envelope.approval().is_some() || envelope.is_rerun() || outside;
    if keyed || (envelope.evidence_demand != EvidenceDemand::None && envelope.call.thread.is_some()) {
        return Ok(CacheLookup::Miss(Allowed(envelope)));
    }
    let fingerprint = fingerprint(&engine.services, &envelope).await?;
    let now = engine.services.clock.instant();
    if let Some(answer) = engine.scheduler.result_cache.get(&fingerprint, now) {
        return Ok(CacheLookup::Hit(Box::new(serve_cached(&engine.services, envelope, &answer, ticket).await)));
    }
    envelope.extras_mut().cache_key = Some(fingerprint);
    Ok(CacheLookup::Miss(Allowed(envelope)))
}

/// What tells one answer from another: for a tool that remembers, also what it remembers.
async fn fingerprint(services: &Services, envelope: &CallEnvelope) -> Result<Fingerprint, CallError> {
    let CallEnvelope { call, tool, .. } = envelope;
    let known = result_cache::ToolIdentity { name: &tool.definition.name, definition: &tool.fingerprint };
    let Some(thread) = call.thread.as_ref().filter(|_| tool.stateful) else {
        return Ok(Fingerprint::of(&call.tenant, known, &call.arguments));
    };
    let seen = services.state.row_versions(&call.tenant, thread, &tool.state.names).await?;
    let states: Vec<_> = seen.iter().map(|(name, seen)| (name.as_str(), *seen)).collect();
    Ok(Fingerprint::in_thread(&call.tenant, known, &call.arguments, thread, &states))
}

/// Keeps a good answer.
pub(super) fn store_result(engine: &Engine, done: &Done) {
    let Engine { registry, scheduler, services, .. } = engine;
    let envelope = done.context.envelope();
    let keep_as = envelope.extras.as_ref().and_then(|extras| extras.cache_key.as_ref());
    let (Some(fingerprint), Some(time), Ok(reply)) = (keep_as, envelope.tool.limits.cache, &done.result) else {
        return;
    };
    // An artifact may be forgotten before the answer that points to it, and what is too long becomes one.
    // And whoever was replaced while it ran does not answer for its successor.
    let replaced = !registry
        .find(&envelope.tool.definition.name)
        .is_some_and(|(tool, _)| tool.registration == envelope.tool.registration);
    let points = reply.content.iter().any(|piece| matches!(piece, Content::Artifact { .. }));
    if replaced || points || !output::is_within_limits(reply, &envelope.tool.limits) {
        return;
    }
    let answer = CachedResult { output: reply.output.clone(), content: reply.content.clone() };
    scheduler.result_cache.put(fingerprint.clone(), Arc::new(answer), time, services.clock.instant());
}

//! Stage 8: the result cache of read-only tools.
//!
//! In: an allowed call whose tool has caching enabled. Out: the cached result, or a miss; after the tool has run, a new
//! cache entry. A call that leaves evidence in its thread is never served from the cache, because a result of another
//! thread is no evidence. The cache holds the tool's raw result: after-hooks may depend on the caller, so they run on a
//! cached result as on a fresh one.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use super::{Allowed, Done, hooks, output, ticket::Ticket};
use crate::{
    batched_records::EndedCall,
    engine::Engine,
    execution::{AttemptTimes, CallContext, CallEnvelope, CallSlot, EvidenceDemand, Reply},
    result_cache::{self, CachedResult, Fingerprint},
    services::Services,
};
use toolhub_types::{content::Content, effect::Effect, error::CallError, outcome::Outcome};

/// Whether the result cache would answer a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CacheForecast {
    /// Results of the tool are not cached.
    Off,
    /// This call does not use the cache, because other tools need the evidence of its success in the thread.
    Bypassed,
    /// It would get a cached result.
    Hit,
    /// No result is cached for these arguments.
    Miss,
}

/// The result of a cache lookup.
pub(super) enum CacheLookup {
    Hit(Box<Outcome>),
    Miss(Allowed),
}

pub(super) async fn lookup(engine: &Engine, allowed: Allowed, ticket: &Ticket<'_>) -> Result<CacheLookup, CallError> {
    if allowed.0.tool.limits.cache.is_none() {
        return Ok(CacheLookup::Miss(allowed));
    }
    Box::pin(search(engine, allowed, ticket)).await
}

/// Turns a cached result into the call's outcome: after-hooks and output limits apply as to a fresh one.
async fn serve_cached(engine: &Engine, envelope: CallEnvelope, cached: &CachedResult, ticket: &Ticket<'_>) -> Outcome {
    let services = &engine.services;
    let reply = Reply { output: cached.output.clone(), content: cached.content.clone() };
    let now = services.clock.instant();
    let context =
        CallContext::new(envelope, AttemptTimes { started_at: now, deadline: now }, CallSlot::default().downgrade());
    let (effect, result) = (Effect::None, Ok(reply));
    let mut done = Done { context, probe_guard: None, record: None, result, effect, hook_error: None };
    if let Some(running_hooks) = hooks::after(&mut done) {
        running_hooks.await;
    }
    if let Some(truncating) = output::limit(services, &mut done) {
        truncating.await;
    }
    let reply = done.result.ok().filter(|_| done.hook_error.is_none()).unwrap_or_default();
    let error = done.hook_error.map(|error| *error);
    let duration = services.clock.instant().saturating_duration_since(now);
    let outcome = ticket.outcome(Effect::None, reply.output, reply.content, error);
    let outcome = Outcome { cached: true, duration, ..outcome };
    let meter = &done.context.envelope().tool.runtime.meter;
    meter.record_cache_hit();
    meter.record_end(duration, outcome.error_kind());
    if let Some(records) = engine.records_of(&outcome) {
        records.add(Box::new(EndedCall::new(done.context, &outcome))).await;
    }
    outcome
}

/// Whether a call does not use the cache of its tool.
fn is_bypassed(envelope: &CallEnvelope) -> bool {
    let call = &envelope.call;
    let leaves_evidence = envelope.evidence_demand != EvidenceDemand::None && call.thread.is_some();
    // The result of external work belongs to this call alone.
    let is_of_this_call = call.idempotency_key.is_some() || call.external.is_some() || envelope.approval().is_some();
    is_of_this_call || envelope.is_resumed() || leaves_evidence
}

/// Whether the cache would answer a call.
pub(super) async fn forecast(engine: &Engine, envelope: &CallEnvelope) -> Result<CacheForecast, CallError> {
    if envelope.tool.limits.cache.is_none() {
        return Ok(CacheForecast::Off);
    }
    if is_bypassed(envelope) {
        return Ok(CacheForecast::Bypassed);
    }
    let fingerprint = fingerprint(&engine.services, envelope).await?;
    let cached = engine.scheduler.result_cache.get(&fingerprint, engine.services.clock.instant());
    Ok(if cached.is_some() { CacheForecast::Hit } else { CacheForecast::Miss })
}

async fn search(engine: &Engine, allowed: Allowed, ticket: &Ticket<'_>) -> Result<CacheLookup, CallError> {
    let Allowed(mut envelope) = allowed;
    if is_bypassed(&envelope) {
        return Ok(CacheLookup::Miss(Allowed(envelope)));
    }
    let fingerprint = fingerprint(&engine.services, &envelope).await?;
    let now = engine.services.clock.instant();
    if let Some(cached) = engine.scheduler.result_cache.get(&fingerprint, now) {
        return Ok(CacheLookup::Hit(Box::new(serve_cached(engine, envelope, &cached, ticket).await)));
    }
    envelope.tool.runtime.meter.record_cache_miss();
    envelope.extras_mut().cache_key = Some(fingerprint);
    Ok(CacheLookup::Miss(Allowed(envelope)))
}

/// The cache key: tool, arguments and tenant; for a stateful tool also the versions of its states.
async fn fingerprint(services: &Services, envelope: &CallEnvelope) -> Result<Fingerprint, CallError> {
    let CallEnvelope { call, tool, .. } = envelope;
    let tool_identity = result_cache::ToolIdentity { name: &tool.definition.name, definition: &tool.fingerprint };
    let Some(thread) = call.thread.as_ref().filter(|_| tool.stateful) else {
        return Ok(Fingerprint::of(&call.tenant, tool_identity, &call.arguments.to_value()));
    };
    let versions = services.state.row_versions(&call.tenant, thread, &tool.state.names).await?;
    let states: Vec<_> = versions.iter().map(|(name, version)| (name.as_str(), *version)).collect();
    Ok(Fingerprint::in_thread(&call.tenant, tool_identity, &call.arguments.to_value(), thread, &states))
}

/// Caches the result of a successful call.
pub(super) fn store_result(engine: &Engine, done: &Done) {
    let Engine { registry, scheduler, services, .. } = engine;
    let envelope = done.context.envelope();
    let cache_key = envelope.extras.as_ref().and_then(|extras| extras.cache_key.as_ref());
    let (Some(fingerprint), Some(ttl), Ok(reply)) = (cache_key, envelope.tool.limits.cache, &done.result) else {
        return;
    };
    // An artifact may expire before the cache entry that points to it, and oversized output becomes an artifact. The
    // result of a tool that was replaced while it ran must not be served for its successor.
    let replaced = !registry
        .find(&envelope.tool.definition.name)
        .is_some_and(|(tool, _)| tool.registration == envelope.tool.registration);
    let has_artifact = reply.content.iter().any(|piece| matches!(piece, Content::Artifact { .. }));
    if replaced || has_artifact || !output::is_within_limits(reply, &envelope.tool.limits) {
        return;
    }
    let result = CachedResult { output: reply.output.clone(), content: reply.content.clone() };
    scheduler.result_cache.put(fingerprint.clone(), Arc::new(result), ttl, services.clock.instant());
}

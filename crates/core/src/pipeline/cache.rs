//! Door 8: the kept answer of an earlier call of a read-only tool.
//!
//! In: an allowed call whose tool wants its answers kept. Out: the answer, if one is known; after the tool has run, a new
//! one to keep. A call that proves something to its thread is always made: an answer from elsewhere proves nothing here.
//! An answer is kept as the tool gave it: what the owner's code makes of it may depend on who asks, so that code looks
//! at a kept answer as it looks at a new one.

use std::sync::Arc;

use super::{Allowed, Done, Way, admission::Slot, hooks, output, ticket::Ticket};
use crate::{
    context::{CallContext, Times},
    engine::Engine,
    executor::Reply,
    kept::{self, Answer, Fingerprint},
    registry::Base,
    services::Services,
    state,
};
use toolhub_types::{content::Content, effect::Effect, error::CallError, outcome::Outcome};

/// Whether the answer is known.
pub(super) enum Known {
    /// It is.
    Yes(Box<Outcome>),
    /// It is not.
    No(Allowed),
}

pub(super) async fn look(engine: &Engine, allowed: Allowed, ticket: &Ticket<'_>) -> Result<Known, CallError> {
    if allowed.0.tool.limits.cache.is_none() {
        return Ok(Known::No(allowed));
    }
    Box::pin(look_up(engine, allowed, ticket)).await
}

/// Gives an answer again.
async fn give(services: &Services, way: Way, answer: &Answer, ticket: &Ticket<'_>) -> Outcome {
    let reply = Reply { output: answer.output.clone(), content: answer.content.clone() };
    let now = services.clock.instant();
    let context = CallContext::new(way, Times { began: now, deadline: now }, Slot::default().watch());
    let (effect, result) = (Effect::None, Ok(reply));
    let mut done = Done { context, standing: None, record: None, result, effect, withheld: None };
    if let Some(asking) = hooks::after(&mut done) {
        asking.await;
    }
    if let Some(cutting) = output::limit(services, &mut done) {
        cutting.await;
    }
    let reply = done.result.ok().filter(|_| done.withheld.is_none()).unwrap_or_default();
    let error = done.withheld.map(|why| *why);
    if let Some(error) = &error {
        done.context.way().tool.desk.meter.refused(error.kind);
    }
    Outcome { cached: true, ..ticket.ended(Effect::None, reply.output, reply.content, error) }
}

async fn look_up(engine: &Engine, allowed: Allowed, ticket: &Ticket<'_>) -> Result<Known, CallError> {
    let Allowed(mut way) = allowed;
    // What somebody outside says is said to this call alone.
    let outside = way.call.external.is_some();
    let keyed = way.call.key.is_some() || way.permit().is_some() || way.runs_again() || outside;
    if keyed || (way.base != Base::No && way.call.thread.is_some()) {
        return Ok(Known::No(Allowed(way)));
    }
    let fingerprint = fingerprint(&engine.services, &way).await?;
    let now = engine.services.clock.instant();
    if let Some(answer) = engine.scheduler.kept.get(&fingerprint, now) {
        return Ok(Known::Yes(Box::new(give(&engine.services, way, &answer, ticket).await)));
    }
    way.along().keep_as = Some(fingerprint);
    Ok(Known::No(Allowed(way)))
}

/// What tells one answer from another: for a tool that remembers, also what it remembers.
async fn fingerprint(services: &Services, way: &Way) -> Result<Fingerprint, CallError> {
    let Way { call, tool, .. } = way;
    let known = kept::Known { name: &tool.definition.name, definition: &tool.fingerprint };
    let Some(thread) = call.thread.as_ref().filter(|_| tool.stateful) else {
        return Ok(Fingerprint::of(&call.tenant, known, &call.arguments));
    };
    let seen = state::seen(services, &call.tenant, thread, &tool.state.names).await?;
    let states: Vec<_> = seen.iter().map(|(name, seen)| (name.as_str(), *seen)).collect();
    Ok(Fingerprint::in_thread(&call.tenant, known, &call.arguments, thread, &states))
}

/// Keeps a good answer.
pub(super) fn keep(engine: &Engine, done: &Done) {
    let Engine { registry, scheduler, services, .. } = engine;
    let way = done.context.way();
    let keep_as = way.along.as_ref().and_then(|along| along.keep_as.as_ref());
    let (Some(fingerprint), Some(time), Ok(reply)) = (keep_as, way.tool.limits.cache, &done.result) else {
        return;
    };
    // An artifact may be forgotten before the answer that points to it, and what is too long becomes one.
    // And whoever was replaced while it ran does not answer for its successor.
    let replaced =
        !registry.find(&way.tool.definition.name).is_some_and(|(tool, _)| tool.registration == way.tool.registration);
    let points = reply.content.iter().any(|piece| matches!(piece, Content::Artifact { .. }));
    if replaced || points || !output::fits(reply, &way.tool.limits) {
        return;
    }
    let answer = Answer { output: reply.output.clone(), content: reply.content.clone() };
    scheduler.kept.put(fingerprint.clone(), Arc::new(answer), time, services.clock.instant());
}

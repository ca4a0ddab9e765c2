//! Door 8: the kept answer of an earlier call of a read-only tool.
//!
//! In: an allowed call whose tool wants its answers kept. Out: the answer, if one is known; after the tool has run, a new
//! one to keep. A call that proves something to its thread is always made: an answer from elsewhere proves nothing here.

use std::sync::Arc;

use serde_json::Value;

use super::{Allowed, Done, Way, ticket::Ticket};
use crate::{
    call::{Content, Effect, Outcome},
    engine::Engine,
    error::CallError,
    kept::{self, Answer, Fingerprint},
    registry::Base,
    scheduler::Scheduler,
    services::Services,
    state,
};

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

async fn look_up(engine: &Engine, allowed: Allowed, ticket: &Ticket<'_>) -> Result<Known, CallError> {
    let Allowed(mut way) = allowed;
    let keyed = way.call.key.is_some() || way.permit().is_some();
    if keyed || (way.base != Base::No && way.call.thread.is_some()) {
        return Ok(Known::No(Allowed(way)));
    }
    let fingerprint = fingerprint(&engine.services, &way).await?;
    let now = engine.services.clock.instant();
    if let Some(answer) = engine.scheduler.kept.get(&fingerprint, now) {
        let (output, content): (Value, Vec<Content>) = (answer.output.clone(), answer.content.clone());
        return Ok(Known::Yes(Box::new(Outcome { cached: true, ..ticket.ended(Effect::None, output, content, None) })));
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
    let states = state::seen(services, &call.tenant, thread, &tool.states).await?;
    Ok(Fingerprint::in_thread(&call.tenant, known, &call.arguments, thread, &states))
}

/// Keeps a good answer.
pub(super) fn keep(scheduler: &Scheduler, services: &Services, done: &Done) {
    let way = done.context.way();
    let keep_as = way.along.as_ref().and_then(|along| along.keep_as.as_ref());
    let (Some(fingerprint), Some(time), Ok(reply), None) =
        (keep_as, way.tool.limits.cache, &done.result, &done.withheld)
    else {
        return;
    };
    // An artifact may be forgotten before the answer that points to it.
    if reply.content.iter().any(|piece| matches!(piece, Content::Artifact { .. })) {
        return;
    }
    let answer = Answer { output: reply.output.clone(), content: reply.content.clone() };
    scheduler.kept.put(fingerprint.clone(), Arc::new(answer), time, services.clock.instant());
}

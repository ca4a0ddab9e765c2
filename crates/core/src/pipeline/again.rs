//! Goes on with a call whose process died before it ended: one that waited, or one whose tool may run once more.
//!
//! In: an open call that waited for a person or for its turn; or one of an idempotent tool whose owner asked for this. Out: its one end, written down and told. It is the
//! same call under the same id; it has passed the doors up to 8, and asks for its turn and for the tool's status again.

use std::{pin::pin, sync::Arc};

use serde_json::{Map, Value};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::{
    Found, Way, attempts, interrupted,
    launch::{self, Ahead},
    open, report, route,
    ticket::Ticket,
};
use crate::{
    call::{Call, Whereabouts},
    engine::Engine,
    journal::OpenCall,
    registry::{Base, Tool},
};
use toolhub_types::{
    error::{CallError, ErrorKind},
    ids::Tenant,
    outcome::Outcome,
};

/// Starts the call on a task of its own, as soon as there is a place for it. One that only waits needs none.
pub(crate) fn run_again(
    engine: &Arc<Engine>,
    tenant: Tenant,
    open: OpenCall,
    (tool, base): (Arc<Tool>, Base),
    places: Arc<Semaphore>,
) {
    if engine.is_leaving() {
        return;
    }
    let cancel = CancellationToken::new();
    let mut call = Box::new(call(engine, tenant, &open, cancel.clone()));
    let whereabouts = Whereabouts::of(&call, cancel);
    call.whereabouts = Some(whereabouts.clone());
    if open.waits() {
        call.waits(open.record.status, open.record.approval);
    }
    // From here on it counts as running, so that nobody starts it twice.
    let running = engine.live.enter(&whereabouts);
    let (tasks, runtime, engine) = (engine.tasks.clone(), engine.runtime.clone(), engine.clone());
    let task = async move {
        let _place = if open.waits() { None } else { places.acquire().await.ok() };
        let id = open.record.id;
        walk(&engine, Way { call, tool, base, along: None }, open, &whereabouts).await;
        drop(running);
        engine.journal.gone(id);
    };
    tasks.spawn_on(task, &runtime);
}

/// Walks the call through the doors it has not passed. If it cannot be started, it is closed as interrupted; if somebody
/// else has taken it over, nothing happens.
async fn walk(engine: &Engine, mut way: Way, mut open: OpenCall, whereabouts: &Whereabouts) {
    let mut ticket = Ticket::new(&engine.services, &way.call);
    match taken_over(engine, &way, &open).await {
        Ok(Some(taken)) => open = taken,
        Ok(None) => {
            let why = "the process that ran the call is gone, and another call has its idempotency key";
            let outcome = interrupted::outcome(&open, why, engine.services.clock.now());
            return close(engine, ticket, whereabouts, &open, &outcome).await;
        }
        Err(error) => {
            tracing::warn!(error = %error.operator, call = %open.record.id, "a call that was left open could not be taken over");
            return ticket.settle();
        }
    }
    if open.waits() {
        whereabouts.written(&open);
    }
    ticket.goes_on(&way.tool, &engine.registry);
    way.along().left_open = Some(Box::new(open.clone()));
    let passed = {
        let walking = pin!(route(engine, Found(way), &mut ticket));
        attempts::caught(walking).await
    };
    let refusal = match passed {
        Ok(Ok(outcome)) => return report::report(ticket, &outcome),
        Ok(Err(refusal)) => refusal,
        Err(panic) => {
            ticket.count(ErrorKind::Internal);
            let error = CallError::new(ErrorKind::Internal).operator(attempts::panic_text(panic));
            let outcome = ticket.refused(error);
            engine.journal.not_written(&outcome);
            return report::report(ticket, &outcome);
        }
    };
    let (open, outcome) = match launch::ahead(Some(whereabouts), &refusal) {
        Ahead::Stays => return ticket.settle(),
        Ahead::Closes(waited) => {
            ticket.count(refusal.kind);
            (*waited, ticket.refused(refusal))
        }
        Ahead::Nothing => {
            ticket.count(ErrorKind::Interrupted);
            let why =
                format!("the process that ran the call is gone, and it could not be run again: {}", refusal.operator);
            let outcome = interrupted::outcome(&open, &why, engine.services.clock.now());
            (open, outcome)
        }
    };
    close(engine, ticket, whereabouts, &open, &outcome).await;
}

/// The call with the right to go on with it; none where another call has its key.
async fn taken_over(engine: &Engine, way: &Way, open: &OpenCall) -> Result<Option<OpenCall>, CallError> {
    Ok(match open::has_its_key(engine, way, open).await? {
        false => None,
        // It goes on waiting here, and nowhere else. One that was started is taken over when it is its turn.
        true if open.waits() => Some(open::adopt(engine, way, open).await?),
        true => Some(open.clone()),
    })
}

async fn close(engine: &Engine, ticket: Ticket<'_>, whereabouts: &Whereabouts, open: &OpenCall, outcome: &Outcome) {
    match interrupted::close(engine, &whereabouts.tenant, open, outcome).await {
        Ok(true) => report::report(ticket, outcome),
        // Its end is told by whoever has it now. That may be this hub, if it was not told that it has taken the call over.
        Ok(false) => ticket.settle(),
        // It stays open, and is looked at again.
        Err(error) => {
            tracing::warn!(%error, call = %outcome.id, "a call that was interrupted could not be closed");
            engine.journal.not_written(outcome);
            ticket.settle();
        }
    }
}

/// The call as it was opened. Nobody waits for it any more, and it goes on without anybody.
fn call(engine: &Engine, tenant: Tenant, open: &OpenCall, cancel: CancellationToken) -> Call {
    let (record, clock) = (&open.record, &engine.services.clock);
    let arguments = if record.arguments.is_null() { Value::Object(Map::new()) } else { record.arguments.clone() };
    Call {
        id: record.id,
        own_id: false,
        tool: record.tool.as_str().into(),
        arguments,
        tenant,
        caller: record.caller.clone(),
        thread: record.thread.clone(),
        run: record.run,
        key: record.key.clone(),
        model_call: record.opening.as_ref().and_then(|opening| opening.model_call.clone()),
        trace: record.opening.as_ref().and_then(|opening| opening.trace.clone()),
        timeout: None,
        retries: record.opening.as_ref().and_then(|opening| opening.retries),
        external: record.opening.as_ref().and_then(|opening| opening.external),
        arrived: clock.now(),
        since: clock.instant(),
        among: None,
        flaw: None,
        detached: true,
        can_wait: open.waits(),
        until_asked: false,
        whereabouts: None,
        member: None,
        cancel: Some(cancel),
        progress: None,
    }
}

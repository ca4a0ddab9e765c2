//! Runs a call once more whose process died before it ended.
//!
//! In: an open call of an idempotent tool whose owner asked for this. Out: its one end, written down and told. It is the
//! same call under the same id; it has passed the doors up to 8, and asks for its turn and for the tool's status again.

use std::{pin::pin, sync::Arc};

use serde_json::{Map, Value};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::{Found, Way, attempts, interrupted, report, route, ticket::Ticket};
use crate::{
    call::Call,
    engine::Engine,
    error::{CallError, ErrorKind},
    ids::Tenant,
    journal::OpenCall,
    registry::{Base, Tool},
};

/// Starts the call on a task of its own, as soon as there is a place for it.
pub(crate) fn run_again(
    engine: &Arc<Engine>,
    tenant: Tenant,
    open: OpenCall,
    tool: (Arc<Tool>, Base),
    places: Arc<Semaphore>,
) {
    let cancel = CancellationToken::new();
    // From here on it counts as running, so that nobody starts it twice.
    let running = engine.live.enter(open.record.id, Some(cancel.clone()));
    let (tasks, runtime, engine) = (engine.tasks.clone(), engine.runtime.clone(), engine.clone());
    let task = async move {
        let _place = places.acquire().await;
        let id = open.record.id;
        walk(&engine, tenant, open, tool, cancel).await;
        drop(running);
        engine.journal.gone(id);
    };
    tasks.spawn_on(task, &runtime);
}

/// Walks the call through the doors it has not passed. If it cannot be started, it is closed as interrupted; if somebody
/// else has taken it over, nothing happens.
async fn walk(
    engine: &Engine,
    tenant: Tenant,
    open: OpenCall,
    (tool, base): (Arc<Tool>, Base),
    cancel: CancellationToken,
) {
    let call = Box::new(call(engine, tenant.clone(), &open, cancel));
    let mut ticket = Ticket::new(&engine.services, &call);
    ticket.runs(false, &tool, &engine.registry);
    let mut way = Way { call, tool, base, along: None };
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
    ticket.count(ErrorKind::Interrupted);
    let why = format!("the process that ran the call is gone, and it could not be run again: {}", refusal.operator);
    let outcome = interrupted::outcome(&open, &why, engine.services.clock.now());
    match interrupted::close(engine, &tenant, &open, &outcome).await {
        Ok(true) => report::report(ticket, &outcome),
        // Its end is told by whoever has it now. That may be this hub, if it was not told that it has taken the call over.
        Ok(false) => ticket.settle(),
        // It stays open, and is looked at again.
        Err(error) => {
            tracing::warn!(%error, call = %outcome.id, "a call that was interrupted could not be closed");
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
        tool: record.tool.as_str().into(),
        arguments,
        tenant,
        caller: record.caller.clone(),
        thread: record.thread.clone(),
        run: record.run,
        key: record.key.clone(),
        model_call: record.opening.as_ref().and_then(|opening| opening.model_call.clone()),
        timeout: None,
        arrived: clock.now(),
        since: clock.instant(),
        among: None,
        flaw: None,
        detached: true,
        can_wait: false,
        member: None,
        cancel: Some(cancel),
        progress: None,
    }
}

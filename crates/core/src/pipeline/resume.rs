//! Resumes a call whose process died before it ended.
//!
//! In: an open call that waited for a person or in the queue; or one of an idempotent tool that is configured to rerun
//! after a crash. Out: its one outcome, journaled and emitted. It is the same call under the same id: it has passed
//! stages 2 to 8 before, and passes admission and the status gate again.

use std::{pin::pin, sync::Arc};

use serde_json::{Map, Value};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::{
    Found, attempts, interruption,
    launch::{self, PreopenedRecord},
    open, report, route,
    ticket::Ticket,
};
use crate::{
    call::{Call, CallHead, CallerWait},
    engine::Engine,
    execution::{CallEnvelope, EvidenceDemand, Tool},
    journal::{CallTracker, OpenCall},
};
use toolhub_types::{
    error::{CallError, ErrorKind},
    ids::Tenant,
    outcome::Outcome,
};

/// Starts the call on a task of its own, as soon as a permit is free. A call that only waits needs no permit.
pub(crate) fn spawn_resumed(
    engine: &Arc<Engine>,
    tenant: Tenant,
    open: Arc<OpenCall>,
    tool: (Arc<Tool>, EvidenceDemand),
    permits: Arc<Semaphore>,
) {
    if engine.is_shutting_down() {
        return;
    }
    let cancel = CancellationToken::new();
    let call = Box::new(restore_call(engine, tenant, &open, cancel.clone()));
    let tracker = CallTracker::new(&call, cancel);
    let mut envelope = CallEnvelope::new(call, tool, None);
    envelope.tracker = Some(tracker.clone());
    if open.is_waiting() {
        envelope.set_waiting(open.record.status, open.record.approval);
    }
    // From here on it counts as running, so that the next recovery scan does not start it a second time.
    let running = engine.live_calls.register(&tracker);
    let (tasks, runtime, engine) = (engine.call_tasks.clone(), engine.runtime.clone(), engine.clone());
    let task = async move {
        let _permit = if open.is_waiting() { None } else { permits.acquire().await.ok() };
        let id = open.record.id;
        run_stages(&engine, envelope, open, &tracker).await;
        drop(running);
        engine.journal.mark_stopped(id);
    };
    tasks.spawn_on(task, &runtime);
}

/// Runs the remaining stages of the call. If it cannot be started, it is closed as interrupted; if another node has
/// taken it over, nothing happens.
async fn run_stages(engine: &Engine, mut envelope: CallEnvelope, mut open: Arc<OpenCall>, tracker: &CallTracker) {
    let mut ticket = Ticket::new(&engine.services, &envelope.call);
    match take_over(engine, &envelope, &open).await {
        Ok(Some(taken)) => open = taken,
        Ok(None) => {
            let reason = "the process that ran the call is gone, and another call holds its idempotency key";
            let outcome = interruption::interrupted_outcome(&open, reason, engine.services.clock.now());
            return close_record(engine, ticket, tracker, &open, &outcome).await;
        }
        Err(error) => {
            tracing::warn!(error = %error.operator, call = %open.record.id, "could not take over open call");
            return ticket.complete();
        }
    }
    if open.is_waiting() {
        tracker.set_journaled(open.clone());
    }
    ticket.mark_resumed(&envelope.tool, &engine.registry);
    envelope.extras_mut().open_record = Some(open.clone());
    let routed = {
        let routing = pin!(route(engine, Found(envelope), &mut ticket));
        attempts::catch_panic(routing).await
    };
    let refusal = match routed {
        Ok(Ok(outcome)) => return report::report(ticket, &outcome),
        Ok(Err(refusal)) => refusal,
        Err(panic) => {
            ticket.count_end(ErrorKind::Internal);
            let error = CallError::new(ErrorKind::Internal).operator(attempts::panic_text(panic));
            let outcome = ticket.refused_outcome(error);
            engine.journal.note_unwritten(&outcome);
            return report::report(ticket, &outcome);
        }
    };
    let (open, outcome) = match launch::preopened_record(Some(tracker), &refusal) {
        PreopenedRecord::Retained => return ticket.complete(),
        PreopenedRecord::MustClose(preopened) => {
            ticket.count_end(refusal.kind);
            (preopened, ticket.refused_outcome(refusal))
        }
        PreopenedRecord::Absent => {
            ticket.count_end(ErrorKind::Interrupted);
            let reason = format!(
                "the process that ran the call is gone, and the call could not be resumed: {}",
                refusal.operator
            );
            let outcome = interruption::interrupted_outcome(&open, &reason, engine.services.clock.now());
            (open, outcome)
        }
    };
    close_record(engine, ticket, tracker, &open, &outcome).await;
}

/// The record to continue with; `None` if another call holds the idempotency key.
async fn take_over(
    engine: &Engine,
    envelope: &CallEnvelope,
    open: &Arc<OpenCall>,
) -> Result<Option<Arc<OpenCall>>, CallError> {
    Ok(match open::holds_idempotency_key(engine, envelope, open).await? {
        false => None,
        // A waiting call is adopted now, so that it waits on this node only. A started one is taken over in the open
        // stage.
        true if open.is_waiting() => Some(Arc::new(open::adopt(engine, envelope, open).await?)),
        true => Some(open.clone()),
    })
}

async fn close_record(engine: &Engine, ticket: Ticket<'_>, tracker: &CallTracker, open: &OpenCall, outcome: &Outcome) {
    match interruption::close_open_call(engine, &tracker.head.tenant, open, outcome).await {
        Ok(true) => report::report(ticket, outcome),
        // The node that owns the record now reports the outcome. That may be this one, if its take-over was committed
        // but the store's reply was lost.
        Ok(false) => ticket.complete(),
        // The record stays open; the next recovery scan tries again.
        Err(error) => {
            tracing::warn!(%error, call = %outcome.id, "could not close interrupted call; recovery retries");
            engine.journal.note_unwritten(outcome);
            ticket.complete();
        }
    }
}

/// Rebuilds the call from its opening record. It is detached, because its caller is gone.
fn restore_call(engine: &Engine, tenant: Tenant, open: &OpenCall, cancel: CancellationToken) -> Call {
    let (record, clock) = (&open.record, &engine.services.clock);
    let arguments =
        if record.arguments.is_null() { Value::Object(Map::new()).into() } else { record.arguments.clone() };
    let memory = |bytes| engine.argument_memory.reserve_always(&tenant, bytes);
    let argument_memory = record.arguments.large_bytes().map(memory);
    let opening = record.opening.as_deref();
    let head = CallHead {
        tenant,
        caller: record.caller.clone(),
        thread: record.thread.clone(),
        run: record.run,
        idempotency_key: record.key.clone(),
        model_call: opening.and_then(|opening| opening.model_call.clone()),
        trace: opening.and_then(|opening| opening.trace.clone()),
        ..CallHead::new(record.id, record.tool.as_str().into(), clock.now(), clock.instant())
    };
    Call {
        retries: opening.and_then(|opening| opening.retries),
        external: opening.and_then(|opening| opening.external),
        wait: if open.is_waiting() { CallerWait::Detached } else { CallerWait::DetachedNoApproval },
        cancel: Some(cancel),
        argument_memory,
        ..Call::new(head, arguments)
    }
}

//! Event stream of one call: its progress, then its outcome.
//!
//! In: a call of the client's own tenant. Out: the hub's events about it, and at last `call.ended` with the call as
//! `GET` returns it. For a call that has ended already, only that.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::State,
    response::{Response, sse::Event as SseEvent},
};
use futures_util::stream;
use tokio::time::Instant;
use toolhub_core::{
    ToolHub,
    events::{Event, EventKind, Subscription},
    ids::{CallId, Tenant, ThreadId},
};

use super::{CallPath, CallView, not_found};
use crate::{
    app::App, connections::KEEP_ALIVE_INTERVAL, extract::Params, links::Links, problem::ApiResult, scope::Principal,
    sse,
};

/// How often a call is looked up on a store that several nodes share.
const SHARED_POLL_INTERVAL: Duration = Duration::from_secs(1);

pub(super) async fn follow(
    State(app): State<App>,
    principal: Principal,
    Params(path): Params<CallPath>,
    links: Links,
) -> ApiResult<Response> {
    let id = path.parse_id()?;
    // Subscribe before the lookup, so that an outcome in between is not missed.
    let mut events = app.hub().subscribe();
    let record = app.hub().call_record(&principal.tenant, id).await?.ok_or_else(|| not_found(&path.id))?;
    let ended = record.outcome.is_some();
    if !ended && let Some(thread) = &record.thread {
        app.hub().follow_thread(&mut events, &principal.tenant, thread);
    }
    // The end of a call on another node may not arrive as an event.
    let poll_interval = if app.hub().has_exclusive_store() { KEEP_ALIVE_INTERVAL } else { SHARED_POLL_INTERVAL };
    let follower = CallFollower {
        hub: app.hub().clone(),
        tenant: principal.tenant.clone(),
        id,
        links,
        events,
        thread: record.thread,
        poll_interval,
        next_poll: Instant::now() + poll_interval,
        ended,
    };
    Ok(sse::stream(&app, principal, stream::unfold(Some(follower), next_event)))
}

struct CallFollower {
    hub: ToolHub,
    tenant: Tenant,
    id: CallId,
    links: Links,
    thread: Option<ThreadId>,
    events: Subscription,
    poll_interval: Duration,
    /// When to look the call up again, even if other events keep arriving: its end may happen on another node.
    next_poll: Instant,
    ended: bool,
}

/// The next event, and the state of the stream after it.
async fn next_event(follower: Option<CallFollower>) -> Option<(SseEvent, Option<CallFollower>)> {
    let mut follower = follower?;
    loop {
        if follower.ended {
            return Some((follower.final_event().await?, None));
        }
        match tokio::time::timeout_at(follower.next_poll, follower.events.next()).await {
            Ok(event) if event_call_id(&event) == Some(follower.id) => {
                follower.ended =
                    matches!(event.kind, EventKind::ExecutionCompleted { .. } | EventKind::ExecutionFailed { .. });
                return Some((sse::hub_event(event.id, event.name(), &*event, &follower.links), Some(follower)));
            }
            Ok(event) if event.kind == EventKind::StreamReset && follower.concerns(&event) => {
                follower.ended = follower.has_ended().await;
                if event.thread.is_some() {
                    return Some((sse::hub_event(None, event.name(), &*event, &follower.links), Some(follower)));
                }
            }
            Ok(_) if Instant::now() < follower.next_poll => {}
            // The call may run on another node, whose events may not arrive here.
            Ok(_) | Err(_) => {
                follower.next_poll = Instant::now() + follower.poll_interval;
                follower.ended = follower.has_ended().await;
            }
        }
    }
}

impl CallFollower {
    /// Whether a reset is about events of the call's thread.
    fn concerns(&self, reset: &Event) -> bool {
        reset.thread.is_none() || (reset.thread == self.thread && reset.tenant.as_ref() == Some(&self.tenant))
    }

    async fn has_ended(&self) -> bool {
        let record = self.hub.call_record(&self.tenant, self.id).await;
        record.is_ok_and(|record| record.is_none_or(|record| record.outcome.is_some()))
    }

    /// The last event; none if no record of the call is stored.
    async fn final_event(&self) -> Option<SseEvent> {
        let record = self.hub.call_record(&self.tenant, self.id).await.ok()??;
        Some(sse::event(None, "call.ended", &CallView::from_record(record, &self.links)))
    }
}

/// The call an event is about.
fn event_call_id(event: &Arc<Event>) -> Option<CallId> {
    match &event.kind {
        EventKind::ExecutionStarted { call_id, .. }
        | EventKind::ExecutionCompleted { call_id, .. }
        | EventKind::ExecutionFailed { call_id, .. }
        | EventKind::ApprovalRequested { call_id, .. }
        | EventKind::ApprovalResolved { call_id, .. }
        | EventKind::CallProgress { call_id, .. }
        | EventKind::CallLog { call_id, .. } => Some(*call_id),
        _ => None,
    }
}

//! One call as a stream of events: its progress, then its end.
//!
//! In: a call of the asker's own tenant. Out: the hub's events about it, and as the last one `call.ended` with the call as it can
//! be looked up. Of a call that has ended already only that.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{Response, sse},
};
use futures_util::stream;
use tokio::time::Instant;
use toolhub_core::{
    ToolHub,
    events::{Event, EventKind, Subscription},
    ids::{CallId, Tenant},
};

use super::{CallPath, CallView, not_found};
use crate::{app::App, extract::Params, links::Links, problem::ApiResult, scope::Principal, sse as wire};

pub(super) async fn follow(
    State(app): State<App>,
    principal: Principal,
    Params(named): Params<CallPath>,
    links: Links,
) -> ApiResult<Response> {
    let id = named.parse_id()?;
    // Listened to before it is looked at: no end can fall in between.
    let news = app.hub().subscribe();
    let record = app.hub().call_record(&principal.tenant, id).await?.ok_or_else(|| not_found(&named.id))?;
    let over = record.outcome.is_some();
    let following = CallFollower {
        hub: app.hub().clone(),
        tenant: principal.tenant.clone(),
        id,
        links,
        events: news,
        next_poll: next_poll_time(),
        ended: over,
    };
    Ok(wire::stream(&app, principal, stream::unfold(Some(following), next_event)))
}

struct CallFollower {
    hub: ToolHub,
    tenant: Tenant,
    id: CallId,
    links: Links,
    events: Subscription,
    /// When it is looked up next: others may talk all the time, and its own end not be heard here.
    next_poll: Instant,
    ended: bool,
}

/// The next event, and what is left to tell after it.
async fn next_event(following: Option<CallFollower>) -> Option<(sse::Event, Option<CallFollower>)> {
    let mut it = following?;
    loop {
        if it.ended {
            return Some((it.final_event().await?, None));
        }
        match tokio::time::timeout_at(it.next_poll, it.events.next()).await {
            Ok(event) if event_call_id(&event) == Some(it.id) => {
                it.ended =
                    matches!(event.kind, EventKind::ExecutionCompleted { .. } | EventKind::ExecutionFailed { .. });
                return Some((wire::event(Some(event.id), event.name(), &*event), Some(it)));
            }
            Ok(event) if event.kind == EventKind::StreamReset => it.ended = it.has_ended().await,
            Ok(_) if Instant::now() < it.next_poll => {}
            // It may run on another node, whose events are not heard here.
            Ok(_) | Err(_) => {
                it.next_poll = next_poll_time();
                it.ended = it.has_ended().await;
            }
        }
    }
}

fn next_poll_time() -> Instant {
    Instant::now() + wire::KEEP_ALIVE_INTERVAL
}

impl CallFollower {
    async fn has_ended(&self) -> bool {
        let record = self.hub.call_record(&self.tenant, self.id).await;
        record.is_ok_and(|record| record.is_none_or(|record| record.outcome.is_some()))
    }

    /// The last event; none where nothing is kept of the call.
    async fn final_event(&self) -> Option<sse::Event> {
        let record = self.hub.call_record(&self.tenant, self.id).await.ok()??;
        Some(wire::event(None, "call.ended", &CallView::from_record(record, &self.links)))
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
        | EventKind::CallProgress { call_id, .. } => Some(*call_id),
        _ => None,
    }
}

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
    events::{Event, News, Subscription},
    ids::{CallId, Tenant},
};

use super::{CallView, OfCall, unknown};
use crate::{app::App, extract::Params, links::Links, problem::Answer, scope::Principal, sse as wire};

pub(super) async fn follow(
    State(app): State<App>,
    principal: Principal,
    Params(named): Params<OfCall>,
    links: Links,
) -> Answer<Response> {
    let id = named.id()?;
    // Listened to before it is looked at: no end can fall in between.
    let news = app.hub().subscribe();
    let record = app.hub().call_record(&principal.tenant, id).await?.ok_or_else(|| unknown(&named.id))?;
    let over = record.outcome.is_some();
    let following =
        Following { hub: app.hub().clone(), tenant: principal.tenant.clone(), id, links, news, look_at: soon(), over };
    Ok(wire::stream(&app, principal, stream::unfold(Some(following), next)))
}

struct Following {
    hub: ToolHub,
    tenant: Tenant,
    id: CallId,
    links: Links,
    news: Subscription,
    /// When it is looked up next: others may talk all the time, and its own end not be heard here.
    look_at: Instant,
    over: bool,
}

/// The next event, and what is left to tell after it.
async fn next(following: Option<Following>) -> Option<(sse::Event, Option<Following>)> {
    let mut it = following?;
    loop {
        if it.over {
            return Some((it.end().await?, None));
        }
        match tokio::time::timeout_at(it.look_at, it.news.next()).await {
            Ok(event) if about(&event) == Some(it.id) => {
                it.over = matches!(event.news, News::ExecutionCompleted { .. } | News::ExecutionFailed { .. });
                return Some((wire::event(Some(event.id), event.name(), &*event), Some(it)));
            }
            Ok(event) if event.news == News::StreamReset => it.over = it.has_ended().await,
            Ok(_) if Instant::now() < it.look_at => {}
            // It may run on another node, whose events are not heard here.
            Ok(_) | Err(_) => {
                it.look_at = soon();
                it.over = it.has_ended().await;
            }
        }
    }
}

fn soon() -> Instant {
    Instant::now() + wire::SIGN_OF_LIFE
}

impl Following {
    async fn has_ended(&self) -> bool {
        let record = self.hub.call_record(&self.tenant, self.id).await;
        record.is_ok_and(|record| record.is_none_or(|record| record.outcome.is_some()))
    }

    /// The last event; none where nothing is kept of the call.
    async fn end(&self) -> Option<sse::Event> {
        let record = self.hub.call_record(&self.tenant, self.id).await.ok()??;
        Some(wire::event(None, "call.ended", &CallView::kept(record, &self.links)))
    }
}

/// The call an event is about.
fn about(event: &Arc<Event>) -> Option<CallId> {
    match &event.news {
        News::ExecutionStarted { call_id, .. }
        | News::ExecutionCompleted { call_id, .. }
        | News::ExecutionFailed { call_id, .. }
        | News::ApprovalRequested { call_id, .. }
        | News::ApprovalResolved { call_id, .. }
        | News::CallProgress { call_id, .. } => Some(*call_id),
        _ => None,
    }
}

//! The event stream of the hub.
//!
//! In: event types, a thread, and the last event received. Out: a stream of events of the client's own tenant, and of
//! those without a tenant; `thinner` keeps a client that names a rate from more events about calls than that. A client that reconnects with `Last-Event-ID` gets the stored events since then first. A
//! client that is too slow gets `stream.reset` and must read again what it needs.

mod thinner;

use std::sync::Arc;

use axum::{
    extract::State,
    http::Method,
    response::{Response, sse::Event as SseEvent},
};
use futures_util::stream;
use schemars::JsonSchema;
use serde::Deserialize;
use thinner::Thinner;
use toolhub_core::{
    ErrorKind, ToolHub,
    events::{Event, EventClasses, EventKind, StoredEvent, Subscription},
    ids::{Tenant, ThreadId},
};

use crate::{
    app::App,
    extract::{LastEventId, Query},
    links::Links,
    problem::{ApiResult, Code, Problem},
    route::Route,
    scope::{Access, Principal, Scope},
    sse,
};

/// Largest rate that a client may name.
const MAX_RATE: u32 = 100_000;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/api/v1/events", Access::Needs(Scope::ToolsRead), "events", listen)
            .summary("Subscribe to events")
            .event_response::<Event>("Events, until the client disconnects; the schema is that of the data of one")
            .refusals(&[ErrorKind::StoreUnavailable]),
    ]
}

/// Which events to send.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct EventsQuery {
    /// Names of events, separated by commas; `approval.*` for all with that prefix. By default all but `metrics.tick`.
    types: Option<String>,
    /// Only events of this thread, and those without a thread and tenant.
    thread_id: Option<ThreadId>,
    /// Largest number of events about single calls per second. Those beyond are counted: `stream.thinned` has the counts, once a
    /// second. Other events are always sent. By default all are sent.
    #[schemars(range(max = 100_000))]
    rate: Option<u32>,
}

async fn listen(
    State(app): State<App>,
    principal: Principal,
    Query(query): Query<EventsQuery>,
    LastEventId(last): LastEventId,
    links: Links,
) -> ApiResult<Response> {
    let types = EventTypes::of(query.types.as_deref());
    types.check()?;
    if query.rate.is_some_and(|rate| rate > MAX_RATE) {
        return Err(Problem::new(
            Code::INVALID_REQUEST,
            format!("`rate` must be at most {MAX_RATE}; leave it out to get all events"),
        ));
    }
    // Subscribe before loading the backlog, so that no event in between is missed.
    let mut events = app.hub().subscribe_to(types.classes());
    if let Some(thread) = &query.thread_id {
        app.hub().follow_thread(&mut events, &principal.tenant, thread);
        // A client may start a call on another node as soon as it gets the headers.
        app.hub().thread_followed(&principal.tenant, thread).await;
    }
    let filter = EventFilter { tenant: principal.tenant.clone(), thread: query.thread_id, types };
    let (hub, thinner) = (app.hub().clone(), query.rate.map(Thinner::new));
    let mut subscriber =
        EventSubscriber { hub, filter, links, events, thinner, last_id: 0, backlog: Vec::new(), next_page: None };
    if let Some(last) = last {
        subscriber.load_backlog(last).await?;
    }
    Ok(sse::stream(&app, principal, stream::unfold(subscriber, next_event)))
}

struct EventSubscriber {
    hub: ToolHub,
    filter: EventFilter,
    links: Links,
    events: Subscription,
    thinner: Option<Thinner>,
    /// The last stored event that was sent or skipped: events of the backlog arrive again through the subscription.
    last_id: u64,
    /// Stored events still to send, the next one last.
    backlog: Vec<StoredEvent>,
    /// The cursor of the next page of stored events.
    next_page: Option<u64>,
}

/// Which events a client gets.
struct EventFilter {
    tenant: Tenant,
    thread: Option<ThreadId>,
    types: EventTypes,
}

/// The next event that passes the filter.
async fn next_event(mut subscriber: EventSubscriber) -> Option<(SseEvent, EventSubscriber)> {
    loop {
        while let Some(event) = subscriber.backlog.pop() {
            subscriber.last_id = subscriber.last_id.max(event.id);
            if subscriber.filter.matches(event.tenant.as_ref(), event.thread.as_ref(), &event.event) {
                return Some((sse::hub_event(Some(event.id), &event.event, &event, &subscriber.links), subscriber));
            }
        }
        if let Some(page) = subscriber.next_page.take() {
            // An unavailable store ends the stream: the client reconnects and retries.
            subscriber.load_backlog(page).await.ok()?;
            continue;
        }
        let event: Arc<Event> = tokio::select! {
            // First: with a flood of events the other branch is always ready.
            biased;
            counts = thinner::next_counts(&subscriber.thinner) => {
                subscriber.thinner.iter_mut().for_each(Thinner::restart);
                Arc::new(Event::thinned(subscriber.hub.now(), counts))
            }
            event = subscriber.events.next() => event,
        };
        if let Some(id) = event.id {
            if id <= subscriber.last_id {
                continue;
            }
            subscriber.last_id = id;
        }
        let filter = &subscriber.filter;
        let is_wanted = match event.kind {
            EventKind::StreamReset => filter.concerns(&event),
            EventKind::StreamThinned { .. } => true,
            _ => filter.matches(event.tenant.as_ref(), event.thread.as_ref(), event.name()),
        };
        if is_wanted && subscriber.thinner.as_mut().is_none_or(|thinner| thinner.admit(event.name())) {
            return Some((sse::hub_event(event.id, event.name(), &*event, &subscriber.links), subscriber));
        }
    }
}

impl EventSubscriber {
    /// Loads stored events since the given one.
    async fn load_backlog(&mut self, last: u64) -> ApiResult<()> {
        let page = self.hub.events_since(&self.filter.tenant, last).await?;
        self.next_page = page.next;
        self.backlog = page.events;
        self.backlog.reverse();
        Ok(())
    }
}

impl EventFilter {
    /// Whether a reset is about events that the client gets: its subscription lagged, or events of its thread on other nodes were lost.
    fn concerns(&self, reset: &Event) -> bool {
        reset.thread.is_none() || (reset.thread == self.thread && reset.tenant.as_ref() == Some(&self.tenant))
    }

    fn matches(&self, tenant: Option<&Tenant>, thread: Option<&ThreadId>, name: &str) -> bool {
        let is_global = tenant.is_none() && thread.is_none();
        tenant.is_none_or(|tenant| *tenant == self.tenant)
            && (is_global || self.thread.is_none() || self.thread.as_ref() == thread)
            && self.types.matches(name)
    }
}

/// Names of events; empty for all.
struct EventTypes(Vec<String>);

impl EventTypes {
    fn of(types: Option<&str>) -> Self {
        let names = types.unwrap_or_default().split(',').map(str::trim).filter(|pattern| !pattern.is_empty());
        Self(names.map(str::to_owned).collect())
    }

    /// Refuses a pattern that no event has: its client would wait forever.
    fn check(&self) -> ApiResult<()> {
        let is_known =
            |pattern: &&String| EventKind::NAMES.iter().any(|name| Self(vec![(*pattern).clone()]).matches(name));
        match self.0.iter().find(|pattern| !is_known(pattern)) {
            None => Ok(()),
            Some(unknown) => {
                let detail = format!("no event is named `{unknown}`; known are {}", EventKind::NAMES.join(", "));
                Err(Problem::new(Code::INVALID_REQUEST, detail))
            }
        }
    }

    /// The classes of the events that match.
    fn classes(&self) -> EventClasses {
        EventClasses::matching(|name| self.matches(name))
    }

    fn matches(&self, name: &str) -> bool {
        let is_match = |pattern: &String| match pattern.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == pattern,
        };
        if self.0.is_empty() { name != "metrics.tick" } else { self.0.iter().any(is_match) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_events_may_be_cut_short() {
        let types = EventTypes::of(Some("tool.registered, approval.*,"));
        assert!(types.matches("tool.registered") && types.matches("approval.requested"));
        assert!(!types.matches("tool.unregistered") && !types.matches("approvals"));
        assert!(types.check().is_ok() && EventTypes::of(Some("tool.*,bogus.*")).check().is_err());
        assert!(
            !EventTypes::of(None).matches("metrics.tick") && EventTypes::of(Some("metrics.*")).matches("metrics.tick")
        );
        assert!(EventTypes::of(None).matches("anything") && EventTypes::of(Some("*")).matches("anything"));
    }
}

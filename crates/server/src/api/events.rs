//! What happens, as it happens, to whoever listens.
//!
//! In: which sorts of events, of which thread, since when. Out: a stream. A listener hears of its own tenant and of what concerns
//! everybody. One that comes back says what it heard last: what is kept since then is told first. One that is too slow is told
//! so by `stream.reset`, and reads again what matters to it.

use std::sync::Arc;

use axum::{
    extract::State,
    http::Method,
    response::{Response, sse},
};
use futures_util::stream;
use schemars::JsonSchema;
use serde::Deserialize;
use toolhub_core::{
    ErrorKind, ToolHub,
    events::{Event, StoredEvent, Subscription},
    ids::{Tenant, ThreadId},
};

use crate::{
    app::App,
    extract::{LastEventId, Query},
    problem::ApiResult,
    route::Route,
    scope::{Access, Principal, Scope},
    sse as wire,
};

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::GET, "/api/v1/events", Access::Needs(Scope::ToolsRead), "events", listen)
            .summary("Listen to what happens")
            .response(200, "text/event-stream", "Events, for as long as the listener stays")
            .refusals(&[ErrorKind::StoreUnavailable]),
    ]
}

/// Which events are wanted.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct EventsQuery {
    /// Names of events with commas between them; `approval.*` for all that begin so.
    types: Option<String>,
    /// Only events of this thread, and those that concern everybody.
    thread_id: Option<ThreadId>,
}

async fn listen(
    State(app): State<App>,
    principal: Principal,
    Query(query): Query<EventsQuery>,
    LastEventId(last): LastEventId,
) -> ApiResult<Response> {
    // Listened to before it is looked up: nothing falls in between.
    let news = app.hub().subscribe();
    let ear = EventFilter {
        tenant: principal.tenant.clone(),
        thread: query.thread_id,
        types: EventTypes::of(query.types.as_deref()),
    };
    let mut listener = EventSubscriber {
        hub: app.hub().clone(),
        filter: ear,
        events: news,
        last_id: 0,
        backlog: Vec::new(),
        next_page: None,
    };
    if let Some(last) = last {
        listener.load_backlog(last).await?;
    }
    Ok(wire::stream(&app, principal, stream::unfold(listener, next_event)))
}

struct EventSubscriber {
    hub: ToolHub,
    filter: EventFilter,
    events: Subscription,
    /// The last event that was told or passed over: what was looked up is heard again.
    last_id: u64,
    /// Events that were looked up, the next one last.
    backlog: Vec<StoredEvent>,
    /// Where to look up more.
    next_page: Option<u64>,
}

/// What a listener wants to hear.
struct EventFilter {
    tenant: Tenant,
    thread: Option<ThreadId>,
    types: EventTypes,
}

/// The next event that is wanted.
async fn next_event(mut listener: EventSubscriber) -> Option<(sse::Event, EventSubscriber)> {
    loop {
        while let Some(event) = listener.backlog.pop() {
            listener.last_id = listener.last_id.max(event.id);
            if listener.filter.matches(event.tenant.as_ref(), event.thread.as_ref(), &event.event) {
                return Some((wire::event(Some(event.id), &event.event, &event), listener));
            }
        }
        if let Some(page) = listener.next_page.take() {
            // A store that does not answer now ends the stream: the listener comes back and asks again.
            listener.load_backlog(page).await.ok()?;
            continue;
        }
        let event: Arc<Event> = listener.events.next().await;
        let reset = event.name() == "stream.reset";
        if !reset && event.id <= listener.last_id {
            continue;
        }
        listener.last_id = listener.last_id.max(event.id);
        if reset || listener.filter.matches(event.tenant.as_ref(), event.thread.as_ref(), event.name()) {
            return Some((wire::event(Some(event.id), event.name(), &*event), listener));
        }
    }
}

impl EventSubscriber {
    /// Looks up what is kept of the time since an event.
    async fn load_backlog(&mut self, last: u64) -> ApiResult<()> {
        let page = self.hub.events_since(&self.filter.tenant, last).await?;
        self.next_page = page.next;
        self.backlog = page.events;
        self.backlog.reverse();
        Ok(())
    }
}

impl EventFilter {
    fn matches(&self, tenant: Option<&Tenant>, thread: Option<&ThreadId>, name: &str) -> bool {
        let everybodys = tenant.is_none() && thread.is_none();
        tenant.is_none_or(|tenant| *tenant == self.tenant)
            && (everybodys || self.thread.is_none() || self.thread.as_ref() == thread)
            && self.types.matches(name)
    }
}

/// Names of events; all of them where none is named.
struct EventTypes(Vec<String>);

impl EventTypes {
    fn of(said: Option<&str>) -> Self {
        let words = said.unwrap_or_default().split(',').map(str::trim).filter(|word| !word.is_empty());
        Self(words.map(str::to_owned).collect())
    }

    fn matches(&self, name: &str) -> bool {
        let fits = |word: &String| match word.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == word,
        };
        self.0.is_empty() || self.0.iter().any(fits)
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
        assert!(EventTypes::of(None).matches("anything") && EventTypes::of(Some("*")).matches("anything"));
    }
}

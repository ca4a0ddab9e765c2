//! Event stream of one run: its messages, calls and approvals, and last its end.
//!
//! In: a run of the client's own tenant, and a subscription from before its lookup. Out: the events of the run. The
//! last is `run.completed` or `run.failed`; if the hub's own event was missed, it is built from the stored record.

use axum::response::sse::Event;
use futures_util::{
    StreamExt,
    stream::{self, BoxStream},
};
use serde_json::{Value, json};
use toolhub_agent::{RunEvent, RunRecord, RunStatus};
use toolhub_core::{
    events::Subscription,
    ids::{RunId, Tenant, ThreadKey},
};

use crate::{app::App, links::Links, sse};

/// Follows a run from its start: the subscription has all of its events.
pub(crate) fn follow_new(
    app: &App,
    thread: &ThreadKey,
    run: RunId,
    events: Subscription,
    links: Links,
) -> BoxStream<'static, Event> {
    let to_sse = move |event| match event {
        RunEvent::Event(event) => vec![sse::hub_event(event.id, event.name(), &*event, &links)],
        RunEvent::Ended(record) => final_events(&record),
        _ => Vec::new(),
    };
    app.agents().follow(thread, run, events).map(to_sse).flat_map(stream::iter).boxed()
}

/// Follows a run that was started before. If it has ended, sends only its last events.
pub(crate) fn follow_existing(
    app: &App,
    tenant: &Tenant,
    record: &RunRecord,
    events: Subscription,
    links: Links,
) -> BoxStream<'static, Event> {
    if record.status.is_end() {
        stream::iter(final_events(record)).boxed()
    } else {
        follow_new(app, &ThreadKey::new(tenant, &record.thread), record.id, events, links)
    }
}

/// The last events of a run, built from its record.
fn final_events(record: &RunRecord) -> Vec<Event> {
    let event = |name: &str, mut data: Value| {
        data["event"] = name.into();
        data["threadId"] = record.thread.as_str().into();
        data["runId"] = record.id.to_string().into();
        data["timestamp"] = json!(record.ended_at);
        sse::event(None, name, &data)
    };
    let mut events = Vec::new();
    if record.status == RunStatus::Completed {
        let message = json!({"role": "assistant", "content": record.content, "calls": []});
        events.push(event("message.completed", message));
    }
    events.push(match &record.error {
        Some(error) => {
            let data = json!({"steps": record.steps, "code": error.code, "message": error.message});
            event("run.failed", data)
        }
        None => {
            let mut data = json!({"status": record.status, "steps": record.steps});
            if let Some(stop) = record.stop {
                data["stop"] = json!(stop);
            }
            event("run.completed", data)
        }
    });
    events
}

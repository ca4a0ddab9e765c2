//! One run as a stream of events: what it says, its calls, the questions it waits for, and last its end.
//!
//! In: a run of the asker's own tenant, and the hub's news from before it was looked at. Out: those that are about it. The last is
//! `run.completed` or `run.failed`, also where the hub's own was missed: then it is made of what is written down.

use axum::response::sse;
use futures_util::{
    StreamExt,
    stream::{self, BoxStream},
};
use serde_json::{Value, json};
use toolhub_agent::{RunEvent, RunRecord, RunStatus};
use toolhub_core::{
    events::Subscription,
    ids::{RunId, Tenant},
};

use crate::{app::App, sse as wire};

/// Follows a run from its beginning: everything it tells is among the news.
pub(crate) fn follow_new(app: &App, tenant: Tenant, run: RunId, news: Subscription) -> BoxStream<'static, sse::Event> {
    let told = |news| match news {
        RunEvent::Event(event) => vec![wire::event(Some(event.id), event.name(), &*event)],
        RunEvent::Ended(record) => final_events(&record),
        _ => Vec::new(),
    };
    app.agents().follow(tenant, run, news).map(told).flat_map(stream::iter).boxed()
}

/// Follows a run that was begun before. If it is over, only its end is told.
pub(crate) fn follow_existing(
    app: &App,
    tenant: Tenant,
    record: &RunRecord,
    news: Subscription,
) -> BoxStream<'static, sse::Event> {
    if record.status.is_end() {
        stream::iter(final_events(record)).boxed()
    } else {
        follow_new(app, tenant, record.id, news)
    }
}

/// The last events of a run, as they are written down.
fn final_events(record: &RunRecord) -> Vec<sse::Event> {
    let tell = |name: &str, mut more: Value| {
        more["event"] = name.into();
        more["threadId"] = record.thread.as_str().into();
        more["runId"] = record.id.to_string().into();
        more["timestamp"] = json!(record.ended_at);
        wire::event(None, name, &more)
    };
    let mut events = Vec::new();
    if record.status == RunStatus::Completed {
        let said = json!({"role": "assistant", "content": record.content, "calls": []});
        events.push(tell("message.completed", said));
    }
    events.push(match &record.error {
        Some(error) => {
            let more = json!({"steps": record.steps, "code": error.code, "message": error.message});
            tell("run.failed", more)
        }
        None => {
            let mut more = json!({"status": record.status, "steps": record.steps});
            if let Some(stop) = record.stop {
                more["stop"] = json!(stop);
            }
            tell("run.completed", more)
        }
    });
    events
}

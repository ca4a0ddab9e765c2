//! One run as a stream of events: what it says, its calls, the questions it waits for, and last its end.
//!
//! In: a run of the asker's own tenant, and the hub's news from before it was looked at. Out: those that are about it. The last is
//! `run.completed` or `run.failed`, also where the hub's own was missed: then it is made of what is written down.

use std::collections::VecDeque;

use axum::response::{Response, sse};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::time::Instant;
use toolhub_agent::{AgentService, RunRecord, RunStatus};
use toolhub_core::{
    events::{News, Subscription},
    ids::{RunId, Tenant},
};

use crate::{app::App, scope::Principal, sse as wire};

/// A run that is followed.
pub(crate) struct Following {
    agents: AgentService,
    tenant: Tenant,
    run: RunId,
    news: Subscription,
    /// What is to be told before anything that happens.
    told: VecDeque<sse::Event>,
    /// When it is looked up next: others may talk all the time, and its own end not be heard here.
    look_at: Instant,
    over: bool,
}

/// The answer that follows a run.
pub(crate) fn streamed(app: &App, who: Principal, following: Following) -> Response {
    wire::stream(app, who, stream::unfold(following, next))
}

impl Following {
    /// Follows a run from its beginning: everything it tells is among the news.
    pub(crate) fn begun(app: &App, tenant: Tenant, run: RunId, news: Subscription) -> Self {
        let (agents, told) = (app.agents().clone(), VecDeque::new());
        Self { agents, tenant, run, news, told, look_at: soon(), over: false }
    }

    /// Follows a run that was begun before. If it is over, only its end is told.
    pub(crate) fn later(app: &App, tenant: Tenant, record: &RunRecord, news: Subscription) -> Self {
        let mut following = Self::begun(app, tenant, record.id, news);
        following.look(record);
        following
    }

    /// If the run is over, that is all there is to tell.
    fn look(&mut self, record: &RunRecord) {
        if record.status.is_end() && !self.over {
            self.over = true;
            self.told.extend(end(record));
        }
    }

    /// Looks whether the run is over although nobody said so here.
    async fn look_up(&mut self) {
        self.look_at = soon();
        match self.agents.run(&self.tenant, self.run).await {
            Ok(Some(record)) => self.look(&record),
            // It was taken away with its thread.
            Ok(None) => self.over = true,
            Err(_) => {}
        }
    }
}

/// The next event, and what is left to tell after it.
async fn next(mut it: Following) -> Option<(sse::Event, Following)> {
    loop {
        if let Some(event) = it.told.pop_front() {
            return Some((event, it));
        }
        if it.over {
            return None;
        }
        match tokio::time::timeout_at(it.look_at, it.news.next()).await {
            Ok(event) if event.news.run() == Some(it.run) => {
                it.over = matches!(event.news, News::RunCompleted { .. } | News::RunFailed { .. });
                return Some((wire::event(Some(event.id), event.name(), &*event), it));
            }
            // Some were missed; the end may have been among them.
            Ok(event) if event.news == News::StreamReset => it.look_up().await,
            Ok(_) if Instant::now() < it.look_at => {}
            // It may be driven by another process, whose events are not heard here.
            Ok(_) | Err(_) => it.look_up().await,
        }
    }
}

fn soon() -> Instant {
    Instant::now() + wire::SIGN_OF_LIFE
}

/// The last events of a run, as they are written down.
fn end(record: &RunRecord) -> Vec<sse::Event> {
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

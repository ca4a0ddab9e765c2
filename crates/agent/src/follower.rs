//! What happens in one run, as it happens.
//!
//! In: the hub's news, from before the run began or was looked at, and a way to look at the run. Out: those that are about it. The
//! last is its end; where that was not heard here, the run as it was found.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, stream};
use tokio::time::Instant;
use toolhub_core::{
    Stream,
    events::{Event, EventKind, Subscription},
    ids::{RunId, Tenant},
};

use crate::{
    record::RunRecord,
    service::{AgentService, RunHandle},
};

/// How soon a run that fell silent is looked at: whoever drove it may have let go of it.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How soon it is looked up in the store: it may be driven by another process, whose events are not heard here.
const STORE_POLL_INTERVAL: Duration = Duration::from_secs(15);

/// What is heard of a run.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum RunEvent {
    /// Something happened in it.
    Event(Arc<Event>),
    /// It is over, though its end was not heard here. This is the last.
    Ended(Box<RunRecord>),
}

/// The events of a run until its end. Ends early if the process lets go of the run, or if its end was among events that were
/// missed: then `stream.reset` is the last.
pub fn run_events(news: Subscription, run: RunHandle) -> impl Stream<Item = Arc<Event>> + Send {
    let id = run.id();
    let look = move |missed| {
        // The end is told before it is heard, so only who has missed something looks for it.
        let over = (missed && run.record().status.is_end()).then(|| run.record());
        let found = over.map_or(if run.is_abandoned() { RunProbe::Gone } else { RunProbe::Open }, RunProbe::ended);
        std::future::ready(found)
    };
    let heard = RunFollower {
        events: news,
        run: id,
        probe: look,
        interval: POLL_INTERVAL,
        next_probe: Instant::now() + POLL_INTERVAL,
        lagged: false,
        ended: false,
    };
    stream::unfold(heard, RunFollower::next).filter_map(async |news| match news {
        RunEvent::Event(event) => Some(event),
        RunEvent::Ended(_) => None,
    })
}

impl AgentService {
    /// Follows a run of a tenant to its end, whichever process drives it; `news` are the hub's, from before the run began or was
    /// looked at. Ends without an end if the run is taken away with its thread.
    pub fn follow(
        &self,
        tenant: Tenant,
        run: RunId,
        news: Subscription,
    ) -> impl Stream<Item = RunEvent> + Send + use<> {
        let service = self.clone();
        let look = move |_| {
            let (service, tenant) = (service.clone(), tenant.clone());
            async move {
                match service.run(&tenant, run).await {
                    Ok(Some(record)) if record.status.is_end() => RunProbe::ended(record),
                    Ok(Some(_)) | Err(_) => RunProbe::Open,
                    Ok(None) => RunProbe::Gone,
                }
            }
        };
        let (every, look_at) = (STORE_POLL_INTERVAL, Instant::now() + STORE_POLL_INTERVAL);
        let heard = RunFollower {
            events: news,
            run,
            probe: look,
            interval: every,
            next_probe: look_at,
            lagged: false,
            ended: false,
        };
        // That something was missed is made good by looking.
        let is_told = |news: &RunEvent| !matches!(news, RunEvent::Event(event) if event.kind == EventKind::StreamReset);
        stream::unfold(heard, RunFollower::next).filter(move |news| std::future::ready(is_told(news)))
    }
}

/// What a look at a run has found.
enum RunProbe {
    Open,
    Ended(Box<RunRecord>),
    /// Nothing more will be heard of it.
    Gone,
}

impl RunProbe {
    fn ended(record: RunRecord) -> Self {
        Self::Ended(Box::new(record))
    }
}

struct RunFollower<L> {
    events: Subscription,
    run: RunId,
    /// Looks at the run; is told whether something was missed.
    probe: L,
    interval: Duration,
    /// When it is looked at next: others may talk all the time, and this run never again.
    next_probe: Instant,
    lagged: bool,
    ended: bool,
}

impl<L: Fn(bool) -> F, F: Future<Output = RunProbe>> RunFollower<L> {
    /// What is heard next, and what is left to hear.
    async fn next(mut self) -> Option<(RunEvent, Self)> {
        while !self.ended {
            if self.lagged || Instant::now() >= self.next_probe {
                let missed = std::mem::take(&mut self.lagged);
                self.next_probe = Instant::now() + self.interval;
                match (self.probe)(missed).await {
                    RunProbe::Open => {}
                    RunProbe::Gone => return None,
                    RunProbe::Ended(record) => {
                        self.ended = true;
                        return Some((RunEvent::Ended(record), self));
                    }
                }
            }
            let Ok(event) = tokio::time::timeout_at(self.next_probe, self.events.next()).await else { continue };
            if event.kind == EventKind::StreamReset {
                // Its end may have been among what was missed.
                self.lagged = true;
                return Some((RunEvent::Event(event), self));
            }
            if event.kind.run_id() == Some(self.run) {
                self.next_probe = Instant::now() + self.interval;
                self.ended = matches!(event.kind, EventKind::RunCompleted { .. } | EventKind::RunFailed { .. });
                return Some((RunEvent::Event(event), self));
            }
        }
        None
    }
}

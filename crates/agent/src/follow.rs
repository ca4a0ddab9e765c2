//! What happens in one run, as it happens.
//!
//! In: the hub's news, from before the run began or was looked at, and a way to look at the run. Out: those that are about it. The
//! last is its end; where that was not heard here, the run as it was found.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, stream};
use tokio::time::Instant;
use toolhub_core::{
    Stream,
    events::{Event, News, Subscription},
    ids::{RunId, Tenant},
};

use crate::{
    record::RunRecord,
    service::{AgentService, RunHandle},
};

/// How soon a run that fell silent is looked at: whoever drove it may have let go of it.
const LOOK: Duration = Duration::from_secs(1);
/// How soon it is looked up in the store: it may be driven by another process, whose events are not heard here.
const LOOK_UP: Duration = Duration::from_secs(15);

/// What is heard of a run.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum RunNews {
    /// Something happened in it.
    Event(Arc<Event>),
    /// It is over, though its end was not heard here. This is the last.
    Over(Box<RunRecord>),
}

/// The events of a run until its end. Ends early if the process lets go of the run, or if its end was among events that were
/// missed: then `stream.reset` is the last.
pub fn events(news: Subscription, run: RunHandle) -> impl Stream<Item = Arc<Event>> + Send {
    let id = run.id();
    let look = move |missed| {
        // The end is told before it is heard, so only who has missed something looks for it.
        let over = (missed && run.record().status.is_end()).then(|| run.record());
        let found = over.map_or(if run.is_let_go() { Found::Gone } else { Found::Open }, Found::over);
        std::future::ready(found)
    };
    let heard =
        Following { news, run: id, look, every: LOOK, look_at: Instant::now() + LOOK, missed: false, over: false };
    stream::unfold(heard, Following::next).filter_map(async |news| match news {
        RunNews::Event(event) => Some(event),
        RunNews::Over(_) => None,
    })
}

impl AgentService {
    /// Follows a run of a tenant to its end, whichever process drives it; `news` are the hub's, from before the run began or was
    /// looked at. Ends without an end if the run is taken away with its thread.
    pub fn follow(&self, tenant: Tenant, run: RunId, news: Subscription) -> impl Stream<Item = RunNews> + Send + use<> {
        let service = self.clone();
        let look = move |_| {
            let (service, tenant) = (service.clone(), tenant.clone());
            async move {
                match service.run(&tenant, run).await {
                    Ok(Some(record)) if record.status.is_end() => Found::over(record),
                    Ok(Some(_)) | Err(_) => Found::Open,
                    Ok(None) => Found::Gone,
                }
            }
        };
        let (every, look_at) = (LOOK_UP, Instant::now() + LOOK_UP);
        let heard = Following { news, run, look, every, look_at, missed: false, over: false };
        // That something was missed is made good by looking.
        let is_told = |news: &RunNews| !matches!(news, RunNews::Event(event) if event.news == News::StreamReset);
        stream::unfold(heard, Following::next).filter(move |news| std::future::ready(is_told(news)))
    }
}

/// What a look at a run has found.
enum Found {
    Open,
    Over(Box<RunRecord>),
    /// Nothing more will be heard of it.
    Gone,
}

impl Found {
    fn over(record: RunRecord) -> Self {
        Self::Over(Box::new(record))
    }
}

struct Following<L> {
    news: Subscription,
    run: RunId,
    /// Looks at the run; is told whether something was missed.
    look: L,
    every: Duration,
    /// When it is looked at next: others may talk all the time, and this run never again.
    look_at: Instant,
    missed: bool,
    over: bool,
}

impl<L: Fn(bool) -> F, F: Future<Output = Found>> Following<L> {
    /// What is heard next, and what is left to hear.
    async fn next(mut self) -> Option<(RunNews, Self)> {
        while !self.over {
            if self.missed || Instant::now() >= self.look_at {
                let missed = std::mem::take(&mut self.missed);
                self.look_at = Instant::now() + self.every;
                match (self.look)(missed).await {
                    Found::Open => {}
                    Found::Gone => return None,
                    Found::Over(record) => {
                        self.over = true;
                        return Some((RunNews::Over(record), self));
                    }
                }
            }
            let Ok(event) = tokio::time::timeout_at(self.look_at, self.news.next()).await else { continue };
            if event.news == News::StreamReset {
                // Its end may have been among what was missed.
                self.missed = true;
                return Some((RunNews::Event(event), self));
            }
            if event.news.run() == Some(self.run) {
                self.look_at = Instant::now() + self.every;
                self.over = matches!(event.news, News::RunCompleted { .. } | News::RunFailed { .. });
                return Some((RunNews::Event(event), self));
            }
        }
        None
    }
}

//! Streams the events of one run.
//!
//! In: an event subscription that was opened before the run started or was loaded, and a probe that loads the run. Out:
//! the events of that run. The last one is its end; if that event was missed, the final record from the probe.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, stream};
use tokio::time::Instant;
use toolhub_core::{
    Stream,
    events::{Event, EventKind, Subscription},
    ids::{RunId, ThreadKey},
};

use crate::{
    record::RunRecord,
    service::{AgentService, POLL_INTERVALS, RunHandle},
};

/// After how long without events a run's handle is probed: its driver may have abandoned it.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// After how long it is loaded from a store with one user: its driver may have left it open.
const STORE_POLL_INTERVAL: Duration = Duration::from_secs(15);

/// An item of a run's event stream.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum RunEvent {
    /// An event of the run.
    Event(Arc<Event>),
    /// The run has ended, but its end event was missed. This is the last item.
    Ended(Box<RunRecord>),
}

/// The events of a run until its end. Ends early if the process abandons the run, or if the subscriber lagged and
/// missed the end: then `stream.reset` is the last event.
pub(crate) fn run_events(
    events: Subscription,
    thread: ThreadKey,
    run: RunHandle,
) -> impl Stream<Item = Arc<Event>> + Send {
    let id = run.id();
    let probe = move |lagged| {
        // The end event may still be on its way when the record is final, so the record counts only after a lag.
        let ended = ((lagged || run.is_remote()) && run.record().status.is_end()).then(|| run.record());
        let found = ended.map_or(if run.is_abandoned() { RunProbe::Gone } else { RunProbe::Open }, RunProbe::ended);
        std::future::ready(found)
    };
    let follower = RunFollower {
        events,
        run: id,
        thread,
        probe,
        interval: POLL_INTERVAL,
        longest: POLL_INTERVAL,
        next_probe: Instant::now() + POLL_INTERVAL,
        lagged: false,
        ended: false,
    };
    stream::unfold(follower, RunFollower::next).filter_map(async |item| match item {
        RunEvent::Event(event) => Some(event),
        RunEvent::Ended(_) => None,
    })
}

impl AgentService {
    /// Follows a run of a thread to its end, whichever node drives it. `events` must be subscribed before the run
    /// started or was loaded. The stream ends without a final item if the run is deleted with its thread. A `stream.reset` says that
    /// events of another node were missed.
    pub fn follow(
        &self,
        thread: &ThreadKey,
        run: RunId,
        mut events: Subscription,
    ) -> impl Stream<Item = RunEvent> + Send + use<> {
        if !self.is_driving(thread, run) {
            self.hub().follow_thread(&mut events, &thread.tenant, &thread.thread);
        }
        let (service, tenant) = (self.clone(), thread.tenant.clone());
        let probe = move |_| {
            let (service, tenant) = (service.clone(), tenant.clone());
            async move {
                match service.run(&tenant, run).await {
                    Ok(Some(record)) if record.status.is_end() => RunProbe::ended(record),
                    Ok(Some(_)) | Err(_) => RunProbe::Open,
                    Ok(None) => RunProbe::Gone,
                }
            }
        };
        // Events of a run that another node drives arrive late or not at all.
        let (first, longest) = match self.hub().has_exclusive_store() {
            true => (STORE_POLL_INTERVAL, STORE_POLL_INTERVAL),
            false => POLL_INTERVALS,
        };
        let follower = RunFollower {
            events,
            run,
            thread: thread.clone(),
            probe,
            interval: first,
            longest,
            next_probe: Instant::now() + first,
            lagged: false,
            ended: false,
        };
        // The probe compensates for a lag of this subscriber, so such a reset is not passed on.
        let is_reset = |item: &RunEvent| matches!(item, RunEvent::Event(event) if event.kind == EventKind::StreamReset && event.thread.is_none());
        stream::unfold(follower, RunFollower::next).filter(move |item| std::future::ready(!is_reset(item)))
    }
}

/// The result of a probe.
enum RunProbe {
    Open,
    Ended(Box<RunRecord>),
    /// The run was abandoned or deleted; no more events will arrive.
    Gone,
}

impl RunProbe {
    fn ended(record: RunRecord) -> Self {
        Self::Ended(Box::new(record))
    }
}

struct RunFollower<P> {
    events: Subscription,
    run: RunId,
    thread: ThreadKey,
    /// Loads the run; its argument says whether the subscriber lagged.
    probe: P,
    /// Time until the next probe; doubles with each up to the longest.
    interval: Duration,
    longest: Duration,
    /// When to probe next. An absolute time, because events of other runs must not postpone it.
    next_probe: Instant,
    lagged: bool,
    ended: bool,
}

impl<P: Fn(bool) -> F, F: Future<Output = RunProbe>> RunFollower<P> {
    /// The next item and the follower for the rest.
    async fn next(mut self) -> Option<(RunEvent, Self)> {
        while !self.ended {
            if self.lagged || Instant::now() >= self.next_probe {
                let lagged = std::mem::take(&mut self.lagged);
                self.interval = (2 * self.interval).min(self.longest);
                self.next_probe = Instant::now() + self.interval;
                match (self.probe)(lagged).await {
                    RunProbe::Open => {}
                    RunProbe::Gone => return None,
                    RunProbe::Ended(record) => return self.next_before_end(record),
                }
            }
            let Ok(event) = tokio::time::timeout_at(self.next_probe, self.events.next()).await else { continue };
            if event.kind == EventKind::StreamReset && self.concerns_run(&event) {
                // The end event may be among the missed ones.
                self.lagged = true;
                return Some((RunEvent::Event(event), self));
            }
            if event.kind.run_id() == Some(self.run) {
                self.next_probe = Instant::now() + self.interval;
                self.ended = is_end(&event);
                return Some((RunEvent::Event(event), self));
            }
        }
        None
    }

    /// Whether a reset is about events of the run's thread.
    fn concerns_run(&self, reset: &Event) -> bool {
        reset
            .thread
            .as_ref()
            .is_none_or(|thread| *thread == self.thread.thread && reset.tenant.as_ref() == Some(&self.thread.tenant))
    }

    /// The next event of a run that has ended, and the end itself after the last one: those that are queued come first.
    fn next_before_end(mut self, record: Box<RunRecord>) -> Option<(RunEvent, Self)> {
        while let Some(event) = self.events.try_next() {
            if event.kind.run_id() == Some(self.run) {
                self.ended = is_end(&event);
                // The end is found again when it is asked for the next item.
                self.next_probe = Instant::now();
                return Some((RunEvent::Event(event), self));
            }
        }
        self.ended = true;
        Some((RunEvent::Ended(record), self))
    }
}

fn is_end(event: &Event) -> bool {
    matches!(event.kind, EventKind::RunCompleted { .. } | EventKind::RunFailed { .. })
}

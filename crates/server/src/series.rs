//! Time series of the calls on this node: of all tools together, and of each tool that was called lately.
//!
//! In: a sample per second. Out: the points of a window. Everything is in memory: about 200 kB for the hub, 63 kB for each tool
//! with calls in every minute of a day. `ring.rs` holds the points of one step.

mod ring;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use toolhub_core::{CallSample, CallSampler, CancellationToken, ToolHub, ToolName, clock::Timestamp, tasks};

pub(crate) use ring::Point;
use ring::{Counts, Ring};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Number of tools with a series of their own, those called last.
const MAX_TOOLS: usize = 200;

/// How far back a series goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Window {
    Minutes15,
    Hours6,
    Day,
}

/// All series of a server.
#[derive(Default)]
pub(crate) struct CallSeries(Mutex<Series>);

struct Series {
    /// A point per second for 15 minutes, per 10 seconds for six hours, and per minute for a day.
    hub: [Ring; 3],
    tools: HashMap<ToolName, Ring>,
}

impl Default for Series {
    fn default() -> Self {
        let rings =
            [Window::Minutes15, Window::Hours6, Window::Day].map(|window| Ring::new(window.step(), window.length()));
        Self { hub: rings, tools: HashMap::new() }
    }
}

impl Window {
    pub(crate) fn length(self) -> Duration {
        match self {
            Self::Minutes15 => 15 * MINUTE,
            Self::Hours6 => DAY / 4,
            Self::Day => DAY,
        }
    }

    /// The time between two points of all tools together.
    fn step(self) -> Duration {
        match self {
            Self::Minutes15 => SECOND,
            Self::Hours6 => 10 * SECOND,
            Self::Day => MINUTE,
        }
    }
}

impl CallSeries {
    /// Takes a sample every second until the server stops.
    pub(crate) fn start(self: &Arc<Self>, hub: ToolHub, stopping: CancellationToken) {
        let series = Arc::downgrade(self);
        tasks::spawn("call series", stopping, move |stop| {
            let sampling = sample_every_second(series.clone(), hub.clone());
            Box::pin(async move {
                stop.run_until_cancelled(sampling).await;
            })
        });
    }

    /// The points of all tools together, the oldest first, and the time between two of them. The last one is not over yet.
    pub(crate) fn of_hub(&self, window: Window, now: Timestamp) -> (Duration, Vec<Point>) {
        (window.step(), self.lock().hub[window as usize].points(now - window.length()))
    }

    /// The same for one tool. A point without calls is left out.
    pub(crate) fn of_tool(&self, tool: &ToolName, window: Window, now: Timestamp) -> (Duration, Vec<Point>) {
        let points = self.lock().tools.get(tool).map(|ring| ring.points(now - window.length()));
        (MINUTE, points.unwrap_or_default())
    }

    /// Adds what happened since the last sample.
    fn add(&self, samples: &[CallSample], queued: usize, now: Timestamp) {
        let mut all = Counts::default();
        for sample in samples {
            all.add(&Counts::of(sample));
        }
        all.queued = queued as u64;
        let Series { hub, tools } = &mut *self.lock();
        for ring in hub {
            ring.add(&all, now);
        }
        for sample in samples {
            if !tools.contains_key(&sample.tool) && tools.len() >= MAX_TOOLS {
                let longest_idle = tools.iter().min_by_key(|(_, ring)| ring.last_added()).map(|(tool, _)| tool.clone());
                longest_idle.and_then(|tool| tools.remove(&tool));
            }
            let ring = tools.entry(sample.tool.clone()).or_insert_with(|| Ring::new(MINUTE, DAY));
            ring.add(&Counts::of(sample), now);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Series> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn sample_every_second(series: Weak<CallSeries>, hub: ToolHub) {
    let (mut sampler, mut ticks) = (CallSampler::default(), tokio::time::interval(SECOND));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    hub.sample_calls(&mut sampler);
    loop {
        ticks.tick().await;
        // Without it the server is gone.
        let Some(series) = series.upgrade() else { return };
        let samples = hub.sample_calls(&mut sampler);
        series.add(&samples, hub.queued_calls(), hub.now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_series_together_take_at_most_16_megabytes() {
        let hub: usize = Series::default().hub.iter().map(Ring::max_bytes).sum();
        let tools = MAX_TOOLS * Ring::new(MINUTE, DAY).max_bytes();
        assert!(hub + tools <= 16_000_000, "{hub} + {tools}");
    }
}

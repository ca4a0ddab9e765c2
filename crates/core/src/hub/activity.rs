//! Emits the event `metrics.tick` once a second for those who subscribed to it: what the calls of this node did.
//!
//! In: samples of the counters of all tools. Out: events. Started by the first subscriber, so that a hub without one has no timer.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

use tokio::time::{Instant, MissedTickBehavior};

use super::ToolHub;
use crate::{engine::Engine, events::EventClass, monitor::CallSampler, tasks};
use toolhub_storage::latency::HistogramSnapshot;
use toolhub_types::event_kind::EventKind;

const INTERVAL: Duration = Duration::from_secs(1);
const SAMPLES_PER_MINUTE: usize = 60;
/// The name of the outcome of a call that did not fail.
const SUCCESS: &str = "success";

/// What the samples before have counted.
struct Activity {
    sampler: CallSampler,
    /// Refused calls since the hub started, by error.
    refusals: BTreeMap<&'static str, u64>,
    /// The latencies of each sample of the last minute.
    minute: VecDeque<HistogramSnapshot>,
}

impl ToolHub {
    /// Starts the samples, unless they were started before.
    pub(super) fn start_metrics_ticks(&self) {
        if self.engine.has_metrics_ticks.swap(true, Ordering::Relaxed) {
            return;
        }
        // The shutdown waits until the token is dropped.
        let (engine, tracked) = (Arc::downgrade(&self.engine), self.engine.background_tasks.token());
        let _runtime = self.engine.runtime.enter();
        tasks::spawn("metrics ticks", self.engine.stopped.clone(), move |stopped| {
            let _tracked = &tracked;
            let engine = engine.clone();
            Box::pin(async move {
                stopped.run_until_cancelled_owned(run(engine)).await;
            })
        });
    }
}

async fn run(engine: Weak<Engine>) {
    let mut ticks = tokio::time::interval_at(Instant::now() + INTERVAL, INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut sampled_at = Instant::now();
    let hub = || engine.upgrade().map(|engine| ToolHub { engine });
    let Some(mut activity) = hub().map(|hub| Activity::begin(&hub)) else { return };
    loop {
        ticks.tick().await;
        let Some(hub) = hub() else { return };
        let elapsed = sampled_at.elapsed();
        sampled_at += elapsed;
        let tick = activity.sample(&hub, elapsed);
        let services = &hub.engine.services;
        if services.events.has_subscribers(EventClass::Ticks) {
            services.events.emit(services.clock.now(), tick);
        }
    }
}

impl Activity {
    fn begin(hub: &ToolHub) -> Self {
        let mut sampler = CallSampler::default();
        hub.sample_calls(&mut sampler);
        Self { sampler, refusals: hub.engine.services.refusals.counts(), minute: VecDeque::new() }
    }

    fn sample(&mut self, hub: &ToolHub, elapsed: Duration) -> EventKind {
        let (mut calls, mut cache_hits, mut in_flight) = (BTreeMap::new(), 0, 0);
        let mut latency = HistogramSnapshot::default();
        for sample in hub.sample_calls(&mut self.sampler) {
            let succeeded = (sample.succeeded > 0).then_some((SUCCESS, sample.succeeded));
            for (outcome, count) in sample.errors.into_iter().chain(succeeded) {
                *calls.entry(outcome).or_default() += count;
            }
            cache_hits += sample.cache_hits;
            in_flight += sample.in_flight;
            latency = latency.merge(&sample.latency);
        }
        let refusals = hub.engine.services.refusals.counts();
        let new_refusals = refusals.iter().filter_map(|(error, count)| {
            let count = count - self.refusals.get(error).copied().unwrap_or(0);
            (count > 0).then_some((*error, count))
        });
        let new_refusals = new_refusals.collect();
        self.refusals = refusals;
        let p95 = quantile_millis(&latency, 0.95);
        if self.minute.len() == SAMPLES_PER_MINUTE {
            self.minute.pop_front();
        }
        self.minute.push_back(latency.compact());
        let minute = self.minute.iter().fold(HistogramSnapshot::default(), HistogramSnapshot::merge);
        EventKind::MetricsTick {
            seconds: elapsed.as_secs_f64(),
            calls,
            refusals: new_refusals,
            cache_hits,
            in_flight,
            queued: hub.engine.scheduler.queued(),
            p95,
            p95_minute: quantile_millis(&minute, 0.95),
        }
    }
}

/// A quantile in milliseconds; `None` if nothing was measured.
fn quantile_millis(latency: &HistogramSnapshot, fraction: f64) -> Option<f64> {
    let is_measured = latency.total() > 0;
    is_measured.then(|| (latency.quantile(fraction).as_secs_f64() * 1e6).round() / 1e3)
}

//! Durations of requests by method, and the number of clients that listen.
//!
//! In: each request and each stream. Out: values for metrics. Failed and cancelled requests count too.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use tokio::time::Instant;
use toolhub_core::{Latency, LatencyRecorder};

/// The methods of requests that are served.
pub(super) const METHODS: [&str; 18] = [
    "completion/complete",
    "initialize",
    "logging/setLevel",
    "ping",
    "prompts/get",
    "prompts/list",
    "resources/list",
    "resources/read",
    "resources/subscribe",
    "resources/templates/list",
    "resources/unsubscribe",
    "server/discover",
    "subscriptions/listen",
    "tasks/cancel",
    "tasks/get",
    "tasks/update",
    "tools/call",
    "tools/list",
];

/// The counters of the endpoint.
#[derive(Debug, Default)]
pub(crate) struct EndpointMeters {
    operations: [LatencyRecorder; METHODS.len()],
    listeners: AtomicUsize,
}

impl EndpointMeters {
    /// Measures a request until the value is dropped.
    pub(super) fn time(self: &Arc<Self>, method: &'static str) -> Timer {
        Timer { meters: self.clone(), method, started: Instant::now() }
    }

    /// Counts a client that listens until the value is dropped.
    pub(super) fn listener(self: &Arc<Self>) -> Listener {
        self.listeners.fetch_add(1, Relaxed);
        Listener(self.clone())
    }

    /// The latencies of the methods that were used.
    pub(crate) fn latencies(&self) -> Vec<(&'static str, Latency)> {
        let latencies = METHODS.into_iter().zip(&self.operations).map(|(method, it)| (method, it.latency()));
        latencies.filter(|(_, latency)| latency.count > 0).collect()
    }

    /// The number of clients that listen.
    pub(crate) fn listeners(&self) -> usize {
        self.listeners.load(Relaxed)
    }
}

/// A request that is measured.
pub(super) struct Timer {
    meters: Arc<EndpointMeters>,
    method: &'static str,
    started: Instant,
}

impl Drop for Timer {
    fn drop(&mut self) {
        if let Some(recorder) =
            METHODS.iter().position(|it| *it == self.method).and_then(|at| self.meters.operations.get(at))
        {
            recorder.record(self.started.elapsed());
        }
    }
}

/// A client that listens.
pub(super) struct Listener(Arc<EndpointMeters>);

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.listeners.fetch_sub(1, Relaxed);
    }
}

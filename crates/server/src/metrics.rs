//! The server's own counters: requests by route and status, and connections.
//!
//! In: the end of each request. Out: counters, which `metrics/page.rs` renders. Counting is one atomic addition; no
//! decision is made here.

mod alerts;
mod page;
mod prometheus_text;
mod state_counter;
mod store_servers;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

pub(crate) use page::{Sources, render};

/// All counters of a server.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    routes: Mutex<BTreeMap<(&'static str, String), Arc<RouteMeter>>>,
    pub(crate) listener: ListenerMeter,
    state_counter: state_counter::StateCounter,
}

/// Counters of one route.
#[derive(Debug, Default)]
pub(crate) struct RouteMeter {
    /// Responses by the first digit of their status.
    classes: [AtomicU64; 6],
    /// Sum of their durations, in microseconds.
    total_micros: AtomicU64,
}

/// Counters of connections.
#[derive(Debug, Default)]
pub(crate) struct ListenerMeter {
    pub(crate) open: AtomicUsize,
    pub(crate) accepted: AtomicU64,
    /// Closed right after the accept, because no other one could be closed to make room.
    pub(crate) refused: AtomicU64,
    /// Closed to make room.
    pub(crate) displaced: AtomicU64,
    /// Event streams ended to make room for another one.
    pub(crate) ended_streams: AtomicU64,
    /// Aborted because of a timeout.
    pub(crate) timed_out: AtomicU64,
}

impl Metrics {
    /// The counters of a route.
    pub(crate) fn route(&self, path: &'static str, method: &str) -> Arc<RouteMeter> {
        let mut routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        routes.entry((path, method.into())).or_default().clone()
    }

    /// Every route that has answered a request, by path and method.
    pub(crate) fn routes(&self) -> Vec<(&'static str, String, Arc<RouteMeter>)> {
        let routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        let used = routes.iter().filter(|(_, meter)| meter.total() > 0);
        used.map(|((path, method), meter)| (*path, method.clone(), meter.clone())).collect()
    }
}

impl RouteMeter {
    /// Counts one answered request.
    pub(crate) fn record(&self, status: u16, took: Duration) {
        if let Some(class) = self.classes.get(usize::from(status / 100)) {
            class.fetch_add(1, Relaxed);
        }
        self.total_micros.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Relaxed);
    }

    /// The number of responses whose status starts with this digit.
    pub(crate) fn class(&self, digit: usize) -> u64 {
        self.classes.get(digit).map_or(0, |class| class.load(Relaxed))
    }

    /// The number of all responses.
    pub(crate) fn total(&self) -> u64 {
        self.classes.iter().map(|class| class.load(Relaxed)).sum()
    }

    /// The sum of their durations.
    pub(crate) fn total_seconds(&self) -> f64 {
        Duration::from_micros(self.total_micros.load(Relaxed)).as_secs_f64()
    }
}

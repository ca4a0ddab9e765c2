//! What the server itself counts: requests by route and status, and connections.
//!
//! In: the end of each request. Out: numbers, for `metrics/page.rs` to write down. Counting is one addition; nothing is
//! decided here.

mod page;
mod prometheus_text;
mod state_counter;

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
pub(crate) struct Meters {
    routes: Mutex<BTreeMap<(&'static str, String), Arc<RouteMeter>>>,
    pub(crate) listener: ListenerMeter,
    state_counter: state_counter::StateCounter,
}

/// What happened at one route.
#[derive(Debug, Default)]
pub(crate) struct RouteMeter {
    /// Answers by the first digit of their status.
    classes: [AtomicU64; 6],
    /// How long they took together, in microseconds.
    total_micros: AtomicU64,
}

/// What happened to connections.
#[derive(Debug, Default)]
pub(crate) struct ListenerMeter {
    pub(crate) open: AtomicUsize,
    pub(crate) accepted: AtomicU64,
    /// Not let in, because there were too many.
    pub(crate) refused: AtomicU64,
    /// Closed to let others in.
    pub(crate) evicted: AtomicU64,
    /// Cut because they were too slow.
    pub(crate) timed_out: AtomicU64,
}

impl Meters {
    /// The counters of a route.
    pub(crate) fn route(&self, path: &'static str, method: &str) -> Arc<RouteMeter> {
        let mut routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        routes.entry((path, method.into())).or_default().clone()
    }

    /// Every route at which something happened, by path and method.
    pub(crate) fn routes(&self) -> Vec<(&'static str, String, Arc<RouteMeter>)> {
        let routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        let used = routes.iter().filter(|(_, meter)| meter.total() > 0);
        used.map(|((path, method), meter)| (*path, method.clone(), meter.clone())).collect()
    }
}

impl RouteMeter {
    /// One request was answered.
    pub(crate) fn record(&self, status: u16, took: Duration) {
        if let Some(class) = self.classes.get(usize::from(status / 100)) {
            class.fetch_add(1, Relaxed);
        }
        self.total_micros.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Relaxed);
    }

    /// How many answers began with this digit.
    pub(crate) fn class(&self, digit: usize) -> u64 {
        self.classes.get(digit).map_or(0, |class| class.load(Relaxed))
    }

    /// How many answers there were.
    pub(crate) fn total(&self) -> u64 {
        self.classes.iter().map(|class| class.load(Relaxed)).sum()
    }

    /// How long they took together.
    pub(crate) fn total_seconds(&self) -> f64 {
        Duration::from_micros(self.total_micros.load(Relaxed)).as_secs_f64()
    }
}

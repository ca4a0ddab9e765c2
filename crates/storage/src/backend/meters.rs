//! How long stores take, by the sort of store and what they are asked for.
//!
//! In: each answer of a store, from `backend/bounded.rs`. Out: `StoreStats`. Two stores of one sort are counted together.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use crate::latency::{Latency, LatencyRecorder};

/// How long a store took for one sort of request.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct StoreStats {
    /// The sort of store, such as `sqlite`.
    pub backend: &'static str,
    /// What it was asked for: `load`, `commit`, `scan` or `sweep`.
    pub operation: &'static str,
    /// How long that took, whatever the answer was.
    pub latency: Latency,
}

/// The meters of a hub's stores, by their sort.
#[derive(Default)]
pub struct StoreMeters(Mutex<BTreeMap<&'static str, Arc<StoreMeter>>>);

/// How long the stores of one sort take.
#[derive(Default)]
pub struct StoreMeter {
    /// Of `load`.
    pub load: LatencyRecorder,
    /// Of `commit`.
    pub commit: LatencyRecorder,
    /// Of `scan`.
    pub scan: LatencyRecorder,
    /// Of `sweep`.
    pub sweep: LatencyRecorder,
}

crate::brief_debug!("StoreMeters" StoreMeters);
crate::brief_debug!("StoreMeter" StoreMeter);

impl StoreMeters {
    /// The meter of a sort of stores.
    pub fn meter(&self, backend: &'static str) -> Arc<StoreMeter> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(backend).or_default().clone()
    }

    /// Everything that was measured.
    pub fn stats(&self) -> Vec<StoreStats> {
        let meters = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let each = |(backend, meter): (&'static str, Arc<StoreMeter>)| {
            let of = |operation, timed: &LatencyRecorder| StoreStats { backend, operation, latency: timed.latency() };
            let StoreMeter { load, commit, scan, sweep } = &*meter;
            [of("load", load), of("commit", commit), of("scan", scan), of("sweep", sweep)]
        };
        meters.into_iter().flat_map(each).filter(|stats| stats.latency.count > 0).collect()
    }
}

//! Latency metrics of stores, by backend and operation.
//!
//! In: the duration of each store operation, from `backend/timeout.rs`. Out: `StoreStats`. Stores of the same backend share a meter.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use crate::latency::{Latency, LatencyRecorder};

/// Latency of one operation of one backend.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct StoreStats {
    /// The backend's name, such as `sqlite`.
    pub backend: &'static str,
    /// The operation: `load`, `commit`, `scan` or `sweep`.
    pub operation: &'static str,
    /// How long it took, successful or not.
    pub latency: Latency,
}

/// The meters of a hub's stores, by backend name.
#[derive(Default)]
pub struct StoreMeters(Mutex<BTreeMap<&'static str, Arc<StoreMeter>>>);

/// Latency recorders of one backend.
#[derive(Default)]
pub struct StoreMeter {
    /// Latency of `load`.
    pub load: LatencyRecorder,
    /// Latency of `commit`.
    pub commit: LatencyRecorder,
    /// Latency of `scan`.
    pub scan: LatencyRecorder,
    /// Latency of `sweep`.
    pub sweep: LatencyRecorder,
}

crate::brief_debug!("StoreMeters" StoreMeters);
crate::brief_debug!("StoreMeter" StoreMeter);

impl StoreMeters {
    /// The meter of a backend; created on first use.
    pub fn meter(&self, backend: &'static str) -> Arc<StoreMeter> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(backend).or_default().clone()
    }

    /// Statistics of all operations that were measured at least once.
    pub fn stats(&self) -> Vec<StoreStats> {
        let meters = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let per_operation = |(backend, meter): (&'static str, Arc<StoreMeter>)| {
            let stats =
                |operation, recorder: &LatencyRecorder| StoreStats { backend, operation, latency: recorder.latency() };
            let StoreMeter { load, commit, scan, sweep } = &*meter;
            [stats("load", load), stats("commit", commit), stats("scan", scan), stats("sweep", sweep)]
        };
        meters.into_iter().flat_map(per_operation).filter(|stats| stats.latency.count > 0).collect()
    }
}

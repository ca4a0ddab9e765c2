//! Metrics of runs and model requests.
//!
//! In: duration and result of each. Out: histograms by name. Names come from the config, so there are few.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use smol_str::SmolStr;

use crate::{
    model::{ModelError, Reply},
    record::RunStatus,
    run::RunError,
};

/// Upper bounds of the buckets for model requests, in seconds.
pub const REQUEST_SECONDS_BUCKETS: [f64; 14] =
    [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];
/// Upper bounds of the buckets for runs, in seconds.
pub const RUN_SECONDS_BUCKETS: [f64; 14] =
    [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6, 819.2];
/// Upper bounds of the buckets for tokens.
pub const TOKEN_BUCKETS: [f64; 14] = [
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1024.0,
    4096.0,
    16384.0,
    65536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];

/// A histogram.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Histogram {
    /// The number of values per bucket; the last one is for all larger values.
    pub buckets: [u64; 15],
    /// The sum of all values.
    pub sum: f64,
}

impl Histogram {
    /// The number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    fn observe(&mut self, bounds: &[f64; 14], value: f64) {
        let index = bounds.iter().position(|bound| value <= *bound).unwrap_or(bounds.len());
        self.buckets[index] += 1;
        self.sum += value;
    }
}

/// A snapshot of the metrics.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct AgentStats {
    /// Duration of runs in seconds, by agent and error; the error is empty for a success.
    pub runs: BTreeMap<(SmolStr, SmolStr), Histogram>,
    /// Duration of model requests in seconds, by model and error; the error is empty for a success.
    pub requests: BTreeMap<(SmolStr, SmolStr), Histogram>,
    /// Tokens per request, by model and `input` or `output`.
    pub tokens: BTreeMap<(SmolStr, &'static str), Histogram>,
    /// The error of the latest request, by model; empty for a success.
    pub last_errors: BTreeMap<SmolStr, SmolStr>,
}

/// The metrics.
#[derive(Debug, Default)]
pub struct Metrics(Mutex<AgentStats>);

impl Metrics {
    /// A snapshot of all metrics.
    #[must_use]
    pub fn snapshot(&self) -> AgentStats {
        self.lock().clone()
    }

    pub(crate) fn record_request(&self, model: &str, duration: Duration, reply: &Result<Reply, ModelError>) {
        let mut stats = self.lock();
        let error = match reply {
            Ok(_) => SmolStr::default(),
            Err(error) => serde_json::to_value(error.fault)
                .ok()
                .and_then(|fault| fault.as_str().map(SmolStr::from))
                .unwrap_or_default(),
        };
        stats.last_errors.insert(model.into(), error.clone());
        stats
            .requests
            .entry((model.into(), error))
            .or_default()
            .observe(&REQUEST_SECONDS_BUCKETS, duration.as_secs_f64());
        if let Ok(reply) = reply {
            for (direction, tokens) in [("input", reply.usage.input_tokens), ("output", reply.usage.output_tokens)] {
                #[expect(clippy::cast_precision_loss, reason = "a histogram need not be exact")]
                stats.tokens.entry((model.into(), direction)).or_default().observe(&TOKEN_BUCKETS, tokens as f64);
            }
        }
    }

    pub(crate) fn record_run(&self, agent: &SmolStr, duration: Duration, status: RunStatus, error: Option<&RunError>) {
        let code = match (status, error) {
            (_, Some(error)) => error.code.clone(),
            (RunStatus::Cancelled, None) => SmolStr::new_static("cancelled"),
            _ => SmolStr::default(),
        };
        self.lock()
            .runs
            .entry((agent.clone(), code))
            .or_default()
            .observe(&RUN_SECONDS_BUCKETS, duration.as_secs_f64());
    }

    fn lock(&self) -> MutexGuard<'_, AgentStats> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

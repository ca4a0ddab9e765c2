//! Counts runs and requests to models, for metrics.
//!
//! In: how long each took and how it ended. Out: histograms by name. Names come from the config, so there are few.

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

/// The upper ends of the buckets of answers of models, in seconds.
pub const REQUEST_SECONDS_BUCKETS: [f64; 14] =
    [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];
/// The upper ends of the buckets of whole runs, in seconds.
pub const RUN_SECONDS_BUCKETS: [f64; 14] =
    [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6, 819.2];
/// The upper ends of the buckets of tokens.
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

/// How values are spread.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Histogram {
    /// How many fell into each bucket; the last is for all that are larger.
    pub buckets: [u64; 15],
    /// All values together.
    pub sum: f64,
}

impl Histogram {
    /// How many values there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    fn observe(&mut self, bounds: &[f64; 14], value: f64) {
        let at = bounds.iter().position(|bound| value <= *bound).unwrap_or(bounds.len());
        self.buckets[at] += 1;
        self.sum += value;
    }
}

/// What was counted.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct AgentStats {
    /// How long runs took in seconds, by agent and what went wrong; empty where nothing did.
    pub runs: BTreeMap<(SmolStr, SmolStr), Histogram>,
    /// How long models took to answer in seconds, by model and what went wrong; empty where nothing did.
    pub requests: BTreeMap<(SmolStr, SmolStr), Histogram>,
    /// How many tokens a request had, by model and `input` or `output`.
    pub tokens: BTreeMap<(SmolStr, &'static str), Histogram>,
    /// What went wrong when a model was asked last, by model; empty where nothing did.
    pub last_errors: BTreeMap<SmolStr, SmolStr>,
}

/// Counts.
#[derive(Debug, Default)]
pub struct Meters(Mutex<AgentStats>);

impl Meters {
    /// What was counted so far.
    #[must_use]
    pub fn snapshot(&self) -> AgentStats {
        self.lock().clone()
    }

    pub(crate) fn record_request(&self, model: &str, took: Duration, reply: &Result<Reply, ModelError>) {
        let mut stats = self.lock();
        let error = match reply {
            Ok(_) => SmolStr::default(),
            Err(error) => {
                serde_json::to_value(error.fault).ok().and_then(|it| it.as_str().map(SmolStr::from)).unwrap_or_default()
            }
        };
        stats.last_errors.insert(model.into(), error.clone());
        stats.requests.entry((model.into(), error)).or_default().observe(&REQUEST_SECONDS_BUCKETS, took.as_secs_f64());
        if let Ok(reply) = reply {
            for (sort, tokens) in [("input", reply.usage.input_tokens), ("output", reply.usage.output_tokens)] {
                #[expect(clippy::cast_precision_loss, reason = "a histogram need not be exact")]
                stats.tokens.entry((model.into(), sort)).or_default().observe(&TOKEN_BUCKETS, tokens as f64);
            }
        }
    }

    pub(crate) fn record_run(&self, agent: &SmolStr, took: Duration, status: RunStatus, error: Option<&RunError>) {
        let wrong = match (status, error) {
            (_, Some(error)) => error.code.clone(),
            (RunStatus::Cancelled, None) => SmolStr::new_static("cancelled"),
            _ => SmolStr::default(),
        };
        self.lock().runs.entry((agent.clone(), wrong)).or_default().observe(&RUN_SECONDS_BUCKETS, took.as_secs_f64());
    }

    fn lock(&self) -> MutexGuard<'_, AgentStats> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

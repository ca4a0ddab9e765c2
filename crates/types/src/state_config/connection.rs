//! What an owner says about connections to services: how many, how long, and how often to try again.
//!
//! In: a config or its JSON (times are milliseconds). Out: plain values with defaults, and the retry policy they describe.
//! Connections themselves are made by ways out of the hub; none is here.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::policy::Retry;

/// What holds for the connections to one service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConnectionStateConfig {
    /// How many calls may use the service at once.
    pub pool_size: usize,
    /// How many more, when it is busy.
    pub max_overflow: usize,
    /// How long a call waits for its turn; then it is `overloaded`.
    #[serde(with = "crate::millis")]
    pub pool_timeout: Duration,
    /// The age at which a client is made anew.
    #[serde(with = "crate::millis")]
    pub pool_recycle: Duration,
    /// How long a request may take in all.
    #[serde(with = "crate::millis")]
    pub timeout: Duration,
    /// How long it may take to connect.
    #[serde(with = "crate::millis")]
    pub connect_timeout: Duration,
    /// How long the service may be silent while it answers.
    #[serde(with = "crate::millis")]
    pub read_timeout: Duration,
    /// How long it may take to send a request.
    #[serde(with = "crate::millis")]
    pub write_timeout: Duration,
    /// Whether connections are kept for the next request.
    pub keep_alive: bool,
    /// How long an unused one is kept.
    #[serde(with = "crate::millis")]
    pub keep_alive_timeout: Duration,
    /// How often one that is kept is asked whether it still works.
    #[serde(with = "crate::millis")]
    pub keep_alive_interval: Duration,
    /// How often a request is tried, counting the first time.
    pub retry_attempts: u32,
    /// The wait before the second attempt.
    #[serde(with = "crate::millis")]
    pub retry_delay: Duration,
    /// By how much each wait is longer than the one before.
    pub retry_backoff: f64,
    /// Whether a wait is a random part of its length.
    pub retry_jitter: bool,
}

impl ConnectionStateConfig {
    /// The retry policy the four fields describe, for `ToolBuilder::retry` or a
    /// [`Policy`](crate::policy::Policy). Only the first wait may be longer than half a minute.
    #[must_use]
    pub fn retry(&self) -> Retry {
        let usual = Retry::default();
        Retry {
            attempts: self.retry_attempts,
            first: self.retry_delay,
            factor: self.retry_backoff,
            longest: usual.longest.max(self.retry_delay),
            jitter: self.retry_jitter,
        }
    }
}

impl Default for ConnectionStateConfig {
    fn default() -> Self {
        const SECOND: Duration = Duration::from_secs(1);
        Self {
            pool_size: 10,
            max_overflow: 20,
            pool_timeout: 30 * SECOND,
            pool_recycle: 3600 * SECOND,
            timeout: 30 * SECOND,
            connect_timeout: 10 * SECOND,
            read_timeout: 60 * SECOND,
            write_timeout: 60 * SECOND,
            keep_alive: true,
            keep_alive_timeout: 30 * SECOND,
            keep_alive_interval: 60 * SECOND,
            retry_attempts: 3,
            retry_delay: SECOND,
            retry_backoff: 2.0,
            retry_jitter: true,
        }
    }
}

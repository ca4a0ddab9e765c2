//! Settings of connections to services: pool size, timeouts, keep-alive and retries.
//!
//! In: a config or its JSON (times are milliseconds). Out: plain values with defaults, and the retry policy they describe.
//! Executors open the connections.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::policy::Retry;

/// Settings of the connections to one service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConnectionStateConfig {
    /// Maximum number of concurrent calls to the service.
    pub pool_size: usize,
    /// Additional concurrent calls allowed above `pool_size` under load.
    pub max_overflow: usize,
    /// How long a call waits for a free connection; then it fails as `overloaded`.
    #[serde(with = "crate::millis")]
    pub pool_timeout: Duration,
    /// The age at which a client is recreated.
    #[serde(with = "crate::millis")]
    pub pool_recycle: Duration,
    /// Timeout of a whole request.
    #[serde(with = "crate::millis")]
    pub timeout: Duration,
    /// Timeout of connecting.
    #[serde(with = "crate::millis")]
    pub connect_timeout: Duration,
    /// How long the service may send nothing while it responds.
    #[serde(with = "crate::millis")]
    pub read_timeout: Duration,
    /// Timeout of sending a request.
    #[serde(with = "crate::millis")]
    pub write_timeout: Duration,
    /// Whether connections are reused for the next request.
    pub keep_alive: bool,
    /// How long an idle connection is kept open.
    #[serde(with = "crate::millis")]
    pub keep_alive_timeout: Duration,
    /// The interval of keep-alive pings on an idle connection.
    #[serde(with = "crate::millis")]
    pub keep_alive_interval: Duration,
    /// Maximum number of attempts, including the first.
    pub retry_attempts: u32,
    /// The delay before the second attempt.
    #[serde(with = "crate::millis")]
    pub retry_delay: Duration,
    /// The factor by which each delay grows.
    pub retry_backoff: f64,
    /// Whether delays have full jitter.
    pub retry_jitter: bool,
}

impl ConnectionStateConfig {
    /// The retry policy that the four `retry_` fields describe, for `ToolBuilder::retry` or a
    /// [`Policy`](crate::policy::Policy). Delays are capped at 30 s, or at `retry_delay` if that is longer.
    #[must_use]
    pub fn retry(&self) -> Retry {
        let defaults = Retry::default();
        Retry {
            attempts: self.retry_attempts,
            first: self.retry_delay,
            factor: self.retry_backoff,
            longest: defaults.longest.max(self.retry_delay),
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

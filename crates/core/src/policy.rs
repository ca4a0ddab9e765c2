//! What a tool's owner sets about its calls: times and sizes.
//!
//! `Policy` holds what was said, `Limits` what holds after the hub's defaults have filled the gaps.

#[allow(dead_code, unreachable_pub, unused_imports, reason = "wired in the next commit")]
mod confirm;
#[allow(dead_code, unreachable_pub, reason = "wired in the next commit")]
mod glob;

use std::time::Duration;

/// What was said about a tool's calls; what is not said follows the hub's defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    /// How long a call may take, all attempts and the waits between them included.
    pub timeout: Option<Duration>,
    /// How long a call may stay silent; every sign of progress begins it anew.
    pub idle_timeout: Option<Duration>,
    /// How many characters of text a model is shown.
    pub text_limit: Option<usize>,
    /// How many bytes of structured output are passed on.
    pub output_limit: Option<usize>,
}

/// What holds for a tool's calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// How long a call may take.
    pub timeout: Duration,
    /// How long a call may stay silent.
    pub idle_timeout: Option<Duration>,
    /// How many characters of text a model is shown; the rest is kept as an artifact.
    pub text: usize,
    /// How many bytes of structured output are passed on; more is kept as an artifact.
    pub output: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(30), idle_timeout: None, text: 25_000, output: 1024 * 1024 }
    }
}

impl Limits {
    /// These limits with what a policy says laid over them.
    #[must_use]
    pub fn with(&self, policy: &Policy) -> Self {
        Self {
            timeout: policy.timeout.unwrap_or(self.timeout),
            idle_timeout: policy.idle_timeout.or(self.idle_timeout),
            text: policy.text_limit.unwrap_or(self.text),
            output: policy.output_limit.unwrap_or(self.output),
        }
    }
}

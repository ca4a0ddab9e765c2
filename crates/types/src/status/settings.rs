//! Settings of the circuit breaker and of rebinding.
//!
//! In: a config or its JSON (durations are milliseconds). Out: plain values that the other files
//! read. Values are not validated; each field documents what an unusual value means.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// When the circuit breaker of a tool opens and for how long, and when changes of the offered tools are announced.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct StatusSettings {
    /// Whether failures are counted. If not, the breaker never refuses calls; an operator's override still does.
    pub enabled: bool,
    /// Consecutive counted failures before the breaker opens. Zero means one.
    pub failure_threshold: u32,
    /// The first cool-down of an open breaker.
    #[serde(with = "crate::millis")]
    #[schemars(with = "u64")]
    pub failure_duration: Duration,
    /// Whether a changed tool list is rebound automatically. If not, the bound list stays until an explicit rebind.
    pub auto_rebind: bool,
    /// How long changes of the tool list are debounced before they are announced.
    #[serde(with = "crate::millis")]
    #[schemars(with = "u64")]
    pub rebind_delay: Duration,
    /// Maximum cool-down after failed probes. A longer `failure_duration` is not shortened.
    #[serde(with = "crate::millis")]
    #[schemars(with = "u64")]
    pub max_failure_duration: Duration,
    /// Also opens the breaker by failure rate, if set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_window: Option<FailureWindow>,
    /// Whether a refusal by the tool counts as a failure.
    pub count_tool_errors: bool,
}

/// Opens the breaker by the failure rate over a rolling window.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailureWindow {
    /// The failure rate, from 0 to 1, at which the breaker opens.
    pub failure_rate: f64,
    /// The length of the window.
    #[serde(with = "crate::millis")]
    #[schemars(with = "u64")]
    pub window: Duration,
    /// Minimum number of calls in the window before the rate is considered.
    pub minimum_calls: u32,
}

impl StatusSettings {
    /// Whether the failure rate is tracked, so that successes are recorded too.
    pub fn tracks_failure_rate(&self) -> bool {
        self.enabled && self.failure_window.is_some()
    }
}

impl Default for StatusSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            failure_threshold: 3,
            failure_duration: Duration::from_secs(5 * 60),
            auto_rebind: true,
            rebind_delay: Duration::from_secs(10),
            max_failure_duration: Duration::from_secs(60 * 60),
            failure_window: None,
            count_tool_errors: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[track_caller]
    fn check(text: Value, expected: &StatusSettings) {
        assert_eq!(&serde_json::from_value::<StatusSettings>(text).unwrap(), expected);
    }

    #[test]
    fn what_is_not_said_keeps_its_default() {
        check(json!({}), &StatusSettings::default());
        check(
            json!({"failureThreshold": 5, "failureDuration": 1000}),
            &StatusSettings {
                failure_threshold: 5,
                failure_duration: Duration::from_secs(1),
                ..StatusSettings::default()
            },
        );
    }

    #[test]
    fn the_defaults_are_written_with_the_documented_names_and_numbers() {
        let json = serde_json::to_value(StatusSettings::default()).unwrap();
        let expected = json!({
            "enabled": true, "failureThreshold": 3, "failureDuration": 300_000, "autoRebind": true,
            "rebindDelay": 10_000, "maxFailureDuration": 3_600_000, "countToolErrors": false,
        });
        assert_eq!(json, expected);
    }

    #[test]
    fn a_window_survives_a_round_trip() {
        let window = FailureWindow { failure_rate: 0.5, window: Duration::from_secs(60), minimum_calls: 10 };
        let settings = StatusSettings { failure_window: Some(window), ..StatusSettings::default() };
        check(serde_json::to_value(&settings).unwrap(), &settings);
    }
}

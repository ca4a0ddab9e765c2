//! What an owner sets about failing tools and their return.
//!
//! In: a config or its JSON (`failureDuration` and the like are milliseconds). Out: plain values that the other files
//! read. The numbers are taken as they are; what an odd number means is said on its field.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// When a tool is withheld, for how long, and when its return is announced.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct StatusSettings {
    /// Whether failures are counted at all. When not, the breaker withholds nothing; an operator's word still does.
    pub enabled: bool,
    /// How many counted failures in a row make a tool failed. Zero is read as one.
    pub failure_threshold: u32,
    /// How long a tool is withheld the first time.
    #[serde(with = "crate::millis")]
    #[schemars(with = "u64")]
    pub failure_duration: Duration,
    /// Whether a changed list of tools is bound again by itself. If not, a held list stays until somebody binds it again.
    pub auto_rebind: bool,
    /// How long changes of the list are gathered before they are announced.
    #[serde(with = "crate::millis")]
    #[schemars(with = "u64")]
    pub rebind_delay: Duration,
    /// The longest a tool is withheld after failed probes. A `failure_duration` above it is not shortened.
    #[serde(with = "crate::millis")]
    #[schemars(with = "u64")]
    pub longest: Duration,
    /// Withholds a tool by its rate of failures too, where set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_window: Option<FailureWindow>,
    /// Whether a tool that answers "no" counts as failing.
    pub count_tool_errors: bool,
}

/// Too many failures among the calls of late.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailureWindow {
    /// The share of failures, from 0 to 1, at which the tool is withheld.
    pub failure_rate: f64,
    /// How far back calls are looked at.
    #[serde(with = "crate::millis")]
    #[schemars(with = "u64")]
    pub window: Duration,
    /// How many calls there must be before the share means anything.
    pub minimum_calls: u32,
}

impl StatusSettings {
    /// Whether successes are weighed against failures.
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
            longest: Duration::from_secs(60 * 60),
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
        let written = serde_json::to_value(StatusSettings::default()).unwrap();
        let expected = json!({
            "enabled": true, "failureThreshold": 3, "failureDuration": 300_000, "autoRebind": true,
            "rebindDelay": 10_000, "longest": 3_600_000, "countToolErrors": false,
        });
        assert_eq!(written, expected);
    }

    #[test]
    fn a_window_survives_a_round_trip() {
        let window = FailureWindow { failure_rate: 0.5, window: Duration::from_secs(60), minimum_calls: 10 };
        let settings = StatusSettings { failure_window: Some(window), ..StatusSettings::default() };
        check(serde_json::to_value(&settings).unwrap(), &settings);
    }
}

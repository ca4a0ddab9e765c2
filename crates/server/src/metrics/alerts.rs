//! Metrics of alerts and their delivery.

use toolhub_core::ToolHub;

use super::prometheus_text::{MetricType, PrometheusText};

/// Writes what this node delivered, and the alerts that hold if it evaluates them.
pub(super) fn write(text: &mut PrometheusText, hub: &ToolHub) {
    let help =
        "Alerts that hold and that were reported to a target, by condition; only on the node that evaluates alerts.";
    let mut family = text.family("toolhub_alerts_firing", MetricType::Gauge, help);
    for (condition, count) in hub.firing_alerts() {
        family.sample(&[("condition", condition.as_str())], count);
    }
    let counts = hub.alert_delivery_counts();
    let help = "Attempts to deliver a message to an alert target: `delivered` or `failed`.";
    let mut family = text.family("toolhub_alert_deliveries_total", MetricType::Counter, help);
    for target in &counts {
        for (result, count) in [("delivered", target.delivered), ("failed", target.failures)] {
            family.sample(&[("target", &target.target), ("result", result)], count);
        }
    }
}

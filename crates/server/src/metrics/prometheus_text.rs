//! The Prometheus text format.
//!
//! In: names, labels and values. Out: text, with labels escaped and one `HELP` and `TYPE` per family.

use std::{
    fmt::{Display, Write},
    time::Duration,
};

use toolhub_agent::Histogram;
use toolhub_core::Latency;

/// A page of metrics under construction.
#[derive(Debug, Default)]
pub(crate) struct PrometheusText(String);

/// The types of metrics.
#[derive(Debug, Clone, Copy)]
pub(crate) enum MetricType {
    Counter,
    Gauge,
    Histogram,
}

impl PrometheusText {
    /// Starts a family.
    pub(crate) fn family(&mut self, name: &'static str, metric_type: MetricType, help: &str) -> MetricFamily<'_> {
        let type_name = match metric_type {
            MetricType::Counter => "counter",
            MetricType::Gauge => "gauge",
            MetricType::Histogram => "histogram",
        };
        self.line(format_args!("# HELP {name} {help}\n# TYPE {name} {type_name}\n"));
        MetricFamily { text: self, name }
    }

    /// A family with a single sample.
    pub(crate) fn single(&mut self, name: &'static str, metric_type: MetricType, help: &str, value: impl Display) {
        self.family(name, metric_type, help).sample(&[], value);
    }

    /// The whole page.
    pub(crate) fn finish(self) -> String {
        self.0
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a `String` cannot fail.
        let _ = self.0.write_fmt(line);
    }
}

/// The samples of one metric.
pub(crate) struct MetricFamily<'a> {
    text: &'a mut PrometheusText,
    name: &'static str,
}

impl MetricFamily<'_> {
    /// Writes one sample.
    pub(crate) fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.write_sample("", labels, value);
    }

    /// Writes a latency histogram with these bucket bounds, in seconds.
    pub(crate) fn latency_histogram(&mut self, labels: &[(&str, &str)], bounds: &[f64], latency: &Latency) {
        let cumulative =
            latency.cumulative_counts(&bounds.iter().copied().map(Duration::from_secs_f64).collect::<Vec<_>>());
        for (bound, count) in bounds.iter().zip(cumulative) {
            self.write_sample("_bucket", &[labels, &[("le", &bound.to_string())]].concat(), count);
        }
        self.write_sample("_bucket", &[labels, &[("le", "+Inf")]].concat(), latency.count);
        self.write_sample("_sum", labels, latency.mean.as_secs_f64() * latency.count as f64);
        self.write_sample("_count", labels, latency.count);
    }

    /// Writes a histogram with these bucket bounds.
    pub(crate) fn histogram(&mut self, labels: &[(&str, &str)], bounds: &[f64], histogram: &Histogram) {
        let mut cumulative = 0;
        for (bound, count) in bounds.iter().zip(&histogram.buckets) {
            cumulative += count;
            self.write_sample("_bucket", &[labels, &[("le", &bound.to_string())]].concat(), cumulative);
        }
        self.write_sample("_bucket", &[labels, &[("le", "+Inf")]].concat(), histogram.count());
        self.write_sample("_sum", labels, histogram.sum);
        self.write_sample("_count", labels, histogram.count());
    }

    /// Writes one sample with a suffix such as `_sum`.
    pub(crate) fn write_sample(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl Display) {
        let name = self.name;
        let mut rendered = String::new();
        for (label, value) in labels {
            let comma = if rendered.is_empty() { "" } else { "," };
            let _ = write!(rendered, "{comma}{label}=\"{}\"", escape_label(value));
        }
        if rendered.is_empty() {
            self.text.line(format_args!("{name}{suffix} {value}\n"));
        } else {
            self.text.line(format_args!("{name}{suffix}{{{rendered}}} {value}\n"));
        }
    }
}

fn escape_label(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_families_announced_once() {
        let mut text = PrometheusText::default();
        let mut family = text.family("calls_total", MetricType::Counter, "How many.");
        family.sample(&[("tool", "a\"b\\c\nd"), ("kind", "x")], 1);
        family.sample(&[], 2.5);
        let expected = "# HELP calls_total How many.\n# TYPE calls_total counter\n\
                      calls_total{tool=\"a\\\"b\\\\c\\nd\",kind=\"x\"} 1\ncalls_total 2.5\n";
        assert_eq!(text.finish(), expected);
    }
}

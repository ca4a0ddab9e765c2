//! Numbers as Prometheus reads them.
//!
//! In: names, labels and values. Out: text, with every label escaped and every family announced once.

use std::{
    fmt::{Display, Write},
    time::Duration,
};

use toolhub_agent::Histogram;
use toolhub_core::Latency;

/// A page of numbers in the making.
#[derive(Debug, Default)]
pub(crate) struct PrometheusText(String);

/// The sorts of families.
#[derive(Debug, Clone, Copy)]
pub(crate) enum MetricType {
    Counter,
    Gauge,
    Histogram,
}

impl PrometheusText {
    /// Begins a family.
    pub(crate) fn family(&mut self, name: &'static str, sort: MetricType, help: &str) -> MetricFamily<'_> {
        let word = match sort {
            MetricType::Counter => "counter",
            MetricType::Gauge => "gauge",
            MetricType::Histogram => "histogram",
        };
        self.line(format_args!("# HELP {name} {help}\n# TYPE {name} {word}\n"));
        MetricFamily { text: self, name }
    }

    /// A family of one number.
    pub(crate) fn single(&mut self, name: &'static str, sort: MetricType, help: &str, value: impl Display) {
        self.family(name, sort, help).sample(&[], value);
    }

    /// The whole page.
    pub(crate) fn finish(self) -> String {
        self.0
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // A `String` takes everything.
        let _ = self.0.write_fmt(line);
    }
}

/// The numbers of one name.
pub(crate) struct MetricFamily<'a> {
    text: &'a mut PrometheusText,
    name: &'static str,
}

impl MetricFamily<'_> {
    /// One number.
    pub(crate) fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.write_sample("", labels, value);
    }

    /// How long something took, as counts up to each of these bounds, in seconds.
    pub(crate) fn latency_histogram(&mut self, labels: &[(&str, &str)], bounds: &[f64], took: &Latency) {
        let within = took.cumulative_counts(&bounds.iter().copied().map(Duration::from_secs_f64).collect::<Vec<_>>());
        for (bound, many) in bounds.iter().zip(within) {
            self.write_sample("_bucket", &[labels, &[("le", &bound.to_string())]].concat(), many);
        }
        self.write_sample("_bucket", &[labels, &[("le", "+Inf")]].concat(), took.count);
        self.write_sample("_sum", labels, took.mean.as_secs_f64() * took.count as f64);
        self.write_sample("_count", labels, took.count);
    }

    /// How values are spread, as counts up to each of these bounds.
    pub(crate) fn histogram(&mut self, labels: &[(&str, &str)], bounds: &[f64], spread: &Histogram) {
        let mut below = 0;
        for (bound, many) in bounds.iter().zip(&spread.buckets) {
            below += many;
            self.write_sample("_bucket", &[labels, &[("le", &bound.to_string())]].concat(), below);
        }
        self.write_sample("_bucket", &[labels, &[("le", "+Inf")]].concat(), spread.count());
        self.write_sample("_sum", labels, spread.sum);
        self.write_sample("_count", labels, spread.count());
    }

    /// One number of a part of it, such as `_sum`.
    pub(crate) fn write_sample(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl Display) {
        let name = self.name;
        let mut all = String::new();
        for (label, value) in labels {
            let comma = if all.is_empty() { "" } else { "," };
            let _ = write!(all, "{comma}{label}=\"{}\"", escape_label(value));
        }
        if all.is_empty() {
            self.text.line(format_args!("{name}{suffix} {value}\n"));
        } else {
            self.text.line(format_args!("{name}{suffix}{{{all}}} {value}\n"));
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
        let wanted = "# HELP calls_total How many.\n# TYPE calls_total counter\n\
                      calls_total{tool=\"a\\\"b\\\\c\\nd\",kind=\"x\"} 1\ncalls_total 2.5\n";
        assert_eq!(text.finish(), wanted);
    }
}

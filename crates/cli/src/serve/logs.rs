//! Log output: one line on stderr per event.
//!
//! In: `tracing` events. Out: text on a terminal, JSON elsewhere, with the fields in the order of the event. A field whose
//! name is secret is masked.

use std::{
    fmt::{self, Write as _},
    io::{self, IsTerminal as _, Write as _},
};

use serde_json::{Value, json};
use toolhub::{
    clock::{Clock, SystemClock},
    redact::Redactor,
};
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
    level_filters::LevelFilter,
};
use tracing_subscriber::{Layer, filter::Targets, layer::Context, layer::SubscriberExt, util::SubscriberInitExt};

use crate::config::{LogFormat, LogLevel, Telemetry};

const MASK: &str = "••••";

/// Installs the subscriber. Further calls have no effect.
pub(crate) fn init(telemetry: &Telemetry) {
    let json = match telemetry.format {
        LogFormat::Json => true,
        LogFormat::Pretty => false,
        LogFormat::Auto => !io::stderr().is_terminal(),
    };
    let level = match telemetry.level {
        LogLevel::Off => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let _ = tracing_subscriber::registry()
        .with(LogLayer { json, redactor: telemetry.redactor() }.with_filter(enabled(level)))
        .try_init();
}

/// What is logged. `rmcp` logs whole messages of MCP servers, with arguments and results.
fn enabled(level: LevelFilter) -> Targets {
    Targets::new().with_default(level).with_target("rmcp", LevelFilter::OFF)
}

struct LogLayer {
    json: bool,
    redactor: Redactor,
}

impl<S: Subscriber> Layer<S> for LogLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = EventFields { redactor: &self.redactor, message: String::new(), fields: Vec::new() };
        event.record(&mut fields);
        let (level, target) = (*event.metadata().level(), event.metadata().target());
        let line = if self.json { fields.json(level, target) } else { fields.text(level) };
        // Writing fails only when stderr is closed.
        let _ = io::stderr().write_all(line.as_bytes());
    }
}

/// The recorded fields of an event.
struct EventFields<'a> {
    redactor: &'a Redactor,
    message: String,
    fields: Vec<(&'static str, Value)>,
}

impl EventFields<'_> {
    fn record_value(&mut self, field: &Field, value: Value) {
        let name = field.name();
        let value = if self.redactor.is_secret(name) { MASK.into() } else { value };
        match (name, value) {
            ("message", Value::String(text)) => self.message = text,
            (name, value) => self.fields.push((name, value)),
        }
    }

    fn json(self, level: Level, target: &str) -> String {
        let level = level.as_str().to_ascii_lowercase();
        let head = [
            ("timestamp", json!(SystemClock.now())),
            ("level", level.into()),
            ("target", target.into()),
            ("message", self.message.into()),
        ];
        let members = head.into_iter().chain(self.fields);
        let members: Vec<String> = members.map(|(name, value)| format!("{}:{value}", Value::from(name))).collect();
        format!("{{{}}}\n", members.join(","))
    }

    fn text(self, level: Level) -> String {
        let now = SystemClock.now().to_string();
        let clock = now.split('T').nth(1).and_then(|time| time.split('.').next()).unwrap_or(&now);
        let mut line =
            format!("{clock} {:<5} {}", level.as_str().to_ascii_lowercase(), replace_control_chars(&self.message));
        for (name, value) in self.fields {
            let value = value.as_str().map_or_else(|| value.to_string(), String::from);
            let _ = write!(line, "  {name}={}", replace_control_chars(&value));
        }
        line.push('\n');
        line
    }
}

/// Replaces control characters, so that input from outside cannot control the terminal.
fn replace_control_chars(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

impl Visit for EventFields<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_value(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.record_value(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.record_value(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.record_value(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.record_value(field, value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        // `tracing` has no lists: a list of texts or numbers arrives as its debug text, which is JSON.
        let list = text.starts_with('[').then(|| serde_json::from_str::<Vec<Value>>(&text).ok()).flatten();
        self.record_value(field, list.map_or(Value::String(text), Value::Array));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_mcp_servers_are_not_logged_at_any_level() {
        let trace = enabled(LevelFilter::TRACE);
        for target in ["rmcp", "rmcp::service", "rmcp::transport::worker"] {
            assert!(!trace.would_enable(target, &Level::ERROR), "{target}");
        }
        assert!(trace.would_enable("toolhub_connect::mcp", &Level::TRACE));
        assert!(!enabled(LevelFilter::WARN).would_enable("toolhub_core", &Level::INFO));
    }
}

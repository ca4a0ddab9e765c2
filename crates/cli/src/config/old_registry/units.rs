//! Durations without a unit: what they mean depends on where they are written.
//!
//! In: a number and the unit of its place. Out: a duration with its unit, and a note on how the number was read. A number at a place
//! whose unit is unknown is a problem with both readings.

use std::time::Duration;

use toolhub::config::{PositiveDuration, Unit};

use super::{
    super::tree::{Node, Value},
    findings::Findings,
    keys::with_value,
};

/// The unit of the numbers at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NumberUnit {
    Seconds,
    Milliseconds,
    /// Nothing says which.
    Unknown,
}

/// Reads a duration. `None` if it stands for no limit, or is a problem.
pub(super) fn duration(path: &str, node: &Node, unit: NumberUnit, findings: &mut Findings) -> Option<Node> {
    let number = match &node.value {
        // Texts with a unit are validated with the rest of the config.
        Value::Text(text) => match text.trim().parse::<f64>() {
            Ok(number) => number,
            Err(_) => return Some(node.clone()),
        },
        Value::Integer(number) => *number as f64,
        Value::Float(number) => *number,
        other => {
            let message = format!("`{path}` must be a duration, not {}", other.type_name());
            findings.report(&node.origin, message, "write a number or a text such as \"30s\"");
            return None;
        }
    };
    if unit == NumberUnit::Unknown {
        report_unknown(path, node, number, findings);
        return None;
    }
    let (seconds, name) = match unit {
        NumberUnit::Milliseconds => (number / 1000.0, "milliseconds"),
        NumberUnit::Seconds | NumberUnit::Unknown => (number, "seconds"),
    };
    if number.is_finite() && number <= 0.0 {
        findings.note(&node.key_origin, format!("`{path} = {number}` sets no limit and was left out"));
        return None;
    }
    let Some(text) = with_unit(seconds) else {
        let message = format!("`{path}` is not a duration that can be used");
        findings.report(&node.origin, message, "write one such as \"30s\"");
        return None;
    };
    findings.note(&node.key_origin, format!("`{path} = {number}` is read as {name}: \"{text}\""));
    Some(with_value(Value::Text(text), node))
}

/// A number of seconds with its unit, such as `90s`.
fn with_unit(seconds: f64) -> Option<String> {
    let time = Duration::try_from_secs_f64(seconds).ok().filter(|time| time.as_millis() > 0)?;
    let text = String::from(PositiveDuration(time));
    Unit::Time.check(&text).is_ok().then_some(text)
}

fn report_unknown(path: &str, node: &Node, number: f64, findings: &mut Findings) {
    let message = format!("`{path} = {number}` has no unit, and nothing says which one is meant at this place");
    let reading = |seconds: f64| with_unit(seconds).unwrap_or_else(|| "nothing".into());
    let (seconds, millis) = (reading(number), reading(number / 1000.0));
    let help = format!(
        "if it is {number} seconds, write \"{seconds}\"; if it is {number} milliseconds, write \"{millis}\"; or remove it"
    );
    findings.report(&node.origin, message, help);
}

/// Words in the names of keys that hold durations.
const DURATION_WORDS: [&str; 7] = ["timeout", "ttl", "delay", "interval", "duration", "expires", "max_age"];
/// Ends of names that say the unit themselves.
const NAMED_UNITS: [&str; 8] = ["_ms", "_millis", "_s", "_sec", "_secs", "_seconds", "_minutes", "ms"];

/// Whether a key that nothing reads is, or contains, a duration whose unit is unknown; it is reported then.
pub(super) fn check_unknown(path: &str, key: &str, node: &Node, findings: &mut Findings) -> bool {
    match &node.value {
        Value::Table(table) => {
            let found = table.iter().map(|(key, node)| check_unknown(&format!("{path}.{key}"), key, node, findings));
            found.fold(false, |any, found| any | found)
        }
        Value::Integer(_) | Value::Float(_) if is_duration_name(key) => {
            duration(path, node, NumberUnit::Unknown, findings);
            true
        }
        _ => false,
    }
}

/// Whether a key of this name holds a duration whose unit its name does not say.
pub(super) fn is_duration_name(key: &str) -> bool {
    let name = key.to_ascii_lowercase();
    DURATION_WORDS.iter().any(|word| name.contains(word)) && !NAMED_UNITS.iter().any(|unit| name.ends_with(unit))
}

//! Config types for durations and sizes with units, such as `"30s"` and `"8MiB"`, with serde support and JSON Schema.
//!
//! In: text. Out: a value. `toolhub_core::units` defines the syntax and the errors.

use std::{borrow::Cow, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
pub use toolhub_core::units::{Unit, UnitError, ellipsize, parse_cli_duration};
use toolhub_core::units::{format_duration, format_size, parse_duration, parse_positive_duration, parse_size};

/// A duration greater than zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PositiveDuration(pub Duration);

/// A duration, possibly zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DurationOrZero(pub Duration);

/// A duration greater than zero, or `"never"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DurationOrNever(pub Option<Duration>);

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Size(pub u64);

/// Implements parsing, formatting and the JSON Schema of a type that serde reads from text.
macro_rules! impl_text_format {
    ($type:ident, $unit:expr, $parse:expr, $format:expr) => {
        impl TryFrom<String> for $type {
            type Error = String;
            fn try_from(text: String) -> Result<Self, String> {
                let parse: fn(&str) -> Result<Self, UnitError> = $parse;
                parse(&text).map_err(|error| format!("{}; {}", error.message, error.help))
            }
        }
        impl From<$type> for String {
            fn from(value: $type) -> String {
                let format: fn($type) -> String = $format;
                format(value)
            }
        }
        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }
            fn inline_schema() -> bool {
                true
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "format": $unit.format(), "pattern": $unit.pattern() })
            }
        }
    };
}

fn format_millis(time: Duration) -> String {
    format_duration(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

impl_text_format!(PositiveDuration, Unit::Time, |text| parse_positive_duration(text).map(Self), |value| format_millis(
    value.0
));
impl_text_format!(DurationOrZero, Unit::Delay, |text| parse_duration(text).map(Self), |value| format_millis(value.0));
impl_text_format!(Size, Unit::Size, |text| parse_size(text).map(Self), |value| format_size(value.0));
impl_text_format!(
    DurationOrNever,
    Unit::DurationOrNever,
    |text| if text == "never" { Ok(Self(None)) } else { parse_positive_duration(text).map(|time| Self(Some(time))) },
    |value| value.0.map_or_else(|| "never".into(), format_millis)
);

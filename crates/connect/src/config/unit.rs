//! Types of a config that are read from times and sizes as people write them, written as such, and described in its schema.
//!
//! In: text. Out: a value. What the texts are, and what to write instead of a wrong one, is told by `toolhub_core::units`.

use std::{borrow::Cow, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
pub use toolhub_core::units::{Unit, UnitError, ellipsize, parse_cli_duration};
use toolhub_core::units::{format_duration, format_size, parse_duration, parse_positive_duration, parse_size};

/// A time that is longer than nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Time(pub Duration);

/// A time that may be nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Delay(pub Duration);

/// A time, or for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DurationOrNever(pub Option<Duration>);

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Size(pub u64);

/// Says of a type of ours how it is read, written and described.
macro_rules! written {
    ($type:ident, $unit:expr, $read:expr, $write:expr) => {
        impl TryFrom<String> for $type {
            type Error = String;
            fn try_from(text: String) -> Result<Self, String> {
                let read: fn(&str) -> Result<Self, UnitError> = $read;
                read(&text).map_err(|wrong| format!("{}; {}", wrong.message, wrong.help))
            }
        }
        impl From<$type> for String {
            fn from(value: $type) -> String {
                let write: fn($type) -> String = $write;
                write(value)
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

written!(Time, Unit::Time, |text| parse_positive_duration(text).map(Self), |value| format_millis(value.0));
written!(Delay, Unit::Delay, |text| parse_duration(text).map(Self), |value| format_millis(value.0));
written!(Size, Unit::Size, |text| parse_size(text).map(Self), |value| format_size(value.0));
written!(
    DurationOrNever,
    Unit::DurationOrNever,
    |text| if text == "never" { Ok(Self(None)) } else { parse_positive_duration(text).map(|time| Self(Some(time))) },
    |value| value.0.map_or_else(|| "never".into(), format_millis)
);

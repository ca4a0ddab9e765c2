//! A duration as written in requests: `30s`, `1h30m`, `7d`.
//!
//! In: numbers with units. Out: a `Duration`; and back, for responses that name one.

use std::{fmt, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};
use toolhub_core::units::{self, DURATION_UNITS};

/// A duration in a query or body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DurationParam(pub(crate) Duration);

impl DurationParam {
    fn parse(text: &str) -> Option<Self> {
        let millis = units::parse_with(text, &DURATION_UNITS, usize::MAX).filter(|millis| *millis > 0);
        millis.map(Duration::from_millis).map(Self)
    }
}

impl fmt::Display for DurationParam {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        // Weeks are only parsed, never written: 14 days stay `14d`.
        let whole = DURATION_UNITS[..5].iter().rev().find(|(_, size)| millis.is_multiple_of(u128::from(*size)));
        let (unit, size) = whole.copied().unwrap_or(DURATION_UNITS[0]);
        write!(f, "{}{unit}", millis / u128::from(size))
    }
}

impl<'de> Deserialize<'de> for DurationParam {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let invalid = || {
            let text: String = text.chars().take(64).collect();
            de::Error::custom(format!(
                "`{text}` is not a duration; write a number with a unit, such as `30s`, `5m` or `1h`"
            ))
        };
        Self::parse(&text).ok_or_else(invalid)
    }
}

impl JsonSchema for DurationParam {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Duration".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        // Nine digits of weeks cannot overflow, and the first digit keeps the duration above zero.
        json_schema!({"type": "string", "pattern": "^[1-9][0-9]{0,8}(ms|s|m|h|d|w)$", "examples": ["1h"]})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        for (text, millis) in [
            ("1ms", Some(1)),
            ("30s", Some(30_000)),
            ("1h30m", Some(5_400_000)),
            ("7d", Some(604_800_000)),
            ("0s", None),
            ("0", None),
            ("", None),
            ("5", None),
            ("h", None),
            ("1 h", None),
            ("-1s", None),
            ("1y", None),
            ("99999999999999999999s", None),
            ("18446744073709551615w", None),
            ("1ü", None),
        ] {
            assert_eq!(
                DurationParam::parse(text),
                millis.map(|millis| DurationParam(Duration::from_millis(millis))),
                "{text}"
            );
        }
    }

    #[test]
    fn a_time_is_told_in_the_largest_unit_that_fits() {
        for text in ["1ms", "1500ms", "90s", "90m", "1h", "30d"] {
            assert_eq!(DurationParam::parse(text).unwrap().to_string(), text);
        }
    }
}

//! How long something is remembered, as it is written in requests: `30s`, `1h30m`, `7d`.

use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};

/// A time to live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ttl(pub(super) Duration);

const UNITS: [(&str, u64); 6] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000), ("w", 604_800_000)];

impl Ttl {
    fn read(text: &str) -> Option<Self> {
        let (mut rest, mut millis) = (text, 0_u64);
        while !rest.is_empty() {
            let digits = rest.find(|letter: char| !letter.is_ascii_digit())?;
            let (number, tail) = rest.split_at(digits);
            let word = tail.find(|letter: char| letter.is_ascii_digit()).unwrap_or(tail.len());
            let (unit, tail) = tail.split_at(word);
            let (_, size) = UNITS.into_iter().find(|(name, _)| *name == unit)?;
            millis = millis.checked_add(number.parse::<u64>().ok()?.checked_mul(size)?)?;
            rest = tail;
        }
        (millis > 0).then(|| Self(Duration::from_millis(millis)))
    }
}

impl<'de> Deserialize<'de> for Ttl {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let wrong = || {
            let text: String = text.chars().take(64).collect();
            de::Error::custom(format!(
                "`{text}` is no time to live; write a number with a unit, such as `30s`, `5m` or `1h`"
            ))
        };
        Self::read(&text).ok_or_else(wrong)
    }
}

impl JsonSchema for Ttl {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Ttl".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        // Nine digits of weeks are no overflow; and not all of them are zero.
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
            assert_eq!(Ttl::read(text), millis.map(|millis| Ttl(Duration::from_millis(millis))), "{text}");
        }
    }
}

//! Serde support for durations as milliseconds: whole ones (`#[serde(with = "crate::millis")]`), or with fractions.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer};

/// Serializes whole milliseconds.
///
/// # Errors
/// When the serializer fails.
pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

/// Deserializes whole milliseconds.
///
/// # Errors
/// When the value is not an unsigned integer.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    u64::deserialize(deserializer).map(Duration::from_millis)
}

/// The same for an optional duration.
pub mod option {
    use super::{Deserialize, Deserializer, Duration, Serializer};

    /// Serializes whole milliseconds, or `null`.
    ///
    /// # Errors
    /// When the serializer fails.
    pub fn serialize<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => super::serialize(duration, serializer),
            None => serializer.serialize_none(),
        }
    }

    /// Deserializes whole milliseconds, or `null`.
    ///
    /// # Errors
    /// When the value is neither an unsigned integer nor `null`.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(deserializer)?.map(Duration::from_millis))
    }
}

/// A duration that is serialized as milliseconds with fractions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, Deserialize, schemars::JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct Millis(
    /// The duration.
    #[serde(with = "fractional")]
    #[schemars(with = "f64", range(min = 0))]
    pub Duration,
);

/// The same with fractions of a millisecond, to the microsecond.
pub mod fractional {
    use super::{Deserialize, Deserializer, Duration, Serializer};

    /// The number of milliseconds, to the microsecond.
    #[must_use]
    pub fn from_duration(duration: Duration) -> f64 {
        (duration.as_secs_f64() * 1e6).round() / 1e3
    }

    /// Serializes milliseconds; an integer if there is no fraction.
    ///
    /// # Errors
    /// When the serializer fails.
    pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        let millis = from_duration(*duration);
        if millis.fract() == 0.0 { serializer.serialize_u64(millis as u64) } else { serializer.serialize_f64(millis) }
    }

    /// Deserializes milliseconds.
    ///
    /// # Errors
    /// When the value is not a number from 0 on.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let millis = f64::deserialize(deserializer)?;
        // Via whole microseconds, because that is what was written.
        Duration::try_from_secs_f64(millis / 1e3)
            .map(|duration| Duration::from_micros((duration.as_secs_f64() * 1e6).round() as u64))
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, serde::Serialize, Deserialize)]
    struct Took(#[serde(with = "fractional")] Duration);

    #[test]
    fn fractions_are_read_back_as_they_were_written() {
        for (micros, text) in [(0, "0"), (1, "0.001"), (250, "0.25"), (1_000, "1"), (1_234_567, "1234.567")] {
            let took = Took(Duration::from_micros(micros));
            assert_eq!(serde_json::to_string(&took).unwrap(), text);
            assert_eq!(serde_json::from_str::<Took>(text).unwrap(), took);
        }
        assert_eq!(serde_json::to_string(&Took(Duration::from_nanos(999_999_600))).unwrap(), "1000");
        assert!(serde_json::from_str::<Took>("-1").is_err());
    }
}

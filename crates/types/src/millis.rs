//! Serde support for durations as whole milliseconds (`#[serde(with = "crate::millis")]`).

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

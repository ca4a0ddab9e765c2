//! Durations as whole milliseconds in records and answers (`#[serde(with = "crate::millis")]`).

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer};

/// Writes whole milliseconds.
///
/// # Errors
/// As the serializer.
pub fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// Reads whole milliseconds.
///
/// # Errors
/// When it is no such number.
pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    u64::deserialize(from).map(Duration::from_millis)
}

/// The same for a duration that may be absent.
pub mod option {
    use super::{Deserialize, Deserializer, Duration, Serializer};

    /// Writes whole milliseconds, or nothing.
    ///
    /// # Errors
    /// As the serializer.
    pub fn serialize<S: Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => super::serialize(time, to),
            None => to.serialize_none(),
        }
    }

    /// Reads whole milliseconds, or nothing.
    ///
    /// # Errors
    /// When it is no such number.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(from)?.map(Duration::from_millis))
    }
}

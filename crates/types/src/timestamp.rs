//! Wall-clock timestamps with millisecond precision.
//!
//! In: Unix milliseconds, or RFC 3339 text. Out: the same, in UTC. Holds no clock: the storage crate reads the time.

use std::{
    fmt,
    ops::{Add, Sub},
    str::FromStr,
    time::Duration,
};

use serde::{Deserialize, Serialize};

/// A wall-clock time with millisecond precision. Serialized as RFC 3339 in UTC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Timestamp(i64);

crate::text_schema! { Timestamp "a time in UTC, with millisecond precision" { "format": "date-time" } }

impl Timestamp {
    /// From Unix milliseconds.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Unix milliseconds.
    #[must_use]
    pub const fn millis(self) -> i64 {
        self.0
    }

    /// The time elapsed since `earlier`; zero if `earlier` is later than `self`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Self;
    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(timestamp) => write!(f, "{timestamp:.3}"),
            // Outside the calendar's range, show the raw milliseconds.
            Err(_) => write!(f, "{}ms", self.0),
        }
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Timestamp {
    type Err = jiff::Error;
    fn from_str(text: &str) -> Result<Self, jiff::Error> {
        text.parse::<jiff::Timestamp>().map(|timestamp| Self(timestamp.as_millisecond()))
    }
}

impl TryFrom<String> for Timestamp {
    type Error = jiff::Error;
    fn try_from(text: String) -> Result<Self, jiff::Error> {
        text.parse()
    }
}

impl From<Timestamp> for String {
    /// Stored text must parse again, so a time outside the calendar's range is clamped to its first or last one.
    fn from(timestamp: Timestamp) -> Self {
        let (first, last) = (jiff::Timestamp::MIN.as_second() * 1000, jiff::Timestamp::MAX.as_second() * 1000);
        Timestamp(timestamp.0.clamp(first, last)).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_written_in_utc_with_milliseconds() {
        let timestamp = Timestamp::from_millis(1_704_110_400_007);
        assert_eq!(timestamp.to_string(), "2024-01-01T12:00:00.007Z");
        assert_eq!("2024-01-01T12:00:00.007Z".parse::<Timestamp>().unwrap(), timestamp);
    }

    #[test]
    fn what_was_written_can_be_read_again_even_beyond_the_calendar() {
        for millis in [i64::MIN, -62_167_219_200_001, -1, 0, 253_402_300_799_999, i64::MAX] {
            let text = String::from(Timestamp::from_millis(millis));
            assert_eq!(String::from(text.parse::<Timestamp>().unwrap()), text);
        }
    }

    #[test]
    fn time_that_ran_backwards_counts_as_no_time() {
        let (early, late) = (Timestamp::from_millis(10), Timestamp::from_millis(30));
        assert_eq!(late.since(early), Duration::from_millis(20));
        assert_eq!(early.since(late), Duration::ZERO);
        assert_eq!(early + Duration::from_millis(20), late);
    }
}

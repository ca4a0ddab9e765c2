//! A moment in wall time, as it is stored and shown.
//!
//! In: milliseconds since 1970, or RFC 3339 text. Out: the same, in UTC. Holds no clock: the storage crate asks for the time.

use std::{
    fmt,
    ops::{Add, Sub},
    str::FromStr,
    time::Duration,
};

use serde::{Deserialize, Serialize};

/// A moment in wall time, to the millisecond. Written as RFC 3339 in UTC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Timestamp(i64);

crate::text_schema! { Timestamp "a moment in UTC, to the millisecond" { "format": "date-time" } }

impl Timestamp {
    /// From milliseconds since 1970.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since 1970.
    #[must_use]
    pub const fn millis(self) -> i64 {
        self.0
    }

    /// The time from `earlier` to here; zero when it lies ahead.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;
    fn add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(by.as_millis()).unwrap_or(i64::MAX)))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Self;
    fn sub(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(by.as_millis()).unwrap_or(i64::MAX)))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(moment) => write!(f, "{moment:.3}"),
            // Beyond the calendar's range there is still a number to tell.
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
        text.parse::<jiff::Timestamp>().map(|moment| Self(moment.as_millisecond()))
    }
}

impl TryFrom<String> for Timestamp {
    type Error = jiff::Error;
    fn try_from(text: String) -> Result<Self, jiff::Error> {
        text.parse()
    }
}

impl From<Timestamp> for String {
    /// What is stored must be readable again: a moment beyond the calendar is written as its first or last one.
    fn from(moment: Timestamp) -> Self {
        let (first, last) = (jiff::Timestamp::MIN.as_second() * 1000, jiff::Timestamp::MAX.as_second() * 1000);
        Timestamp(moment.0.clamp(first, last)).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_written_in_utc_with_milliseconds() {
        let moment = Timestamp::from_millis(1_704_110_400_007);
        assert_eq!(moment.to_string(), "2024-01-01T12:00:00.007Z");
        assert_eq!("2024-01-01T12:00:00.007Z".parse::<Timestamp>().unwrap(), moment);
    }

    #[test]
    fn what_was_written_can_be_read_again_even_beyond_the_calendar() {
        for millis in [i64::MIN, -62_167_219_200_001, -1, 0, 253_402_300_799_999, i64::MAX] {
            let written = String::from(Timestamp::from_millis(millis));
            assert_eq!(String::from(written.parse::<Timestamp>().unwrap()), written);
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

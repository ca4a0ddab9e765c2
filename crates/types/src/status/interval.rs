//! Intervals of wall-clock time that tolerate clock jumps and clock skew.
//!
//! In: two stored timestamps and the current time. Out: whether the current time lies between them.
//!
//! Wall-clock time is the only time that nodes and restarts share, and it may jump. If it jumps forward, an interval ends early, which
//! costs one probe. If it jumps back by an hour, an interval written before the jump would lie in the future and apply for that
//! hour longer. Therefore an interval that begins in the future does not apply. A little slack is allowed, because another node's clock
//! may be slightly ahead of ours: five seconds, and never more than the length of the interval. So from any `now`, whatever the clock
//! did, an interval is over after its length plus the slack. An interval in the future would apply once the clock gets there; callers
//! that can write detect this with `Breaker::is_in_future`.

use std::time::Duration;

use crate::timestamp::Timestamp;

const MAX_CLOCK_SKEW: Duration = Duration::from_secs(5);

/// Keeps stored ends inside the calendar's range, so that they can be parsed again.
const MAX_LENGTH: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// Whether `now` lies in the interval from `from` until `until`.
pub(super) fn contains(from: Timestamp, until: Timestamp, now: Timestamp) -> bool {
    let slack = until.since(from).min(MAX_CLOCK_SKEW);
    from - slack <= now && now < until
}

/// The end of an interval of this length, at most thirty years.
pub(super) fn end_after(from: Timestamp, length: Duration) -> Timestamp {
    from + length.min(MAX_LENGTH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(from: i64, until: i64, now: i64, expected: bool) {
        let at = |seconds: i64| Timestamp::from_millis(seconds * 1000);
        assert_eq!(contains(at(from), at(until), at(now)), expected, "{from}..{until} at {now}");
    }

    #[test]
    fn a_stretch_holds_from_its_beginning_until_just_before_its_end() {
        check(100, 400, 100, true);
        check(100, 400, 399, true);
        check(100, 400, 400, false);
        check(100, 400, 4_000_000, false);
    }

    #[test]
    fn a_stretch_that_begins_in_the_future_holds_only_within_the_slack() {
        check(100, 400, 95, true);
        check(100, 400, 94, false);
        check(100, 400, -4_000_000, false);
        check(100, 101, 99, true);
        check(100, 101, 98, false);
    }

    #[test]
    fn an_empty_stretch_never_holds() {
        check(100, 100, 100, false);
        check(100, 50, 70, false);
        check(100, 50, 100, false);
    }

    #[test]
    fn for_ever_is_a_moment_that_can_be_written_and_read() {
        let end = end_after(Timestamp::from_millis(1_800_000_000_000), Duration::MAX);
        assert_eq!(end.to_string().parse::<Timestamp>().unwrap(), end);
    }
}

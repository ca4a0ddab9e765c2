//! A stretch of wall time that survives a clock that jumps.
//!
//! In: two moments stored earlier and the present one. Out: whether the present lies between them.
//!
//! Wall time is the only time that nodes and restarts share, and it may jump. Forward, a stretch ends early, which
//! costs one probe. Backward, a stretch that was written an hour ago by a clock since set back would seem to lie in
//! the future and hold for that hour more. Therefore a stretch that begins in the future holds nothing. A little
//! slack is allowed, because another node's clock may be slightly ahead of ours: five seconds, and never more than
//! the stretch itself. So from any `now`, whatever the clock did, it is over after its own length plus the slack.
//! What lies ahead would hold once the clock gets there; `Breaker::is_ahead` tells whoever can write that.

use std::time::Duration;

use crate::timestamp::Timestamp;

const MAX_CLOCK_SKEW: Duration = Duration::from_secs(5);

/// Beyond this the calendar ends and a stored moment could not be read back.
const MAX_LENGTH: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// Whether `now` lies in the stretch from `from` until `until`.
pub(super) fn contains(from: Timestamp, until: Timestamp, now: Timestamp) -> bool {
    let slack = until.since(from).min(MAX_CLOCK_SKEW);
    from - slack <= now && now < until
}

/// The end of a stretch of this length; "for ever" means thirty years.
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

//! Decides how long to wait before a provider is asked again.
//!
//! In: how often it was asked, what it said about waiting, and how much time is left. Out: a wait, or `None` for "give up". Holds no clock.

use std::time::{Duration, SystemTime};

/// The longest wait between two tries of which a provider said nothing.
const LONGEST: Duration = Duration::from_secs(8);
/// Whoever says longer than this has lost count.
const LONGEST_TOLD: f64 = 86_400.0;

/// How long to wait before the next try; `chance` is between 0 and 1.
pub(super) fn wait(
    retries: u32,
    first: Duration,
    told: Option<Duration>,
    left: Duration,
    chance: f64,
) -> Option<Duration> {
    let wait = told.unwrap_or_else(|| {
        let full = first.saturating_mul(2_u32.saturating_pow(retries)).min(LONGEST.max(first));
        // Many clients that fell over together do not come back together.
        full.mul_f64(1.0 - chance.clamp(0.0, 1.0) / 4.0)
    });
    (wait < left).then_some(wait)
}

/// What `Retry-After` says: seconds, or a date that is compared with the server's own.
pub(super) fn told(retry_after: &str, date: Option<&str>, now: SystemTime) -> Option<Duration> {
    let text = retry_after.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        return seconds.is_finite().then(|| Duration::from_secs_f64(seconds.clamp(0.0, LONGEST_TOLD)));
    }
    let until = httpdate::parse_http_date(text).ok()?;
    // The server's clock is the one that counts: ours may be wrong.
    let now = date.and_then(|date| httpdate::parse_http_date(date).ok()).unwrap_or(now);
    let wait = until.duration_since(now).unwrap_or_default();
    Some(wait.min(Duration::from_secs_f64(LONGEST_TOLD)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_millis(500);
    const LEFT: Duration = Duration::from_secs(60);

    #[test]
    fn waits_double_up_to_a_bound_and_are_not_all_alike() {
        let waits = [0, 1, 2, 20].map(|retries| wait(retries, FIRST, None, LEFT, 0.0).unwrap().as_millis());
        assert_eq!(waits, [500, 1000, 2000, 8000]);
        assert_eq!(wait(0, FIRST, None, LEFT, 1.0), Some(Duration::from_millis(375)));
    }

    #[test]
    fn what_a_provider_says_counts_and_nobody_waits_for_what_comes_too_late() {
        let told = Some(Duration::from_secs(20));
        assert_eq!(wait(5, FIRST, told, LEFT, 1.0), told);
        assert_eq!(wait(0, FIRST, told, Duration::from_secs(20), 0.0), None);
        assert_eq!(wait(0, FIRST, None, Duration::from_millis(100), 0.0), None);
    }

    #[test]
    fn seconds_and_dates_are_understood_and_kept_within_bounds() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        let check = |text: &str, date: Option<&str>, expected: Option<u64>| {
            assert_eq!(told(text, date, now).map(|wait| wait.as_millis() as u64), expected, "{text}");
        };
        check("3", None, Some(3000));
        check(" 0.25 ", None, Some(250));
        check("-5", None, Some(0));
        check("1e300", None, Some(86_400_000));
        check("NaN", None, None);
        check("soon", None, None);
        check("Sun, 06 Nov 1994 08:49:47 GMT", None, Some(10_000));
        check("Sun, 06 Nov 1994 08:49:47 GMT", Some("Sun, 06 Nov 1994 08:49:45 GMT"), Some(2000));
        check("Sun, 06 Nov 1994 08:00:00 GMT", None, Some(0));
        check("Sat, 06 Nov 2094 08:00:00 GMT", None, Some(86_400_000));
    }
}

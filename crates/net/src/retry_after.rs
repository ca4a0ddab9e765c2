//! Reads `Retry-After`, and dates as HTTP writes them.
//!
//! In: the text of the header, and what time it is. Out: how long to wait. Whether anybody waits that long is left to the callers.

use std::time::{Duration, SystemTime};

/// How long a service asks to wait: a number of seconds, or a date that is compared with `now`.
#[must_use]
pub fn parse_retry_after(text: &str, now: SystemTime) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        let longest = Duration::from_secs(u64::MAX);
        return seconds.is_finite().then(|| Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(longest));
    }
    Some(parse_http_date(text)?.duration_since(now).unwrap_or_default())
}

/// A date as HTTP writes it, also with dashes, as cookies do.
#[must_use]
pub fn parse_http_date(text: &str) -> Option<SystemTime> {
    httpdate::parse_http_date(text).or_else(|_| httpdate::parse_http_date(&text.replace('-', " "))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_dates_are_understood() {
        let now = parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        let check =
            |text: &str, expected: Option<Duration>| assert_eq!(parse_retry_after(text, now), expected, "{text}");
        check("3", Some(Duration::from_secs(3)));
        check(" 0.25 ", Some(Duration::from_millis(250)));
        check("-5", Some(Duration::ZERO));
        check("1e300", Some(Duration::from_secs(u64::MAX)));
        check("NaN", None);
        check("inf", None);
        check("soon", None);
        check("Sun, 06 Nov 1994 08:49:47 GMT", Some(Duration::from_secs(10)));
        check("Sun, 06-Nov-1994 08:49:47 GMT", Some(Duration::from_secs(10)));
        check("Sun, 06 Nov 1994 08:00:00 GMT", Some(Duration::ZERO));
    }
}

//! Parses `Retry-After` and HTTP dates.
//!
//! In: the text of the header, and the current time. Out: the delay. The callers cap it.

use std::time::{Duration, SystemTime};

/// The delay that a service requests: a number of seconds, or a date relative to `now`.
#[must_use]
pub fn parse_retry_after(text: &str, now: SystemTime) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        let max = Duration::from_secs(u64::MAX);
        return seconds.is_finite().then(|| Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(max));
    }
    Some(parse_http_date(text)?.duration_since(now).unwrap_or_default())
}

/// Parses an HTTP date, also with dashes as in cookies.
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

//! Maps an unsuccessful HTTP status to a `ToolError`.
//!
//! In: a response with an unsuccessful status. Out: a `ToolError` with an excerpt of the body: truncated, without control characters,
//! secrets redacted. The body of a 4xx helps the model to correct its request; the body of a 5xx is for operators only.

use std::time::{Duration, SystemTime};

use hyper::{
    HeaderMap, StatusCode,
    header::{LOCATION, RETRY_AFTER},
};
use serde_json::Value;
use toolhub_core::{
    Effect, ErrorKind, ToolError,
    clock::Timestamp,
    json::{self, JsonLimits},
    redact::Redactor,
};

use super::{
    response,
    send::{OpenResponse, ReadLimit},
};
use crate::secret_mask::SecretMask;

/// Maximum size of the body of an error response.
const READ_LIMIT: ReadLimit = ReadLimit { bytes: 64 * 1024, decompressed: 64 * 1024, truncate: true };
/// Maximum length of the excerpt.
const MAX_EXCERPT_CHARS: usize = 500;

/// The error of a response. `effect` is the effect to report if the service refused the request.
pub(crate) async fn from_response(
    response: OpenResponse,
    secrets: &SecretMask,
    now: Timestamp,
    effect: Effect,
) -> ToolError {
    let (status, headers) = (response.status, response.headers.clone());
    let body = response.read(READ_LIMIT).await.unwrap_or_default();
    ErrorResponse { status, headers: &headers, body: &body }.into_error(secrets, now, effect)
}

/// A response with an unsuccessful status.
pub(crate) struct ErrorResponse<'a> {
    pub(crate) status: StatusCode,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: &'a [u8],
}

impl ErrorResponse<'_> {
    /// The error of the request. `effect`: of a request that the service refused.
    pub(crate) fn into_error(self, secrets: &SecretMask, now: Timestamp, effect: Effect) -> ToolError {
        let Self { status, headers, body } = self;
        let excerpt = response_excerpt(headers, body, secrets);
        let after = retry_after(headers, now);
        let with_body = |error: ToolError| match excerpt.as_str() {
            "" => error,
            excerpt => error.with_cause(format!("response body: {excerpt}")),
        };
        match status.as_u16() {
            500..=599 => {
                let error = ToolError::with_kind(ErrorKind::UpstreamError, format!("the service responded {status}"))
                    .hide_from_model();
                let error = with_body(error).effect(Effect::Unknown);
                if after.is_some() { error.retryable(after) } else { error }
            }
            408 | 429 => {
                let text = format!("The service asks to retry later ({status}).");
                with_body(ToolError::new(text)).uncounted().retryable(after).effect(effect)
            }
            401 | 403 => {
                let text = with_excerpt(&format!("The service does not let this tool do that ({status})."), &excerpt);
                ToolError::refused(text)
                    .with_cause("check `auth` of the tool, or `credentials` of its import")
                    .effect(effect)
            }
            400..=499 => {
                let text = with_excerpt(&format!("The service refused this request ({status})."), &excerpt);
                ToolError::refused(text).effect(effect)
            }
            other => {
                // 301 to 303 may mean that the request was carried out; the other statuses mean that it was not.
                let effect = if matches!(other, 301..=303) { Effect::Unknown } else { effect };
                let text = format!("The service gave an answer that this tool cannot use ({status}).");
                let target = headers.get(LOCATION).and_then(|target| target.to_str().ok());
                let target =
                    target.map(|target| secrets.text(target.chars().take(MAX_EXCERPT_CHARS).collect::<String>()));
                match target {
                    Some(target) => ToolError::refused(format!("{text} It redirects to {target}"))
                        .with_cause("redirects are not followed here; set the address to this one"),
                    None => ToolError::refused(text),
                }
                .effect(effect)
            }
        }
    }
}

fn with_excerpt(text: &str, excerpt: &str) -> String {
    if excerpt.is_empty() { text.to_owned() } else { format!("{text} It said: {excerpt}") }
}

/// A redacted excerpt of the body.
fn response_excerpt(headers: &HeaderMap, body: &[u8], secrets: &SecretMask) -> String {
    let text = response::decode_text(headers, body);
    let text = match json::parse::<Value>(text.as_bytes(), JsonLimits::default()) {
        Ok(mut json) => {
            Redactor::default().redact(&mut json);
            json.to_string()
        }
        // An HTML page does not help a model.
        Err(_) if text.trim_start().starts_with('<') => String::new(),
        Err(_) => text,
    };
    let text = secrets.text(text);
    let one_line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let printable = one_line.chars().filter(|c| !c.is_control());
    let mut excerpt: String = printable.clone().take(MAX_EXCERPT_CHARS).collect();
    if printable.count() > MAX_EXCERPT_CHARS {
        excerpt.push('…');
    }
    excerpt
}

/// Parses `Retry-After`: seconds, or a date.
pub(crate) fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let now = SystemTime::UNIX_EPOCH + Duration::from_millis(u64::try_from(now.millis()).unwrap_or(0));
    toolhub_net::parse_retry_after(headers.get(RETRY_AFTER)?.to_str().ok()?, now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_service_says_is_cut_and_has_no_secrets() {
        let headers = HeaderMap::new();
        let secrets = SecretMask::new(["s3cr3t", "a"]);
        let excerpt = |body: &str| response_excerpt(&headers, body.as_bytes(), &secrets);
        assert_eq!(
            excerpt(r#"{"error": "no", "access_token": "x", "list": [{"password": "y"}]}"#),
            r#"{"access_token":"[redacted]","error":"no","list":[{"password":"[redacted]"}]}"#
        );
        assert_eq!(excerpt("the key s3cr3t\r\n is\u{1b}[31m bad"), "the key •••• is[31m bad");
        assert_eq!(excerpt("<html>stack</html>"), "");
        assert_eq!(excerpt(&"x".repeat(600)).chars().count(), MAX_EXCERPT_CHARS + 1);
    }

    #[test]
    fn a_service_says_when_it_wants_to_be_asked_again() {
        let seconds = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, text.parse().unwrap());
            retry_after(&headers, Timestamp::from_millis(784_111_777_000)).map(|time| time.as_secs())
        };
        assert_eq!(seconds("7"), Some(7));
        assert_eq!(seconds("Sun, 06 Nov 1994 08:49:47 GMT"), Some(10));
        assert_eq!(seconds("Sun, 06 Nov 1994 08:49:27 GMT"), Some(0));
        assert_eq!(seconds("soon"), None);
    }
}

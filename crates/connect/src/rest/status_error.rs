//! Which error an unwelcome answer is.
//!
//! In: an answer that is no success. Out: an error of the one table, with what the service said: cut, without control characters and
//! without what must not be told. What a service says about a request that it refuses helps a model to make a better one; what it says
//! about its own trouble is for operators.

use std::time::{Duration, SystemTime};

use hyper::{HeaderMap, header::RETRY_AFTER};
use serde_json::Value;
use toolhub_core::{Effect, ErrorKind, ToolError, clock::Timestamp};

use super::{
    encode::percent_encode,
    response,
    send::{OpenResponse, ReadLimit},
};

/// How much of a refusal is read.
const READ_LIMIT: ReadLimit = ReadLimit { bytes: 64 * 1024, decompressed: 64 * 1024, truncate: true };
/// How many characters of it are told.
const MAX_EXCERPT_CHARS: usize = 500;
/// A secret shorter than this is not looked for: it would be found everywhere.
const MIN_SECRET_LEN: usize = 4;

/// The error an answer is. `effect`: what has happened where the service refuses.
pub(crate) async fn from_response(opened: OpenResponse, secrets: &[&str], now: Timestamp, effect: Effect) -> ToolError {
    let (status, headers) = (opened.status, opened.headers.clone());
    let body = opened.read(READ_LIMIT).await.unwrap_or_default();
    let said = response_excerpt(&headers, &body, secrets);
    let after = retry_after(&headers, now);
    let because = |error: ToolError| if said.is_empty() { error } else { error.with_cause(format!("it said: {said}")) };
    match status.as_u16() {
        500..=599 => {
            let error = ToolError::with_kind(ErrorKind::UpstreamError, format!("the service answers {status}"))
                .hide_from_model();
            let error = because(error).effect(Effect::Unknown);
            if after.is_some() { error.retryable(after) } else { error }
        }
        408 | 429 => {
            let text = format!("The service asks to be asked again later ({status}).");
            because(ToolError::new(text)).uncounted().retryable(after).effect(effect)
        }
        401 | 403 => {
            let text = with_excerpt(&format!("The service does not let this tool do that ({status})."), &said);
            ToolError::refused(text).with_cause("see whether `auth` is right").effect(effect)
        }
        400..=499 => ToolError::refused(with_excerpt(&format!("The service refused this request ({status})."), &said))
            .effect(effect),
        other => {
            // These say that it is done and where to look, but not where; the others that nothing was.
            let effect = if matches!(other, 301..=303) { Effect::Unknown } else { effect };
            ToolError::refused(format!("The service gave an answer that this tool cannot use ({status})."))
                .effect(effect)
        }
    }
}

fn with_excerpt(text: &str, said: &str) -> String {
    if said.is_empty() { text.to_owned() } else { format!("{text} It said: {said}") }
}

/// What a service said, fit to be told.
fn response_excerpt(headers: &HeaderMap, body: &[u8], secrets: &[&str]) -> String {
    let text = response::decode_text(headers, body);
    let mut text = match serde_json::from_str::<Value>(&text) {
        Ok(mut json) => {
            redact_members(&mut json);
            json.to_string()
        }
        // A page for people tells a model nothing.
        Err(_) if text.trim_start().starts_with('<') => String::new(),
        Err(_) => text,
    };
    for secret in secrets.iter().filter(|secret| secret.len() >= MIN_SECRET_LEN) {
        let escaped = Value::from(*secret).to_string();
        let escaped = &escaped[1..escaped.len() - 1];
        for written in [secret, escaped, &percent_encode(secret), &percent_encode(secret).replace("%20", "+")] {
            text = text.replace(written, "••••");
        }
    }
    let plain = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let clean = plain.chars().filter(|c| !c.is_control());
    let mut told: String = clean.clone().take(MAX_EXCERPT_CHARS).collect();
    if clean.count() > MAX_EXCERPT_CHARS {
        told.push('…');
    }
    told
}

/// Takes the values of members out that sound secret.
fn redact_members(value: &mut Value) {
    const SECRET_NAMES: [&str; 6] = ["authorization", "apikey", "token", "secret", "password", "cookie"];
    match value {
        Value::Object(members) => members.iter_mut().for_each(|(name, value)| {
            let name: String = name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect();
            if SECRET_NAMES.iter().any(|word| name.contains(word)) && !value.is_null() {
                *value = "[redacted]".into();
            } else {
                redact_members(value);
            }
        }),
        Value::Array(items) => items.iter_mut().for_each(redact_members),
        _ => {}
    }
}

/// When the service wants to be asked again: in so many seconds, or at a date.
fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let now = SystemTime::UNIX_EPOCH + Duration::from_millis(u64::try_from(now.millis()).unwrap_or(0));
    toolhub_net::parse_retry_after(headers.get(RETRY_AFTER)?.to_str().ok()?, now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_service_says_is_cut_and_has_no_secrets() {
        let headers = HeaderMap::new();
        let told = |body: &str| response_excerpt(&headers, body.as_bytes(), &["s3cr3t", "a"]);
        assert_eq!(
            told(r#"{"error": "no", "access_token": "x", "list": [{"password": "y"}]}"#),
            r#"{"access_token":"[redacted]","error":"no","list":[{"password":"[redacted]"}]}"#
        );
        assert_eq!(told("the key s3cr3t\r\n is\u{1b}[31m bad"), "the key •••• is[31m bad");
        assert_eq!(told("<html>stack</html>"), "");
        assert_eq!(told(&"x".repeat(600)).chars().count(), MAX_EXCERPT_CHARS + 1);
    }

    #[test]
    fn a_service_says_when_it_wants_to_be_asked_again() {
        let at = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, text.parse().unwrap());
            retry_after(&headers, Timestamp::from_millis(784_111_777_000)).map(|time| time.as_secs())
        };
        assert_eq!(at("7"), Some(7));
        assert_eq!(at("Sun, 06 Nov 1994 08:49:47 GMT"), Some(10));
        assert_eq!(at("Sun, 06 Nov 1994 08:49:27 GMT"), Some(0));
        assert_eq!(at("soon"), None);
    }
}

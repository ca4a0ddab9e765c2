//! Request headers as values: `Idempotency-Key`, `Prefer`, `traceparent`, `Accept-Language`, `Last-Event-ID`.
//!
//! In: headers. Out: values, or a problem where a wrong guess would do harm. Unknown preferences are ignored, as RFC
//! 7240 requires.

use std::time::Duration;

use axum::http::{HeaderMap, header, request::Parts};
use serde_json::json;
use toolhub_core::{TraceContext, ids::IdempotencyKey, status::Language};

use super::FromParts;
use crate::{
    app::App,
    operation::Operation,
    problem::{Code, Problem},
};

/// Upper bound of `Prefer: wait`.
const MAX_WAIT: Duration = Duration::from_secs(600);

/// `Idempotency-Key`: marks a repetition as the same request.
#[derive(Debug)]
pub(crate) struct IdempotencyHeader(pub(crate) Option<IdempotencyKey>);

impl FromParts for IdempotencyHeader {
    fn describe(operation: &mut Operation<'_>) {
        let schema = json!({"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+( +[!-~]+)*$"});
        let what = "Marks a repetition as the same request: it has one effect, and gets the same response for a day. \
                    With or without quotes.";
        operation.header("Idempotency-Key", what, &schema);
    }

    fn from_parts(parts: &mut Parts, _: &App) -> Result<Self, Problem> {
        let mut values = parts.headers.get_all("idempotency-key").iter();
        let Some(value) = values.next() else { return Ok(Self(None)) };
        let invalid = |why: &str| Problem::new(Code::INVALID_KEY, format!("the header `Idempotency-Key` {why}"));
        if values.next().is_some() {
            return Err(invalid("occurs more than once"));
        }
        let text = value.to_str().map_err(|_| invalid("has characters outside ASCII"))?;
        let key = unquote(text).ok_or_else(|| invalid("has an opening quote without a closing one"))?;
        IdempotencyKey::new(key).map(|key| Self(Some(key))).map_err(|error| invalid(&format!("is not valid: {error}")))
    }
}

/// The content of a quoted header string, or the text itself if it has no quotes.
fn unquote(text: &str) -> Option<String> {
    let Some(rest) = text.trim().strip_prefix('"') else { return Some(text.trim().into()) };
    let (mut key, mut chars) = (String::new(), rest.chars());
    loop {
        match chars.next()? {
            '"' => return chars.next().is_none().then_some(key),
            '\\' => key.push(chars.next()?),
            next => key.push(next),
        }
    }
}

/// `Prefer`: how long the client waits for a response.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Prefer {
    /// Respond with 202 immediately.
    pub(crate) respond_async: bool,
    /// Wait this long, then respond with 202.
    pub(crate) wait: Option<Duration>,
}

impl FromParts for Prefer {
    fn describe(operation: &mut Operation<'_>) {
        let what = "`respond-async`: respond with 202 immediately and continue in the background. `wait=N`: wait up to N \
                    seconds for the result or an approval, then respond with 202.";
        operation.header("Prefer", what, &json!({"type": "string", "examples": ["respond-async", "wait=1"]}));
    }

    fn from_parts(parts: &mut Parts, _: &App) -> Result<Self, Problem> {
        Ok(Self::from_headers(&parts.headers))
    }
}

impl Prefer {
    fn from_headers(headers: &HeaderMap) -> Self {
        let mut prefer = Self::default();
        let values = headers.get_all("prefer").iter().filter_map(|value| value.to_str().ok());
        for preference in values.flat_map(|value| value.split(',')) {
            // Parameters follow a `;`; none of these preferences has any.
            let (name, value) =
                preference.split(';').next().and_then(|name| name.split_once('=')).unwrap_or((preference, ""));
            match name.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
                "respond-async" => prefer.respond_async = true,
                "wait" => {
                    let seconds = value.trim().trim_matches('"').parse().ok().map(Duration::from_secs);
                    prefer.wait = prefer.wait.or(seconds.map(|wait| wait.min(MAX_WAIT)));
                }
                _ => {}
            }
        }
        prefer
    }

    /// The value of `Preference-Applied`.
    pub(crate) fn applied_header(self) -> Option<String> {
        let preferences = [
            self.respond_async.then(|| "respond-async".to_owned()),
            self.wait.map(|wait| format!("wait={}", wait.as_secs())),
        ];
        let preferences: Vec<String> = preferences.into_iter().flatten().collect();
        (!preferences.is_empty()).then(|| preferences.join(", "))
    }
}

/// `traceparent` and `tracestate`: the trace the request belongs to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trace(pub(crate) Option<TraceContext>);

impl FromParts for Trace {
    fn describe(operation: &mut Operation<'_>) {
        let what = "The trace the request belongs to (W3C Trace Context). A malformed one is ignored.";
        operation.header("traceparent", what, &json!({"type": "string"}));
    }

    fn from_parts(parts: &mut Parts, _: &App) -> Result<Self, Problem> {
        let text = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok());
        let trace = text("traceparent").and_then(|parent| TraceContext::parse(parent).ok());
        Ok(Self(trace.map(|trace| trace.with_state(text("tracestate").unwrap_or_default()))))
    }
}

/// `Accept-Language`: the language of reasons.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AcceptLanguage(pub(crate) Language);

impl FromParts for AcceptLanguage {
    fn describe(operation: &mut Operation<'_>) {
        let what = "`zh` for reasons in Chinese; English otherwise.";
        operation.header("Accept-Language", what, &json!({"type": "string", "examples": ["zh", "en"]}));
    }

    fn from_parts(parts: &mut Parts, _: &App) -> Result<Self, Problem> {
        let value =
            parts.headers.get(header::ACCEPT_LANGUAGE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        Ok(Self(preferred_language(value)))
    }
}

/// The supported language with the highest weight.
fn preferred_language(value: &str) -> Language {
    let supported = value.split(',').filter_map(|range| {
        let mut parts = range.split(';').map(str::trim);
        let language = parts.next()?.split('-').next()?.to_ascii_lowercase();
        let language = match language.as_str() {
            "zh" => Language::Chinese,
            "en" => Language::English,
            _ => return None,
        };
        let weight = parts.find_map(|part| part.strip_prefix("q="));
        let weight = weight.map_or(1.0, |weight| weight.parse::<f32>().unwrap_or(0.0));
        (weight > 0.0).then_some((weight, language))
    });
    let best = supported.reduce(|best, next| if next.0 > best.0 { next } else { best });
    best.map_or(Language::English, |(_, language)| language)
}

/// `Last-Event-ID`: the last event the client received.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LastEventId(pub(crate) Option<u64>);

impl FromParts for LastEventId {
    fn describe(operation: &mut Operation<'_>) {
        let what = "The last event the client received: stored events since then are sent first.";
        operation.header("Last-Event-ID", what, &json!({"type": "integer", "minimum": 0, "format": "int64"}));
    }

    fn from_parts(parts: &mut Parts, _: &App) -> Result<Self, Problem> {
        let Some(value) = parts.headers.get("last-event-id") else { return Ok(Self(None)) };
        // A browser that has received no event yet may send an empty value.
        let text = value.to_str().unwrap_or("?").trim();
        if text.is_empty() {
            return Ok(Self(None));
        }
        let number = text.parse().ok().filter(|id| i64::try_from(*id).is_ok());
        number
            .map(|id| Self(Some(id)))
            .ok_or_else(|| Problem::new(Code::INVALID_REQUEST, "the header `Last-Event-ID` is not the id of an event"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_with_and_without_quotes() {
        assert_eq!(unquote("abc").as_deref(), Some("abc"));
        assert_eq!(unquote("\"abc\"").as_deref(), Some("abc"));
        assert_eq!(unquote("\"a\\\"b\\\\\"").as_deref(), Some("a\"b\\"));
        for broken in ["\"abc", "\"a\"b", "\"a\\"] {
            assert_eq!(unquote(broken), None, "{broken}");
        }
    }

    #[test]
    fn preferences_are_read_and_unknown_ones_passed_over() {
        let read = |lines: &[&str]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append("prefer", line.parse().unwrap());
            }
            Prefer::from_headers(&headers)
        };
        let wait = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(read(&["respond-async"]), Prefer { respond_async: true, wait: None });
        assert_eq!(read(&["Respond-Async; x=1, wait = 5"]), Prefer { respond_async: true, wait: wait(5) });
        assert_eq!(read(&["wait=\"7\"", "wait=9, handling=lenient"]), Prefer { respond_async: false, wait: wait(7) });
        assert_eq!(read(&["wait=x", "respond-asynchronously", "wait=99999999"]).wait, Some(MAX_WAIT));
        assert_eq!(read(&["respond-async, wait=5"]).applied_header().as_deref(), Some("respond-async, wait=5"));
        assert_eq!(read(&["wait=soon"]), Prefer::default());
    }

    #[test]
    fn the_language_wanted_most_is_spoken() {
        for (value, language) in [
            ("", Language::English),
            ("zh", Language::Chinese),
            ("zh-CN,zh;q=0.9,en;q=0.8", Language::Chinese),
            ("en, zh;q=0.5", Language::English),
            ("fr, zh;q=0.2, en;q=0.1", Language::Chinese),
            ("zh;q=0", Language::English),
            ("de", Language::English),
        ] {
            assert_eq!(preferred_language(value), language, "{value}");
        }
    }
}

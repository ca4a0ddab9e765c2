//! What requests say in headers: an idempotency key, how long they wait, their trace, their language, what they heard last.
//!
//! In: headers. Out: values, or a refusal where guessing would do harm. A preference nobody knows is passed over, as the
//! standard asks.

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

/// The longest a request waits because it asked to.
const MAX_WAIT: Duration = Duration::from_secs(600);

/// `Idempotency-Key`: the client's word that a repetition is the same request.
#[derive(Debug)]
pub(crate) struct IdempotencyHeader(pub(crate) Option<IdempotencyKey>);

impl FromParts for IdempotencyHeader {
    fn describe(operation: &mut Operation<'_>) {
        let schema = json!({"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+( +[!-~]+)*$"});
        let what = "The client's word that a repetition is the same request: it has one effect, and the same answer for a \
                    day. With or without quotes.";
        operation.header("Idempotency-Key", what, &schema);
    }

    fn from_parts(parts: &mut Parts, _: &App) -> Result<Self, Problem> {
        let mut values = parts.headers.get_all("idempotency-key").iter();
        let Some(value) = values.next() else { return Ok(Self(None)) };
        let refused = |why: &str| Problem::new(Code::INVALID_KEY, format!("the header `Idempotency-Key` {why}"));
        if values.next().is_some() {
            return Err(refused("is there more than once"));
        }
        let text = value.to_str().map_err(|_| refused("has characters beyond ASCII"))?;
        let key = unquote(text).ok_or_else(|| refused("begins with a quote that does not end"))?;
        IdempotencyKey::new(key).map(|key| Self(Some(key))).map_err(|wrong| refused(&format!("is no key: {wrong}")))
    }
}

/// The text of a quoted string of a header, or the text as it is.
fn unquote(text: &str) -> Option<String> {
    let Some(rest) = text.trim().strip_prefix('"') else { return Some(text.trim().into()) };
    let (mut key, mut letters) = (String::new(), rest.chars());
    loop {
        match letters.next()? {
            '"' => return letters.next().is_none().then_some(key),
            '\\' => key.push(letters.next()?),
            letter => key.push(letter),
        }
    }
}

/// `Prefer`: how long the client waits for an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Prefer {
    /// It does not wait.
    pub(crate) respond_async: bool,
    /// It waits this long, and then takes a promise.
    pub(crate) wait: Option<Duration>,
}

impl FromParts for Prefer {
    fn describe(operation: &mut Operation<'_>) {
        let what = "`respond-async`: answer 202 at once and go on alone. `wait=N`: wait up to N seconds, also for a person, \
                    before that.";
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
            // What stands behind `;` are parameters; none of these preferences has any.
            let (word, value) =
                preference.split(';').next().and_then(|word| word.split_once('=')).unwrap_or((preference, ""));
            match word.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
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

    /// What `Preference-Applied` says when it was heeded.
    pub(crate) fn applied_header(self) -> Option<String> {
        let words = [
            self.respond_async.then(|| "respond-async".to_owned()),
            self.wait.map(|wait| format!("wait={}", wait.as_secs())),
        ];
        let words: Vec<String> = words.into_iter().flatten().collect();
        (!words.is_empty()).then(|| words.join(", "))
    }
}

/// `traceparent` and `tracestate`: the trace the request belongs to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trace(pub(crate) Option<TraceContext>);

impl FromParts for Trace {
    fn describe(operation: &mut Operation<'_>) {
        let what = "The trace the request belongs to (W3C Trace Context). One that cannot be read is passed over.";
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
        let said = parts.headers.get(header::ACCEPT_LANGUAGE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        Ok(Self(preferred_language(said)))
    }
}

/// Of the languages there are, the one that is wanted most.
fn preferred_language(said: &str) -> Language {
    let wanted = said.split(',').filter_map(|range| {
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
    let most = wanted.reduce(|best, next| if next.0 > best.0 { next } else { best });
    most.map_or(Language::English, |(_, language)| language)
}

/// `Last-Event-ID`: the last event a listener has heard.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LastEventId(pub(crate) Option<u64>);

impl FromParts for LastEventId {
    fn describe(operation: &mut Operation<'_>) {
        let what = "The last event that was heard: what is kept since then is told first.";
        operation.header("Last-Event-ID", what, &json!({"type": "integer", "minimum": 0, "format": "int64"}));
    }

    fn from_parts(parts: &mut Parts, _: &App) -> Result<Self, Problem> {
        let Some(said) = parts.headers.get("last-event-id") else { return Ok(Self(None)) };
        // A browser that has heard nothing yet may send it empty.
        let text = said.to_str().unwrap_or("?").trim();
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
        for (said, language) in [
            ("", Language::English),
            ("zh", Language::Chinese),
            ("zh-CN,zh;q=0.9,en;q=0.8", Language::Chinese),
            ("en, zh;q=0.5", Language::English),
            ("fr, zh;q=0.2, en;q=0.1", Language::Chinese),
            ("zh;q=0", Language::English),
            ("de", Language::English),
        ] {
            assert_eq!(preferred_language(said), language, "{said}");
        }
    }
}

//! Classifies failed model requests by HTTP status and error body.
//!
//! In: a status and a body, or an error inside a stream. Out: a [`ModelError`], and whether a retry may help. Both
//! providers, and compatible ones, send `{"error": {"type", "code", "message"}}`. A key never gets into an error
//! message.

use serde_json::Value;

use toolhub_core::json::{self, JsonLimits};
use toolhub_net::Secret;

use super::{ModelError, ModelFault};

/// A provider's error message is truncated to this.
const MAX_MESSAGE_CHARS: usize = 300;
/// Fragments of a key of this length are redacted too.
const MIN_KEY_FRAGMENT_CHARS: usize = 8;

/// Error types and codes that mean a rate limit.
const RATE_LIMIT_TYPES: [&str; 2] = ["rate_limit_error", "rate_limit_exceeded"];
/// Error types and codes for which a retry does not help.
const PERMANENT_ERROR_TYPES: [&str; 7] = [
    "invalid_request_error",
    "authentication_error",
    "billing_error",
    "permission_error",
    "not_found_error",
    "request_too_large",
    "context_length_exceeded",
];

/// Why one attempt failed.
#[derive(Debug)]
pub(super) struct AttemptError {
    pub(super) error: ModelError,
    /// Whether the same request may succeed later.
    pub(super) retryable: bool,
    /// The delay that the provider asks for.
    pub(super) retry_after: Option<std::time::Duration>,
}

impl AttemptError {
    /// A failure for which a retry does not help.
    pub(super) fn permanent(fault: ModelFault, message: impl Into<String>) -> Self {
        Self { error: ModelError::new(fault, message), retryable: false, retry_after: None }
    }

    /// A failure for which a retry may help.
    pub(super) fn transient(fault: ModelFault, message: impl Into<String>) -> Self {
        Self { retryable: true, ..Self::permanent(fault, message) }
    }
}

/// Classifies a response with an error status.
pub(super) fn from_status(status: u16, body: &str, key: Option<&Secret>) -> AttemptError {
    let mut parsed: Value = json::parse(body.as_bytes(), JsonLimits::default()).unwrap_or_default();
    // Gemini wraps its error in a list.
    if let Some(first) = parsed.get_mut(0) {
        parsed = first.take();
    }
    let detail = error_message(&parsed).map_or_else(|| plain_text_body(body), |text| Some(text.to_owned()));
    let message = match detail {
        Some(detail) => format!("the model provider returned {status}: {}", sanitize_message(&detail, key)),
        None => format!("the model provider returned {status}"),
    };
    let (fault, retryable) = match status {
        300..400 => {
            let message = format!("the model provider returned {status}: redirects are not followed");
            let mut failure = AttemptError::permanent(ModelFault::Refused, message);
            failure.error.status = Some(status);
            return failure;
        }
        // A retry does not help when the account has no credit left.
        429 if error_text(&parsed, "code") == Some("insufficient_quota") => (ModelFault::RateLimited, false),
        429 => (ModelFault::RateLimited, true),
        500.. => (ModelFault::Failed, true),
        _ => (ModelFault::Refused, false),
    };
    AttemptError { error: ModelError::new(fault, message).status(status), retryable, retry_after: None }
}

/// Classifies an error that came inside a response, after its success status, by its type and code.
pub(super) fn from_error_event(event: &Value, key: Option<&Secret>) -> AttemptError {
    let names = [error_text(event, "type").unwrap_or_default(), error_text(event, "code").unwrap_or_default()];
    let number = error_field(event, "code").and_then(Value::as_u64).unwrap_or_default();
    let is_one_of = |known: &[&str]| names.iter().any(|name| known.contains(name));
    let (fault, retryable) = if number == 429 || is_one_of(&RATE_LIMIT_TYPES) {
        (ModelFault::RateLimited, true)
    } else if (400..500).contains(&number) || is_one_of(&PERMANENT_ERROR_TYPES) {
        (ModelFault::Refused, false)
    } else {
        (ModelFault::Failed, true)
    };
    let detail = error_message(event).map(|text| format!(": {}", sanitize_message(text, key))).unwrap_or_default();
    let message = format!("the model provider aborted its response{detail}");
    AttemptError { error: ModelError::new(fault, message), retryable, retry_after: None }
}

/// The provider's error text, in any of the known places.
fn error_message(body: &Value) -> Option<&str> {
    let text = error_field(body, "message").or_else(|| body.get("error")).or_else(|| body.get("detail"));
    text.and_then(Value::as_str).filter(|text| !text.trim().is_empty())
}

fn error_text<'a>(body: &'a Value, name: &str) -> Option<&'a str> {
    error_field(body, name).and_then(Value::as_str)
}

/// A field of the error object, or of the body if it has no error object.
fn error_field<'a>(body: &'a Value, name: &str) -> Option<&'a Value> {
    body.get("error").filter(|error| error.is_object()).unwrap_or(body).get(name)
}

/// A body that is plain text: no HTML and no JSON.
fn plain_text_body(body: &str) -> Option<String> {
    let text = body.trim();
    (!text.is_empty() && !text.starts_with(['<', '{', '['])).then(|| text.to_owned())
}

/// One short line with keys redacted.
pub(super) fn sanitize_message(text: &str, key: Option<&Secret>) -> String {
    let key = key.and_then(|key| key.read().ok());
    let key = key.as_deref();
    let mut line = String::new();
    // Checked word by word: a key contains no whitespace.
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()) {
        if line.chars().count() > MAX_MESSAGE_CHARS {
            line.push('…');
            break;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        match contains_key_fragment(word, key) {
            true => line.push_str("••••"),
            false => line.extend(word.chars().take(MAX_MESSAGE_CHARS)),
        }
    }
    line
}

fn contains_key_fragment(word: &str, key: Option<&str>) -> bool {
    let core = word.trim_start_matches(|c: char| !c.is_alphanumeric());
    if core.starts_with("sk-") || word.contains("***") {
        return true;
    }
    let Some(key) = key else { return false };
    let chars: Vec<char> = key.chars().collect();
    if chars.len() <= MIN_KEY_FRAGMENT_CHARS {
        return word.contains(key);
    }
    chars.windows(MIN_KEY_FRAGMENT_CHARS).any(|fragment| word.contains(&fragment.iter().collect::<String>()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(sanitize_message(text, Some(&Secret::new("topsecret-0123456789"))), expected);
    }

    #[test]
    fn no_part_of_a_key_is_repeated() {
        check("Incorrect key topsecret-0123456789.", "Incorrect key ••••");
        check("Incorrect key 'topsecret-01…' given", "Incorrect key •••• given");
        check("Incorrect API key: sk-abc***xyz!\r\n\tSee \u{1b}[31mhelp", "Incorrect API key: •••• See [31mhelp");
        check("the secret of success", "the secret of success");
    }

    #[test]
    fn a_message_is_one_line_of_bounded_length() {
        let long = sanitize_message(&"word ".repeat(10_000), None);
        assert!(long.chars().count() < MAX_MESSAGE_CHARS + 10 && long.ends_with('…'), "{long}");
        let word = sanitize_message(&"x".repeat(100_000), None);
        assert!(word.chars().count() <= MAX_MESSAGE_CHARS, "{word}");
    }

    #[test]
    fn an_error_inside_an_answer_says_by_its_names_whether_asking_again_helps() {
        let check = |error: Value, fault, retryable| {
            let failure = from_error_event(&json!({ "error": error }), None);
            assert_eq!((failure.error.fault, failure.retryable), (fault, retryable), "{error}");
        };
        check(json!({"type": "tokens", "code": "rate_limit_exceeded"}), ModelFault::RateLimited, true);
        check(json!({"type": "rate_limit_error"}), ModelFault::RateLimited, true);
        check(json!({"code": 429}), ModelFault::RateLimited, true);
        check(json!({"type": "invalid_request_error", "code": "context_length_exceeded"}), ModelFault::Refused, false);
        check(json!({"code": 422}), ModelFault::Refused, false);
        check(json!({"type": "overloaded_error"}), ModelFault::Failed, true);
        check(json!({"code": 502}), ModelFault::Failed, true);
        check(json!("internal error"), ModelFault::Failed, true);
    }

    #[test]
    fn statuses_say_whether_asking_again_helps() {
        let check = |status, body: Value, fault, retryable, detail: &str| {
            let failure = from_status(status, &body.to_string(), None);
            assert_eq!((failure.error.fault, failure.retryable), (fault, retryable), "{status}");
            assert!(failure.error.message.contains(detail), "{}", failure.error.message);
            assert_eq!(failure.error.status, Some(status));
        };
        let error = |message: &str| json!({"error": {"message": message}});
        check(400, error("too long"), ModelFault::Refused, false, ": too long");
        check(400, json!([error("in a list")]), ModelFault::Refused, false, ": in a list");
        check(401, json!({"error": "no key"}), ModelFault::Refused, false, ": no key");
        check(404, json!({"detail": "no model"}), ModelFault::Refused, false, ": no model");
        check(422, json!({"message": "what?"}), ModelFault::Refused, false, ": what?");
        check(307, json!({}), ModelFault::Refused, false, "redirects are not followed");
        check(429, error("slow down"), ModelFault::RateLimited, true, ": slow down");
        check(429, json!({"error": {"code": "insufficient_quota"}}), ModelFault::RateLimited, false, "429");
        check(500, json!({}), ModelFault::Failed, true, "returned 500");
        check(529, error("Overloaded"), ModelFault::Failed, true, ": Overloaded");
    }
}

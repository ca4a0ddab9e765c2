//! Parses what programs write to stdout. Pure: bytes in, a response or a protocol error out.
//!
//! A one-shot program writes one JSON value, which is its output; if its exit code is not 0, an object with `error`.
//! A long-running program writes one line per request: `{"id": …, "result": …, "state": …}` or `{"id": …, "error": …}`, preceded by
//! any number of `{"progress": …}` lines.

use serde::de::IgnoredAny;
use serde_json::{Map, Value};
use toolhub_core::{
    Effect, ErrorKind, ToolError,
    json::{self, JsonError, JsonLimits},
};

use super::stderr::printable;
use crate::secret_mask::SecretMask;

/// One line of a long-running program.
#[derive(Debug, PartialEq)]
pub(super) enum ResponseLine {
    /// A progress report.
    Progress { message: String, fraction: Option<f64> },
    /// The response that completes the request.
    Response(Response),
}

/// The response to one request.
#[derive(Debug, PartialEq)]
pub(super) struct Response {
    pub(super) id: Option<Value>,
    pub(super) result: Result<Value, ProgramError>,
    /// All other members; the state is among them, under the name that the tool uses.
    pub(super) members: Map<String, Value>,
}

/// An error that the program reported itself.
#[derive(Debug, PartialEq)]
pub(super) struct ProgramError {
    kind: ErrorKind,
    message: String,
    effect: Option<Effect>,
}

/// How the output of a program violates the protocol.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ProtocolError {
    #[error("it wrote nothing to stdout; it must write its result there as JSON")]
    Empty,
    #[error(
        "its stdout is not JSON ({reason}) and begins with `{prefix}`; write only JSON to stdout, and everything else to stderr"
    )]
    NotJson { prefix: String, reason: String },
    #[error(
        "its stdout begins with `{prefix}` and only the last line is JSON; write only JSON to stdout, and everything else to stderr"
    )]
    LeadingText { prefix: String },
    #[error("its JSON output has more than {limit} values; make it write less")]
    TooManyValues { limit: usize },
    #[error("its JSON output is truncated")]
    Truncated,
    #[error("it wrote more than one JSON value; it must write exactly one and exit")]
    MultipleValues,
    #[error(
        "it wrote `{prefix}` after its JSON value; write exactly one JSON value to stdout, and everything else to stderr"
    )]
    TrailingText { prefix: String },
    #[error("its response is not a JSON object; respond to each line with an object that has `result` or `error`")]
    NotAnObject,
    #[error("its response has neither `result` nor `error`; it needs one of them")]
    NoResult,
    #[error(
        "its response has id {received}, but the request has id {expected}; respond to each request once, with the request's `id`"
    )]
    WrongId { received: String, expected: u64 },
    #[error("its response has no `id`, but earlier ones had; respond to each request once, with the request's `id`")]
    NoId,
}

/// How much of the program's output an error message quotes.
const MAX_EXCERPT_CHARS: usize = 80;

/// Parses the complete output of a program that exited with code 0.
pub(super) fn parse_output(bytes: &[u8]) -> Result<Value, ProtocolError> {
    if bytes.trim_ascii().is_empty() {
        return Err(ProtocolError::Empty);
    }
    check_limits(bytes)?;
    let mut values = serde_json::Deserializer::from_slice(bytes).into_iter::<Value>();
    match values.next() {
        None => Err(ProtocolError::Empty),
        Some(Err(error)) if error.is_eof() => Err(ProtocolError::Truncated),
        Some(Err(error)) => Err(not_json(bytes, &error)),
        Some(Ok(value)) => {
            let rest = bytes[values.byte_offset()..].trim_ascii();
            // Only whether it is JSON matters; it is not kept.
            let second = serde_json::Deserializer::from_slice(rest).into_iter::<IgnoredAny>().next();
            match (rest, second) {
                ([], _) => Ok(value),
                (_, Some(Ok(_))) => Err(ProtocolError::MultipleValues),
                // The scalar was only the beginning of a line of text, such as `1 file read`.
                _ if !value.is_object() && !value.is_array() => Err(leading_text(bytes)),
                (rest, _) => Err(ProtocolError::TrailingText { prefix: excerpt(rest) }),
            }
        }
    }
}

/// Parses the error that a program wrote before it exited with a nonzero code.
pub(super) fn parse_error(bytes: &[u8]) -> Option<ProgramError> {
    let Ok(Value::Object(mut members)) = json::parse(bytes, JsonLimits::default()) else { return None };
    members.remove("error").and_then(ProgramError::parse)
}

/// Parses one line of a long-running program.
pub(super) fn parse_line(bytes: &[u8]) -> Result<ResponseLine, ProtocolError> {
    check_limits(bytes)?;
    let value: Value = serde_json::from_slice(bytes).map_err(|error| match error.is_eof() {
        true if !bytes.trim_ascii().is_empty() => ProtocolError::Truncated,
        _ => not_json(bytes, &error),
    })?;
    let Value::Object(mut members) = value else { return Err(ProtocolError::NotAnObject) };
    let error = members.remove("error").and_then(ProgramError::parse);
    let result = match (error, members.remove("result")) {
        (Some(error), _) => Err(error),
        (None, Some(result)) => Ok(result),
        (None, None) => return members.remove("progress").map(parse_progress).ok_or(ProtocolError::NoResult),
    };
    let id = members.remove("id").filter(|id| !id.is_null());
    Ok(ResponseLine::Response(Response { id, result, members }))
}

/// Refuses output that takes too much memory once parsed.
fn check_limits(bytes: &[u8]) -> Result<(), ProtocolError> {
    match json::count_values(bytes, JsonLimits::default()) {
        Err(JsonError::TooManyValues { limit }) => Err(ProtocolError::TooManyValues { limit }),
        // The parser names the place where it is nested too deeply.
        _ => Ok(()),
    }
}

fn parse_progress(value: Value) -> ResponseLine {
    match value {
        Value::Object(members) => {
            let message = members.get("message").and_then(Value::as_str).unwrap_or_default().to_owned();
            ResponseLine::Progress { message, fraction: members.get("fraction").and_then(Value::as_f64) }
        }
        Value::Number(number) => ResponseLine::Progress { message: String::new(), fraction: number.as_f64() },
        Value::String(message) => ResponseLine::Progress { message, fraction: None },
        other => ResponseLine::Progress { message: other.to_string(), fraction: None },
    }
}

impl Response {
    /// Checks that the response belongs to this request. The id is optional until the program has echoed one (`echoes_ids`).
    pub(super) fn check_id(&self, expected: u64, echoes_ids: bool) -> Result<(), ProtocolError> {
        match &self.id {
            Some(id) if *id == expected => Ok(()),
            Some(id) => Err(ProtocolError::WrongId { received: excerpt(id.to_string().as_bytes()), expected }),
            None if echoes_ids => Err(ProtocolError::NoId),
            None => Ok(()),
        }
    }
}

impl ProgramError {
    /// Parses `"text"`, or `{"message": "text", "kind": "…", "effect": "…"}`. `null` means no error.
    fn parse(error: Value) -> Option<Self> {
        let members = match error {
            Value::Null => return None,
            Value::Object(members) => members,
            Value::String(message) => return Some(Self { kind: ErrorKind::ToolError, message, effect: None }),
            other => return Some(Self { kind: ErrorKind::ToolError, message: other.to_string(), effect: None }),
        };
        let text = |name| members.get(name).and_then(Value::as_str);
        let kind = match text("kind") {
            Some("refused") => ErrorKind::ToolRefused,
            Some(name) => {
                ErrorKind::TABLE.iter().find(|row| row.name == name).map_or(ErrorKind::ToolError, |row| row.kind)
            }
            None => ErrorKind::ToolError,
        };
        let effect = match text("effect") {
            Some("none") => Some(Effect::None),
            Some("done") => Some(Effect::Done),
            Some(_) => Some(Effect::Unknown),
            // A refusal has no effect.
            None => (kind == ErrorKind::ToolRefused).then_some(Effect::None),
        };
        let message = text("message").map_or_else(|| "the program gave no message".into(), String::from);
        Some(Self { kind, message, effect })
    }
}

impl ProgramError {
    /// The same error without secrets.
    pub(super) fn masked(mut self, secrets: &SecretMask) -> Self {
        self.message = secrets.text(self.message).into_owned();
        self
    }
}

impl From<ProgramError> for ToolError {
    fn from(ProgramError { kind, message, effect }: ProgramError) -> Self {
        let error = Self::with_kind(kind, message);
        match effect {
            Some(effect) => error.effect(effect),
            None => error,
        }
    }
}

fn not_json(bytes: &[u8], error: &serde_json::Error) -> ProtocolError {
    let lines = bytes.trim_ascii().split(|byte| *byte == b'\n');
    let last = lines.clone().next_back().unwrap_or_default();
    if lines.count() > 1 && serde_json::from_slice::<IgnoredAny>(last).is_ok() {
        return leading_text(bytes);
    }
    ProtocolError::NotJson { prefix: excerpt(bytes), reason: error.to_string() }
}

fn leading_text(bytes: &[u8]) -> ProtocolError {
    ProtocolError::LeadingText { prefix: excerpt(bytes) }
}

/// The beginning of the program's output, on one line.
pub(super) fn excerpt(bytes: &[u8]) -> String {
    let bytes = bytes.trim_ascii();
    let text = printable(&bytes[..bytes.len().min(4 * MAX_EXCERPT_CHARS)]).replace(['\n', '\t'], " ");
    if text.chars().count() > MAX_EXCERPT_CHARS {
        text.chars().take(MAX_EXCERPT_CHARS).chain(['…']).collect()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn one_value_is_an_output_whatever_it_is() {
        for (text, value) in
            [("{\"a\": 1}\n", json!({"a": 1})), (" 7 ", json!(7)), ("null", json!(null)), ("\"x\"", json!("x"))]
        {
            assert_eq!(parse_output(text.as_bytes()), Ok(value), "{text}");
        }
    }

    #[test]
    fn each_way_to_spoil_an_output_has_its_own_words() {
        let prefix = |text: &str| text.to_owned();
        for (text, error) in [
            ("", ProtocolError::Empty),
            (" \n", ProtocolError::Empty),
            ("{\"a\": [1, ", ProtocolError::Truncated),
            ("{\"a\": 1}\n{\"b\": 2}", ProtocolError::MultipleValues),
            ("{\"a\": 1}\nbye", ProtocolError::TrailingText { prefix: prefix("bye") }),
            ("loading\n{\"a\": 1}", ProtocolError::LeadingText { prefix: prefix("loading {\"a\": 1}") }),
            ("3 files\n{\"a\": 1}", ProtocolError::LeadingText { prefix: prefix("3 files {\"a\": 1}") }),
        ] {
            assert_eq!(parse_output(text.as_bytes()), Err(error), "{text}");
        }
        for text in ["hello", "{'a': 1}", "\u{1b}[31mred", "NaN"] {
            assert!(matches!(parse_output(text.as_bytes()), Err(ProtocolError::NotJson { .. })), "{text}");
        }
        assert!(matches!(parse_output(b"\xff\xfe"), Err(ProtocolError::NotJson { .. })));
        assert!(!excerpt("\u{1b}[31mred".as_bytes()).contains('\u{1b}'));
    }

    #[test]
    fn a_line_is_progress_or_an_answer() {
        let progress = |message: &str, fraction| ResponseLine::Progress { message: message.into(), fraction };
        assert_eq!(parse_line(br#"{"progress": "half"}"#), Ok(progress("half", None)));
        assert_eq!(
            parse_line(br#"{"progress": {"message": "half", "fraction": 0.5}}"#),
            Ok(progress("half", Some(0.5)))
        );
        assert_eq!(parse_line(br#"{"progress": 0.5}"#), Ok(progress("", Some(0.5))));
        let Ok(ResponseLine::Response(response)) =
            parse_line(br#"{"id": 3, "result": null, "error": null, "state": {"n": 1}}"#)
        else {
            panic!("not a response");
        };
        assert_eq!((&response.id, &response.result), (&Some(json!(3)), &Ok(json!(null))));
        assert_eq!(response.members["state"], json!({"n": 1}));
        assert_eq!(response.check_id(3, true), Ok(()));
        assert_eq!(response.check_id(4, false), Err(ProtocolError::WrongId { received: "3".into(), expected: 4 }));
        for (text, error) in [
            ("[1]", ProtocolError::NotAnObject),
            ("{}", ProtocolError::NoResult),
            ("{\"id\": 1, \"res", ProtocolError::Truncated),
        ] {
            assert_eq!(parse_line(text.as_bytes()), Err(error), "{text}");
        }
        assert!(matches!(parse_line(b"oops"), Err(ProtocolError::NotJson { .. })));
        assert!(matches!(parse_line(b""), Err(ProtocolError::NotJson { .. })));
    }

    #[test]
    fn an_error_is_a_text_or_says_more() {
        let parse = |error| ProgramError::parse(error).unwrap();
        let error = |kind, message: &str, effect| ProgramError { kind, message: message.into(), effect };
        assert_eq!(parse(json!("no")), error(ErrorKind::ToolError, "no", None));
        let refused = json!({"kind": "refused", "message": "no such city"});
        assert_eq!(parse(refused), error(ErrorKind::ToolRefused, "no such city", Some(Effect::None)));
        let unreachable = json!({"kind": "upstream_unreachable", "message": "down", "effect": "none"});
        assert_eq!(parse(unreachable), error(ErrorKind::UpstreamUnreachable, "down", Some(Effect::None)));
        let unknown = json!({"kind": "whatever", "message": "m", "effect": "perhaps"});
        assert_eq!(parse(unknown), error(ErrorKind::ToolError, "m", Some(Effect::Unknown)));
        assert_eq!(parse(json!({})).message, "the program gave no message");
        assert_eq!(ProgramError::parse(json!(null)), None);
        // `forbidden` is a decision of the hub; a program cannot report it.
        let forbidden = ToolError::from(parse(json!({"kind": "forbidden", "message": "m"})));
        assert_eq!(forbidden.kind(), ErrorKind::ToolError);
    }
}

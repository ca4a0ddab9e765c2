//! What programs may say, and how it is read. Pure: bytes in, an answer or what is wrong with them out.
//!
//! A program that runs once writes one JSON value, which is its output; if it ends with a code other than 0, an object with `error`.
//! One that lives writes a line for each request: `{"id": …, "result": …, "state": …}` or `{"id": …, "error": …}`, and before it as
//! many `{"progress": …}` as it likes.

use serde_json::{Map, Value};
use toolhub_core::{Effect, ErrorKind, ToolError};

use super::stderr::printable;

/// One line of a program that lives.
#[derive(Debug, PartialEq)]
pub(super) enum ResponseLine {
    /// How far it is.
    Progress { message: String, fraction: Option<f64> },
    /// Its answer.
    Response(Response),
}

/// The answer to one request.
#[derive(Debug, PartialEq)]
pub(super) struct Response {
    pub(super) id: Option<Value>,
    pub(super) result: Result<Value, ProgramError>,
    /// Everything else it holds; the state is in there under the name the tool uses.
    pub(super) members: Map<String, Value>,
}

/// An error in the program's own words.
#[derive(Debug, PartialEq)]
pub(super) struct ProgramError {
    kind: ErrorKind,
    message: String,
    effect: Option<Effect>,
}

/// What is wrong with what a program wrote.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ProtocolError {
    #[error("it wrote nothing to its output; it must write its result there, as JSON")]
    Empty,
    #[error(
        "its output is not JSON ({why}) and begins with `{begins}`; only JSON belongs there, everything else to the error output"
    )]
    NotJson { begins: String, why: String },
    #[error(
        "its output begins with `{begins}`, and only the last line of it is JSON; only JSON belongs there, everything else to the \
         error output"
    )]
    LeadingText { begins: String },
    #[error("its output ends in the middle of the JSON it began")]
    Truncated,
    #[error("it wrote more than one answer; it must write one JSON value and end")]
    MultipleValues,
    #[error(
        "after its answer it wrote `{begins}`; only one JSON value belongs into its output, everything else to the error output"
    )]
    TrailingText { begins: String },
    #[error("its answer is no JSON object; answer each line with an object that has `result`, or `error`")]
    NotAnObject,
    #[error("its answer has neither `result` nor `error`; it needs one of them")]
    NoResult,
    #[error(
        "its answer is to request {told}, and {asked} was asked; it must answer each request once, with the request's `id`"
    )]
    WrongId { told: String, asked: u64 },
    #[error("its answer has no `id`, and those before had; it must answer each request once, with the request's `id`")]
    NoId,
}

/// How much of what a program wrote is shown.
const MAX_EXCERPT_CHARS: usize = 80;

/// Reads the whole output of a program that has ended well.
pub(super) fn parse_output(bytes: &[u8]) -> Result<Value, ProtocolError> {
    if bytes.trim_ascii().is_empty() {
        return Err(ProtocolError::Empty);
    }
    let mut values = serde_json::Deserializer::from_slice(bytes).into_iter::<Value>();
    match values.next() {
        None => Err(ProtocolError::Empty),
        Some(Err(error)) if error.is_eof() => Err(ProtocolError::Truncated),
        Some(Err(error)) => Err(not_json(bytes, &error)),
        Some(Ok(value)) => {
            let rest = bytes[values.byte_offset()..].trim_ascii();
            match (rest, values.next()) {
                ([], _) => Ok(value),
                (_, Some(Ok(_))) => Err(ProtocolError::MultipleValues),
                // A word or a number was only the beginning of a line of text, such as `1 file read`.
                _ if !value.is_object() && !value.is_array() => Err(leading_text(bytes)),
                (rest, _) => Err(ProtocolError::TrailingText { begins: excerpt(rest) }),
            }
        }
    }
}

/// The error a program wrote before it ended with a code that says so.
pub(super) fn parse_error(bytes: &[u8]) -> Option<ProgramError> {
    let Ok(Value::Object(mut members)) = serde_json::from_slice(bytes) else { return None };
    members.remove("error").and_then(ProgramError::parse)
}

/// Reads one line of a program that lives.
pub(super) fn parse_line(bytes: &[u8]) -> Result<ResponseLine, ProtocolError> {
    let value: Value = serde_json::from_slice(bytes).map_err(|error| match error.is_eof() {
        true if !bytes.trim_ascii().is_empty() => ProtocolError::Truncated,
        _ => not_json(bytes, &error),
    })?;
    let Value::Object(mut members) = value else { return Err(ProtocolError::NotAnObject) };
    let error = members.remove("error").and_then(ProgramError::parse);
    let result = match (error, members.remove("result")) {
        (Some(raised), _) => Err(raised),
        (None, Some(result)) => Ok(result),
        (None, None) => return members.remove("progress").map(parse_progress).ok_or(ProtocolError::NoResult),
    };
    let id = members.remove("id").filter(|id| !id.is_null());
    Ok(ResponseLine::Response(Response { id, result, members }))
}

fn parse_progress(said: Value) -> ResponseLine {
    match said {
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
    /// Whether it is an answer to this request, as far as it says. A program that has named ids before is held to them.
    pub(super) fn check_id(&self, asked: u64, named_before: bool) -> Result<(), ProtocolError> {
        match &self.id {
            Some(id) if *id == asked => Ok(()),
            Some(id) => Err(ProtocolError::WrongId { told: excerpt(id.to_string().as_bytes()), asked }),
            None if named_before => Err(ProtocolError::NoId),
            None => Ok(()),
        }
    }
}

impl ProgramError {
    /// `"text"`, or `{"message": "text", "kind": "…", "effect": "…"}`. `null` is no error.
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
            // Whoever refuses has done nothing.
            None => (kind == ErrorKind::ToolRefused).then_some(Effect::None),
        };
        let message = text("message").map_or_else(|| "the program gave no message".into(), String::from);
        Some(Self { kind, message, effect })
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
    if lines.count() > 1 && serde_json::from_slice::<Value>(last).is_ok() {
        return leading_text(bytes);
    }
    ProtocolError::NotJson { begins: excerpt(bytes), why: error.to_string() }
}

fn leading_text(bytes: &[u8]) -> ProtocolError {
    ProtocolError::LeadingText { begins: excerpt(bytes) }
}

/// The beginning of what a program wrote, on one line.
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
        let begins = |text: &str| text.to_owned();
        for (text, bad) in [
            ("", ProtocolError::Empty),
            (" \n", ProtocolError::Empty),
            ("{\"a\": [1, ", ProtocolError::Truncated),
            ("{\"a\": 1}\n{\"b\": 2}", ProtocolError::MultipleValues),
            ("{\"a\": 1}\nbye", ProtocolError::TrailingText { begins: begins("bye") }),
            ("loading\n{\"a\": 1}", ProtocolError::LeadingText { begins: begins("loading {\"a\": 1}") }),
            ("3 files\n{\"a\": 1}", ProtocolError::LeadingText { begins: begins("3 files {\"a\": 1}") }),
        ] {
            assert_eq!(parse_output(text.as_bytes()), Err(bad), "{text}");
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
        let Ok(ResponseLine::Response(answer)) =
            parse_line(br#"{"id": 3, "result": null, "error": null, "state": {"n": 1}}"#)
        else {
            panic!("not an answer");
        };
        assert_eq!((&answer.id, &answer.result), (&Some(json!(3)), &Ok(json!(null))));
        assert_eq!(answer.members["state"], json!({"n": 1}));
        assert_eq!(answer.check_id(3, true), Ok(()));
        assert_eq!(answer.check_id(4, false), Err(ProtocolError::WrongId { told: "3".into(), asked: 4 }));
        for (text, bad) in [
            ("[1]", ProtocolError::NotAnObject),
            ("{}", ProtocolError::NoResult),
            ("{\"id\": 1, \"res", ProtocolError::Truncated),
        ] {
            assert_eq!(parse_line(text.as_bytes()), Err(bad), "{text}");
        }
        assert!(matches!(parse_line(b"oops"), Err(ProtocolError::NotJson { .. })));
        assert!(matches!(parse_line(b""), Err(ProtocolError::NotJson { .. })));
    }

    #[test]
    fn an_error_is_a_text_or_says_more() {
        let read = |error| ProgramError::parse(error).unwrap();
        let plain = |kind, message: &str, effect| ProgramError { kind, message: message.into(), effect };
        assert_eq!(read(json!("no")), plain(ErrorKind::ToolError, "no", None));
        let refused = json!({"kind": "refused", "message": "no such city"});
        assert_eq!(read(refused), plain(ErrorKind::ToolRefused, "no such city", Some(Effect::None)));
        let far = json!({"kind": "upstream_unreachable", "message": "down", "effect": "none"});
        assert_eq!(read(far), plain(ErrorKind::UpstreamUnreachable, "down", Some(Effect::None)));
        let unknown = json!({"kind": "whatever", "message": "m", "effect": "perhaps"});
        assert_eq!(read(unknown), plain(ErrorKind::ToolError, "m", Some(Effect::Unknown)));
        assert_eq!(read(json!({})).message, "the program gave no message");
        assert_eq!(ProgramError::parse(json!(null)), None);
        // Only the hub can know that something is forbidden.
        let pretended = ToolError::from(read(json!({"kind": "forbidden", "message": "m"})));
        assert_eq!(pretended.kind(), ErrorKind::ToolError);
    }
}

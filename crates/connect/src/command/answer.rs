//! What programs may say, and how it is read. Pure: bytes in, an answer or what is wrong with them out.
//!
//! A program that runs once writes one JSON value, which is its output; if it ends with a code other than 0, an object with `error`.
//! One that lives writes a line for each request: `{"id": …, "result": …, "state": …}` or `{"id": …, "error": …}`, and before it as
//! many `{"progress": …}` as it likes.

use serde_json::{Map, Value};
use toolhub_core::{Effect, ErrorKind, ToolError};

use super::stderr::readable;

/// One line of a program that lives.
#[derive(Debug, PartialEq)]
pub(super) enum Line {
    /// How far it is.
    Progress { message: String, fraction: Option<f64> },
    /// Its answer.
    Answer(Answer),
}

/// The answer to one request.
#[derive(Debug, PartialEq)]
pub(super) struct Answer {
    pub(super) id: Option<Value>,
    pub(super) result: Result<Value, Raised>,
    /// Everything else it holds; the state is in there under the name the tool uses.
    pub(super) members: Map<String, Value>,
}

/// An error in the program's own words.
#[derive(Debug, PartialEq)]
pub(super) struct Raised {
    kind: ErrorKind,
    message: String,
    effect: Option<Effect>,
}

/// What is wrong with what a program wrote.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Bad {
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
    Junk { begins: String },
    #[error("its output ends in the middle of the JSON it began")]
    Cut,
    #[error("it wrote more than one answer; it must write one JSON value and end")]
    Two,
    #[error(
        "after its answer it wrote `{begins}`; only one JSON value belongs into its output, everything else to the error output"
    )]
    After { begins: String },
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
const SHOWN: usize = 80;

/// Reads the whole output of a program that has ended well.
pub(super) fn whole(bytes: &[u8]) -> Result<Value, Bad> {
    if bytes.trim_ascii().is_empty() {
        return Err(Bad::Empty);
    }
    let mut values = serde_json::Deserializer::from_slice(bytes).into_iter::<Value>();
    match values.next() {
        None => Err(Bad::Empty),
        Some(Err(error)) if error.is_eof() => Err(Bad::Cut),
        Some(Err(error)) => Err(not_json(bytes, &error)),
        Some(Ok(value)) => {
            let rest = bytes[values.byte_offset()..].trim_ascii();
            match (rest, values.next()) {
                ([], _) => Ok(value),
                (_, Some(Ok(_))) => Err(Bad::Two),
                // A word or a number was only the beginning of a line of text, such as `1 file read`.
                _ if !value.is_object() && !value.is_array() => Err(junk(bytes)),
                (rest, _) => Err(Bad::After { begins: shown(rest) }),
            }
        }
    }
}

/// The error a program wrote before it ended with a code that says so.
pub(super) fn raised(bytes: &[u8]) -> Option<Raised> {
    let Ok(Value::Object(mut members)) = serde_json::from_slice(bytes) else { return None };
    members.remove("error").and_then(Raised::read)
}

/// Reads one line of a program that lives.
pub(super) fn line(bytes: &[u8]) -> Result<Line, Bad> {
    let value: Value = serde_json::from_slice(bytes).map_err(|error| match error.is_eof() {
        true if !bytes.trim_ascii().is_empty() => Bad::Cut,
        _ => not_json(bytes, &error),
    })?;
    let Value::Object(mut members) = value else { return Err(Bad::NotAnObject) };
    let error = members.remove("error").and_then(Raised::read);
    let result = match (error, members.remove("result")) {
        (Some(raised), _) => Err(raised),
        (None, Some(result)) => Ok(result),
        (None, None) => return members.remove("progress").map(progress).ok_or(Bad::NoResult),
    };
    let id = members.remove("id").filter(|id| !id.is_null());
    Ok(Line::Answer(Answer { id, result, members }))
}

fn progress(said: Value) -> Line {
    match said {
        Value::Object(members) => {
            let message = members.get("message").and_then(Value::as_str).unwrap_or_default().to_owned();
            Line::Progress { message, fraction: members.get("fraction").and_then(Value::as_f64) }
        }
        Value::Number(number) => Line::Progress { message: String::new(), fraction: number.as_f64() },
        Value::String(message) => Line::Progress { message, fraction: None },
        other => Line::Progress { message: other.to_string(), fraction: None },
    }
}

impl Answer {
    /// Whether it is an answer to this request, as far as it says. A program that has named ids before is held to them.
    pub(super) fn belongs_to(&self, asked: u64, named_before: bool) -> Result<(), Bad> {
        match &self.id {
            Some(id) if *id == asked => Ok(()),
            Some(id) => Err(Bad::WrongId { told: shown(id.to_string().as_bytes()), asked }),
            None if named_before => Err(Bad::NoId),
            None => Ok(()),
        }
    }
}

impl Raised {
    /// `"text"`, or `{"message": "text", "kind": "…", "effect": "…"}`. `null` is no error.
    fn read(error: Value) -> Option<Self> {
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

impl From<Raised> for ToolError {
    fn from(Raised { kind, message, effect }: Raised) -> Self {
        let error = Self::of(kind, message);
        match effect {
            Some(effect) => error.effect(effect),
            None => error,
        }
    }
}

fn not_json(bytes: &[u8], error: &serde_json::Error) -> Bad {
    let lines = bytes.trim_ascii().split(|byte| *byte == b'\n');
    let last = lines.clone().next_back().unwrap_or_default();
    if lines.count() > 1 && serde_json::from_slice::<Value>(last).is_ok() {
        return junk(bytes);
    }
    Bad::NotJson { begins: shown(bytes), why: error.to_string() }
}

fn junk(bytes: &[u8]) -> Bad {
    Bad::Junk { begins: shown(bytes) }
}

/// The beginning of what a program wrote, on one line.
pub(super) fn shown(bytes: &[u8]) -> String {
    let bytes = bytes.trim_ascii();
    let text = readable(&bytes[..bytes.len().min(4 * SHOWN)]).replace(['\n', '\t'], " ");
    if text.chars().count() > SHOWN { text.chars().take(SHOWN).chain(['…']).collect() } else { text }
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
            assert_eq!(whole(text.as_bytes()), Ok(value), "{text}");
        }
    }

    #[test]
    fn each_way_to_spoil_an_output_has_its_own_words() {
        let begins = |text: &str| text.to_owned();
        for (text, bad) in [
            ("", Bad::Empty),
            (" \n", Bad::Empty),
            ("{\"a\": [1, ", Bad::Cut),
            ("{\"a\": 1}\n{\"b\": 2}", Bad::Two),
            ("{\"a\": 1}\nbye", Bad::After { begins: begins("bye") }),
            ("loading\n{\"a\": 1}", Bad::Junk { begins: begins("loading {\"a\": 1}") }),
            ("3 files\n{\"a\": 1}", Bad::Junk { begins: begins("3 files {\"a\": 1}") }),
        ] {
            assert_eq!(whole(text.as_bytes()), Err(bad), "{text}");
        }
        for text in ["hello", "{'a': 1}", "\u{1b}[31mred", "NaN"] {
            assert!(matches!(whole(text.as_bytes()), Err(Bad::NotJson { .. })), "{text}");
        }
        assert!(matches!(whole(b"\xff\xfe"), Err(Bad::NotJson { .. })));
        assert!(!shown("\u{1b}[31mred".as_bytes()).contains('\u{1b}'));
    }

    #[test]
    fn a_line_is_progress_or_an_answer() {
        let progress = |message: &str, fraction| Line::Progress { message: message.into(), fraction };
        assert_eq!(line(br#"{"progress": "half"}"#), Ok(progress("half", None)));
        assert_eq!(line(br#"{"progress": {"message": "half", "fraction": 0.5}}"#), Ok(progress("half", Some(0.5))));
        assert_eq!(line(br#"{"progress": 0.5}"#), Ok(progress("", Some(0.5))));
        let Ok(Line::Answer(answer)) = line(br#"{"id": 3, "result": null, "error": null, "state": {"n": 1}}"#) else {
            panic!("not an answer");
        };
        assert_eq!((&answer.id, &answer.result), (&Some(json!(3)), &Ok(json!(null))));
        assert_eq!(answer.members["state"], json!({"n": 1}));
        assert_eq!(answer.belongs_to(3, true), Ok(()));
        assert_eq!(answer.belongs_to(4, false), Err(Bad::WrongId { told: "3".into(), asked: 4 }));
        for (text, bad) in [("[1]", Bad::NotAnObject), ("{}", Bad::NoResult), ("{\"id\": 1, \"res", Bad::Cut)] {
            assert_eq!(line(text.as_bytes()), Err(bad), "{text}");
        }
        assert!(matches!(line(b"oops"), Err(Bad::NotJson { .. })));
        assert!(matches!(line(b""), Err(Bad::NotJson { .. })));
    }

    #[test]
    fn an_error_is_a_text_or_says_more() {
        let read = |error| Raised::read(error).unwrap();
        let plain = |kind, message: &str, effect| Raised { kind, message: message.into(), effect };
        assert_eq!(read(json!("no")), plain(ErrorKind::ToolError, "no", None));
        let refused = json!({"kind": "refused", "message": "no such city"});
        assert_eq!(read(refused), plain(ErrorKind::ToolRefused, "no such city", Some(Effect::None)));
        let far = json!({"kind": "upstream_unreachable", "message": "down", "effect": "none"});
        assert_eq!(read(far), plain(ErrorKind::UpstreamUnreachable, "down", Some(Effect::None)));
        let unknown = json!({"kind": "whatever", "message": "m", "effect": "perhaps"});
        assert_eq!(read(unknown), plain(ErrorKind::ToolError, "m", Some(Effect::Unknown)));
        assert_eq!(read(json!({})).message, "the program gave no message");
        assert_eq!(Raised::read(json!(null)), None);
        // Only the hub can know that something is forbidden.
        let pretended = ToolError::from(read(json!({"kind": "forbidden", "message": "m"})));
        assert_eq!(pretended.kind(), ErrorKind::ToolError);
    }
}

//! Parses the envelope of one JSON-RPC message of a server.
//!
//! In: text. Out: the kind of the message with its parts as raw text, or a [`Violation`]. What the parts mean is left to others:
//! reading them into values could need many times their size.

use std::time::Duration;

use rmcp::model::RequestId;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, value::RawValue};

use crate::command::printable;

/// Ids are numbers or short texts.
const MAX_ID_BYTES: usize = 256;
/// How much of an error message is kept, and the maximum size of its data.
const MAX_ERROR_CHARS: usize = 2_000;
const MAX_ERROR_DATA_BYTES: usize = 64 * 1024;

/// A message of a server.
#[derive(Debug)]
pub(crate) enum Incoming<'a> {
    Answer { id: RequestId, result: &'a RawValue },
    Failure { id: Option<RequestId>, failure: JsonRpcFailure },
    Request { id: RequestId, method: String, params: Option<&'a RawValue> },
    Notification { method: String, params: Option<&'a RawValue> },
}

/// A JSON-RPC error, as the server sent it but within limits.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct JsonRpcFailure {
    pub(crate) code: i32,
    /// Cut, and without control characters.
    pub(crate) message: String,
    pub(crate) data: Option<Value>,
}

/// How a server violated the protocol. The texts contain nothing of its messages.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(crate) enum Violation {
    #[error("it wrote a line that is not JSON to stdout; a server must write its logs to stderr")]
    NotJson,
    #[error("it sent a message that is not JSON-RPC 2.0: {0}")]
    NotAMessage(&'static str),
    #[error("it sent a message of more than {limit} bytes; raise `max_message`, or make the server send less")]
    TooLong { limit: usize },
    #[error("it answered request {0}, which was never sent")]
    UnknownId(String),
    #[error("it answered request {0} twice")]
    AnsweredTwice(i64),
    #[error("it answered another request than the one whose response this is")]
    OtherRequest,
    #[error("it sent an error without an id while several requests were waiting for an answer")]
    FailureWithoutId,
    #[error("it used the id of a request again before that was answered")]
    RequestIdInUse,
    #[error("it does not read the replies to its requests, and too many wait to be sent")]
    RepliesUnread,
    #[error("it does not read its input: no byte was accepted for {0:?}")]
    InputBlocked(Duration),
    #[error("it closed its input")]
    InputClosed,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    jsonrpc: Option<String>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: Option<String>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    // A result may be null.
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct ErrorObject<'a> {
    code: i32,
    message: String,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

fn present<'de: 'a, 'a, D: Deserializer<'de>>(from: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

pub(crate) fn parse(text: &str) -> Result<Incoming<'_>, Violation> {
    let message: Envelope<'_> = serde_json::from_str(text).map_err(|error| {
        // The text of the error may quote the message.
        if error.is_data() {
            Violation::NotAMessage("a member is missing, doubled or has the wrong type")
        } else {
            Violation::NotJson
        }
    })?;
    if message.jsonrpc.as_deref() != Some("2.0") {
        return Err(Violation::NotAMessage("`jsonrpc` is not \"2.0\""));
    }
    let id = message.id.map(parse_id).transpose()?;
    match (message.method, message.result, message.error, id) {
        (Some(method), None, None, Some(id)) => Ok(Incoming::Request { id, method, params: message.params }),
        (Some(method), None, None, None) => Ok(Incoming::Notification { method, params: message.params }),
        (None, Some(result), None, Some(id)) => Ok(Incoming::Answer { id, result }),
        (None, None, Some(error), id) => Ok(Incoming::Failure { id, failure: parse_failure(error)? }),
        (None, Some(_), Some(_), _) => Err(Violation::NotAMessage("it has both a result and an error")),
        (None, Some(_), None, None) => Err(Violation::NotAMessage("it has a result but no id")),
        (None, None, None, _) => Err(Violation::NotAMessage("it has neither a method nor a result nor an error")),
        (Some(_), ..) => Err(Violation::NotAMessage("it has both a method and a result or an error")),
    }
}

fn parse_id(raw: &RawValue) -> Result<RequestId, Violation> {
    let text = raw.get();
    let id = (text.len() <= MAX_ID_BYTES).then(|| serde_json::from_str(text).ok()).flatten();
    id.ok_or(Violation::NotAMessage("its id is neither an integer nor a short text"))
}

fn parse_failure(raw: &RawValue) -> Result<JsonRpcFailure, Violation> {
    let error: ErrorObject<'_> = serde_json::from_str(raw.get())
        .map_err(|_| Violation::NotAMessage("its error has no integer `code` or no `message`"))?;
    let message = printable(error.message.as_bytes()).chars().take(MAX_ERROR_CHARS).collect();
    let data = error.data.filter(|data| data.get().len() <= MAX_ERROR_DATA_BYTES);
    Ok(JsonRpcFailure { code: error.code, message, data: data.and_then(|data| serde_json::from_str(data.get()).ok()) })
}

/// A number, also if the server made it a text.
pub(crate) fn number(id: &RequestId) -> Option<i64> {
    match id {
        RequestId::Number(number) => Some(*number),
        RequestId::String(text) => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let kind = match parse(text) {
            Ok(Incoming::Answer { id, result }) => format!("answer {id} {}", result.get()),
            Ok(Incoming::Failure { id, failure }) => format!("failure {id:?} {} {}", failure.code, failure.message),
            Ok(Incoming::Request { id, method, .. }) => format!("request {id} {method}"),
            Ok(Incoming::Notification { method, params }) => {
                format!("notification {method} {}", params.map_or("", RawValue::get))
            }
            Err(violation) => violation.to_string(),
        };
        assert!(kind.contains(expected), "{text}: {kind}");
    }

    #[test]
    fn messages_are_told_apart_by_their_members() {
        check(r#"{"jsonrpc":"2.0","id":1,"result":{"a": 1}}"#, r#"answer 1 {"a": 1}"#);
        check(r#"{"jsonrpc":"2.0","id":"7","result":null}"#, "answer 7 null");
        check(r#"{"jsonrpc":"2.0","id":1,"result":{},"error":null}"#, "answer 1 {}");
        check(
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":-3,"message":"a\u001b"}}"#,
            "failure Some(Number(1)) -3 a\u{fffd}",
        );
        check(r#"{"jsonrpc":"2.0","id":null,"error":{"code":-3,"message":"x"}}"#, "failure None -3 x");
        check(r#"{"jsonrpc":"2.0","id":"a","method":"ping"}"#, "request a ping");
        check(r#"{"jsonrpc":"2.0","method":"n","params":[1]}"#, "notification n [1]");
    }

    #[test]
    fn a_broken_message_is_named_without_its_content() {
        check("listening on s3cr3t", "not JSON");
        check(r#"{"jsonrpc":"2.0","id":1,"resu"#, "not JSON");
        check(r#"[{"jsonrpc":"2.0","id":1,"result":{}}]"#, "not JSON-RPC");
        check(r#"{"id":1,"result":{}}"#, "`jsonrpc` is not");
        check(r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"x"}}"#, "both a result and an error");
        check(r#"{"jsonrpc":"2.0","id":null,"result":{}}"#, "a result but no id");
        check(r#"{"jsonrpc":"2.0","id":1}"#, "neither a method nor");
        check(r#"{"jsonrpc":"2.0","id":1,"method":"m","result":{}}"#, "both a method and");
        check(r#"{"jsonrpc":"2.0","id":[1],"result":{}}"#, "its id is neither");
        check(r#"{"jsonrpc":"2.0","id":1,"id":2,"result":{}}"#, "doubled");
        check(r#"{"jsonrpc":"2.0","id":1,"error":{"code":"s3cr3t","message":"x"}}"#, "no integer `code`");
        check(r#"{"jsonrpc":"2.0","id":1,"error":{"code":1}}"#, "no integer `code` or no `message`");
    }
}

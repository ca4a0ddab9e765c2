//! A message of the client: what the bridge must know of it to pass it on.
//!
//! In: a line. Out: its kind and the few members that become headers or decide what happens when the server is lost. The text itself
//! is passed on as it is; the server judges it.

use serde::{Deserialize, Deserializer};
use serde_json::{Value, value::RawValue};
use toolhub_net::Bytes;

use super::errors::{INVALID_REQUEST, PARSE_ERROR, error_line};

/// The first protocol version without sessions.
pub(super) const MODERN: &str = "2026-07-28";

/// Requests that may be sent again although they may have been handled: they change nothing.
const REPEATABLE: [&str; 18] = [
    "completion/complete",
    "initialize",
    "logging/setLevel",
    "ping",
    "prompts/get",
    "prompts/list",
    "resources/list",
    "resources/read",
    "resources/subscribe",
    "resources/templates/list",
    "resources/unsubscribe",
    "server/discover",
    LISTEN,
    "tasks/cancel",
    "tasks/get",
    "tasks/list",
    "tasks/result",
    "tools/list",
];

/// The request for notifications, which ends only with its client.
pub(super) const LISTEN: &str = "subscriptions/listen";

/// Requests that take little time, so that they need not wait behind calls.
const QUICK: [&str; 10] = [
    "initialize",
    "logging/setLevel",
    "ping",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "server/discover",
    "tasks/cancel",
    "tasks/get",
    "tools/list",
];

/// A message of the client.
#[derive(Debug, Clone)]
pub(super) struct Message {
    pub(super) text: Bytes,
    pub(super) kind: MessageKind,
    /// The protocol version that it names itself, as those of the modern era do.
    pub(super) version: Option<String>,
    /// What it is about, for the header `Mcp-Name`.
    pub(super) name: Option<String>,
    /// The request that it cancels.
    pub(super) cancels: Option<Value>,
    has_idempotency_key: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum MessageKind {
    Request {
        id: Value,
        method: String,
    },
    Notification {
        method: String,
    },
    /// An answer to a request of the server.
    Answer,
}

#[derive(Deserialize)]
struct MessageHead<'a> {
    /// Null is not the same as none.
    #[serde(default, deserialize_with = "some_value")]
    id: Option<Value>,
    #[serde(default)]
    method: Option<String>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
}

fn some_value<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ParamsHead {
    name: Value,
    uri: Value,
    task_id: Value,
    request_id: Value,
    #[serde(rename = "_meta")]
    meta: Value,
}

impl Message {
    /// Reads a line.
    ///
    /// # Errors
    /// The message that answers a line that is not a message.
    pub(super) fn parse(line: Vec<u8>) -> Result<Self, String> {
        let refuse = |code, reason: &str| error_line(&Value::Null, code, reason, None);
        if line.trim_ascii_start().starts_with(b"[") {
            return Err(refuse(INVALID_REQUEST, "batches are not supported; send one message per line"));
        }
        let head: MessageHead<'_> = serde_json::from_slice(&line).map_err(|error| match error.is_data() {
            true => refuse(INVALID_REQUEST, "the line is not a JSON-RPC message"),
            false => refuse(PARSE_ERROR, &format!("the line is not JSON: {error}")),
        })?;
        let params: ParamsHead =
            head.params.and_then(|params| serde_json::from_str(params.get()).ok()).unwrap_or_default();
        let text = |value: &Value| value.as_str().map(String::from);
        let method = head.method.as_deref().unwrap_or_default();
        let name = match method {
            "tools/call" | "prompts/get" => text(&params.name),
            "resources/read" | "resources/subscribe" | "resources/unsubscribe" => text(&params.uri),
            "tasks/get" | "tasks/update" | "tasks/cancel" => text(&params.task_id),
            _ => None,
        };
        let cancels = (method == "notifications/cancelled").then_some(params.request_id);
        let kind = match (head.id, head.method) {
            (Some(id), Some(_)) if !id.is_string() && !id.is_number() => {
                return Err(refuse(INVALID_REQUEST, "the id of a request is a string or a number"));
            }
            (Some(id), Some(method)) => MessageKind::Request { id, method },
            (None, Some(method)) => MessageKind::Notification { method },
            (_, None) => MessageKind::Answer,
        };
        Ok(Self {
            kind,
            version: text(&params.meta["io.modelcontextprotocol/protocolVersion"]),
            name,
            cancels,
            has_idempotency_key: params.meta["dev.toolhub/idempotencyKey"].is_string(),
            text: line.into(),
        })
    }

    pub(super) fn method(&self) -> &str {
        match &self.kind {
            MessageKind::Request { method, .. } | MessageKind::Notification { method } => method,
            MessageKind::Answer => "",
        }
    }

    /// Whether it takes little time.
    pub(super) fn is_quick(&self) -> bool {
        QUICK.contains(&self.method())
    }

    /// Whether it may be sent again although it may have been handled.
    pub(super) fn is_repeatable(&self) -> bool {
        match &self.kind {
            MessageKind::Request { method, .. } => {
                REPEATABLE.contains(&method.as_str()) || method == "tools/call" && self.has_idempotency_key
            }
            // The server handles one at most once: it knows what it has asked, and what runs.
            MessageKind::Notification { .. } | MessageKind::Answer => true,
        }
    }

    /// The arguments of a call.
    pub(super) fn arguments(&self) -> Value {
        #[derive(Deserialize)]
        struct Call {
            params: CallParams,
        }
        #[derive(Deserialize)]
        struct CallParams {
            arguments: Value,
        }
        serde_json::from_slice::<Call>(&self.text).map(|call| call.params.arguments).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Message {
        Message::parse(text.into()).unwrap()
    }

    #[test]
    fn what_may_have_run_is_sent_again_only_if_that_is_safe() {
        let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pay"}}"#;
        assert!(!parse(call).is_repeatable());
        let keyed = call.replace(r#""pay""#, r#""pay","_meta":{"dev.toolhub/idempotencyKey":"a"}"#);
        assert!(parse(&keyed).is_repeatable());
        assert!(parse(&call.replace("tools/call", "tools/list")).is_repeatable());
        assert!(!parse(&call.replace("tools/call", "tasks/update")).is_repeatable());
        assert!(!parse(&call.replace("tools/call", "some/thing")).is_repeatable());
    }

    #[test]
    fn names_and_versions_are_found_in_any_message() {
        let message = parse(
            r#"{"id":"a","method":"resources/read","params":{"name":"x","uri":"u:1","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#,
        );
        assert_eq!((message.name.as_deref(), message.version.as_deref()), (Some("u:1"), Some("2026-07-28")));
        assert_eq!(parse(r#"{"id":1,"method":"tools/call","params":[1]}"#).name, None);
        assert_eq!(parse(r#"{"id":1,"result":{}}"#).kind, MessageKind::Answer);
        assert_eq!(parse(r#"{"id":null,"error":{}}"#).kind, MessageKind::Answer);
        let cancelled = parse(r#"{"method":"notifications/cancelled","params":{"requestId":7}}"#);
        assert_eq!(cancelled.cancels, Some(7.into()));
    }

    #[test]
    fn a_line_that_is_no_message_is_answered() {
        let null_id = r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#;
        for (line, code) in
            [("{", "-32700"), ("nonsense", "-32700"), ("[]", "-32600"), ("7", "-32600"), (null_id, "-32600")]
        {
            let answer = Message::parse(line.into()).unwrap_err();
            assert!(answer.contains(code) && answer.contains(r#""id":null"#), "{line}: {answer}");
        }
    }
}

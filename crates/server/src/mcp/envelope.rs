//! Reads the outside of a message before `rmcp` parses it: that it is one message, and its method.
//!
//! In: the body of a request. Out: its method and the scope that it needs, or a JSON-RPC error.

use std::borrow::Cow;

use axum::{
    http::StatusCode,
    response::{IntoResponse, Response},
};
use rmcp::model::{ClientJsonRpcMessage, ErrorCode, ProtocolVersion};
use serde::{Deserialize, Deserializer, Serialize, de::IgnoredAny};
use serde_json::{Value, json, value::RawValue};
use toolhub_core::json::{self, JsonLimits};

use super::resource_updates::MAX_SUBSCRIPTIONS;
use crate::{json::Json, scope::Scope};

/// The header with the protocol version.
pub(super) const VERSION_HEADER: &str = "mcp-protocol-version";
/// JSON-RPC: the message is not JSON.
const PARSE_ERROR: i32 = -32700;
/// JSON-RPC: the JSON is not a message.
const INVALID_REQUEST: i32 = -32600;

/// The parts of a message that do not depend on its method.
#[derive(Deserialize)]
pub(super) struct Envelope<'a> {
    #[serde(borrow, default)]
    jsonrpc: Option<Cow<'a, str>>,
    /// Absent in a notification; never null.
    #[serde(default, deserialize_with = "present")]
    pub(super) id: Option<MessageId>,
    /// Absent in a response.
    #[serde(borrow, default)]
    pub(super) method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) params: Option<&'a RawValue>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<MessageId>, D::Error> {
    MessageId::deserialize(deserializer).map(Some)
}

/// The id of a request or of its answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum MessageId {
    Number(i64),
    Text(String),
}

/// A message that is answered with an error before it is handled.
#[derive(Debug)]
pub(super) struct Refusal {
    /// The id of the request, if it could be read.
    id: Option<MessageId>,
    status: StatusCode,
    code: i32,
    message: String,
    data: Option<Value>,
}

impl<'a> Envelope<'a> {
    pub(super) fn read(body: &'a [u8], limits: JsonLimits) -> Result<Self, Refusal> {
        if body.trim_ascii_start().starts_with(b"[") {
            return Err(Refusal::bad(INVALID_REQUEST, "batches are not supported; send one message per request"));
        }
        json::count_values(body, limits).map_err(|error| Refusal::bad(PARSE_ERROR, error.to_string()))?;
        let envelope: Self = serde_json::from_slice(body).map_err(|error| match error.is_data() {
            true => Refusal::not_a_message(),
            false => Refusal::bad(PARSE_ERROR, format!("the body is not JSON: {error}")),
        })?;
        let is_response = envelope.result.is_some() || envelope.error.is_some();
        if envelope.method.is_some() == is_response
            || envelope.params.is_some_and(|params| !params.get().starts_with('{'))
        {
            return Err(Refusal::not_a_message().to(envelope.id));
        }
        match envelope.jsonrpc.as_deref() {
            Some("2.0") => Ok(envelope),
            _ => Err(Refusal::bad(INVALID_REQUEST, "`jsonrpc` must be \"2.0\"").to(envelope.id)),
        }
    }

    /// The scope that its sender needs; `None` if any that may list or call is enough.
    pub(super) fn scope(&self) -> Option<Scope> {
        match self.method.as_deref()? {
            "tools/call"
            | "resources/read"
            | "prompts/get"
            | "completion/complete"
            | "tasks/update"
            | "tasks/cancel" => Some(Scope::ToolsCall),
            "initialize" | "server/discover" | "ping" => None,
            method if method.starts_with("notifications/") => None,
            _ => Some(Scope::ToolsRead),
        }
    }

    /// Refuses to listen to nothing, or to too many resources. `rmcp` would acknowledge both, and compares every address with every other.
    pub(super) fn check_subscriptions(&self) -> Result<(), Refusal> {
        #[derive(Deserialize)]
        struct ListenParams {
            notifications: WantedNotifications,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        #[derive(Default)]
        struct WantedNotifications {
            tools_list_changed: Option<bool>,
            prompts_list_changed: Option<bool>,
            resources_list_changed: Option<bool>,
            resource_subscriptions: Option<Vec<IgnoredAny>>,
        }
        if self.method.as_deref() != Some("subscriptions/listen") {
            return Ok(());
        }
        let params = self.params.and_then(|params| serde_json::from_str::<ListenParams>(params.get()).ok());
        // What cannot be read is refused by `rmcp`.
        let Some(ListenParams { notifications: wanted }) = params else { return Ok(()) };
        let resources = wanted.resource_subscriptions.map_or(0, |resources| resources.len());
        let lists = [wanted.tools_list_changed, wanted.prompts_list_changed, wanted.resources_list_changed];
        if resources == 0 && !lists.contains(&Some(true)) {
            return Err(Refusal::bad_params("this filter selects nothing; name what to listen to in `notifications`"));
        }
        if resources > MAX_SUBSCRIPTIONS {
            let reason = format!("a request can listen to at most {MAX_SUBSCRIPTIONS} resources, not {resources}");
            return Err(Refusal::bad_params(&reason));
        }
        Ok(())
    }

    /// The protocol version that the message itself names, as those of the modern era do.
    pub(super) fn version(&self) -> Option<String> {
        #[derive(Deserialize)]
        struct Params {
            #[serde(rename = "_meta")]
            meta: Meta,
        }
        #[derive(Deserialize)]
        struct Meta {
            #[serde(rename = "io.modelcontextprotocol/protocolVersion")]
            version: String,
        }
        serde_json::from_str::<Params>(self.params?.get()).ok().map(|params| params.meta.version)
    }
}

impl Refusal {
    pub(super) fn not_a_message() -> Self {
        Self::bad(
            INVALID_REQUEST,
            "the body is not a JSON-RPC message: `method` must be a string, `id` a string or an integer, `params` an object",
        )
    }

    pub(super) fn no_session() -> Self {
        Self::bad(INVALID_REQUEST, "the header `Mcp-Session-Id` is missing; send `initialize` first")
    }

    /// The protocol version of the request does not have the method.
    pub(super) fn unknown_method(method: &str) -> Self {
        let message = format!("this protocol version has no method `{method}`");
        Self { status: StatusCode::NOT_FOUND, ..Self::bad(ErrorCode::METHOD_NOT_FOUND.0, message) }
    }

    /// The parameters do not fit the method.
    pub(super) fn bad_params(message: &str) -> Self {
        Self::bad(ErrorCode::INVALID_PARAMS.0, message)
    }

    pub(super) fn events_gone() -> Self {
        Self::bad(INVALID_REQUEST, "the events after this `Last-Event-ID` are gone; open a stream without it")
    }

    pub(super) fn initialized_already() -> Self {
        Self::bad(INVALID_REQUEST, "the session is initialized already; open another one without `Mcp-Session-Id`")
    }

    pub(super) fn id_in_use() -> Self {
        Self::bad(INVALID_REQUEST, "a request with this id is still in flight in this session")
    }

    /// A header says something else than the message.
    pub(super) fn header_mismatch(header: &str) -> Self {
        Self::bad(ErrorCode::HEADER_MISMATCH.0, format!("the header `{header}` does not match the message"))
    }

    /// A header that has one value was sent more than once.
    pub(super) fn repeated_header(header: &str) -> Self {
        Self::bad(ErrorCode::HEADER_MISMATCH.0, format!("the header `{header}` was sent more than once"))
    }

    /// The version is not one of those that are known.
    pub(super) fn unknown_version(requested: &str) -> Self {
        let supported: Vec<&str> = ProtocolVersion::KNOWN_VERSIONS.iter().map(ProtocolVersion::as_str).collect();
        let message = format!("the protocol version is not supported; known are {}", supported.join(", "));
        let data = json!({"supported": supported, "requested": requested});
        Self { data: Some(data), ..Self::bad(ErrorCode::UNSUPPORTED_PROTOCOL_VERSION.0, message) }
    }

    fn bad(code: i32, message: impl Into<String>) -> Self {
        Self { id: None, status: StatusCode::BAD_REQUEST, code, message: message.into(), data: None }
    }

    /// The refusal of the request with this id.
    pub(super) fn to(mut self, id: Option<MessageId>) -> Self {
        self.id = id;
        self
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut error = json!({"code": self.code, "message": self.message});
        if let Some(data) = self.data {
            error["data"] = data;
        }
        (self.status, Json(json!({"jsonrpc": "2.0", "id": self.id, "error": error}))).into_response()
    }
}

/// Parses a whole message whose [envelope](Envelope) was read.
pub(super) fn read_message(body: &[u8]) -> Result<ClientJsonRpcMessage, Refusal> {
    serde_json::from_slice(body).map_err(|_| match serde_json::from_slice::<Value>(body) {
        // Half of a surrogate pair, or a number beyond every range: only those who need the value notice.
        Err(error) => Refusal::bad(PARSE_ERROR, format!("the body is not JSON: {error}")),
        Ok(_) => Refusal::bad_params("`params` does not fit the method; `_meta` in it must be an object"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: JsonLimits = JsonLimits { values: 100, depth: 8 };

    #[track_caller]
    fn check(body: &str, expected: Result<Option<Scope>, &str>) {
        let read = Envelope::read(body.as_bytes(), LIMITS).map(|envelope| envelope.scope());
        match (read, expected) {
            (Ok(scope), Ok(expected)) => assert_eq!(scope, expected, "{body}"),
            (Err(refusal), Err(expected)) => assert!(refusal.message.contains(expected), "{body}: {}", refusal.message),
            (read, _) => panic!("{body}: {read:?}"),
        }
    }

    #[test]
    fn a_message_says_what_its_sender_must_be_allowed_to_do() {
        check(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#, Ok(Some(Scope::ToolsCall)));
        check(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#, Ok(Some(Scope::ToolsRead)));
        check(r#"{"jsonrpc":"2.0","id":1,"method":"some/thing"}"#, Ok(Some(Scope::ToolsRead)));
        check(r#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#, Ok(None));
        check(r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#, Ok(None));
        check(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, Ok(None));
        check(r#" [{"jsonrpc":"2.0"}]"#, Err("send one message"));
        check(r#"{"jsonrpc":"2.0""#, Err("not JSON"));
        check(r#"{"jsonrpc":"2.0","method":1}"#, Err("not a JSON-RPC message"));
        check(r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, Err("not a JSON-RPC message"));
        check(r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, Err("not a JSON-RPC message"));
        check(r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}"#, Err("not a JSON-RPC message"));
        check(r#"{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}"#, Err("not a JSON-RPC message"));
        check(r#"{"jsonrpc":"2.0","id":1}"#, Err("not a JSON-RPC message"));
        check(r#"{"jsonrpc":"2.0","id":1,"method":null}"#, Err("not a JSON-RPC message"));
        check(r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, Err("`jsonrpc` must be"));
        check(r#"{"id":1,"method":"ping"}"#, Err("`jsonrpc` must be"));
        check(&format!("{}1{}", "[".repeat(20), "]".repeat(20)).replacen('[', "{\"a\":[", 1), Err("deep"));
    }
}

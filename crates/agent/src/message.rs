//! The messages of a conversation, as they are stored and sent to every model.
//!
//! A tool call and its result stay together: an assistant message with calls is followed by one message with a result
//! for each of them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use smol_str::SmolStr;
use toolhub_core::{
    TraceContext,
    ids::{CallId, Caller, IdempotencyKey},
};

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "role", rename_all = "snake_case", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum Message {
    /// A message of the user.
    User {
        /// The text.
        content: String,
    },
    /// A reply of the model.
    Assistant {
        /// The text; empty if the reply has only calls.
        content: String,
        /// Its reasoning before the calls. Some servers require it to be sent back with the results.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reasoning: String,
        /// The calls it requests.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        calls: Vec<ToolCall>,
    },
    /// The results of the calls of the message before, in their order.
    Tool {
        /// One for each call.
        results: Vec<CallResult>,
    },
}

/// A tool call that a model requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolCall {
    /// The id the model gave it; unique in its message.
    pub id: SmolStr,
    /// The tool's name as the model wrote it.
    pub tool: SmolStr,
    /// The arguments; an empty object if they could not be parsed.
    pub arguments: Value,
    /// What the model wrote, if the arguments could not be parsed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub malformed: Option<String>,
    /// Extra data of the provider that must be sent back unchanged with the call: Gemini puts its signature there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra: Option<Value>,
}

/// The result of a tool call, as the model sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CallResult {
    /// The id the model gave the call.
    pub id: SmolStr,
    /// The id of the call in the hub; none if no call was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<CallId>,
    /// The tool's name as the model wrote it.
    pub tool: SmolStr,
    /// The text for the model.
    pub text: String,
    /// Whether the text is an error.
    #[serde(default)]
    pub is_error: bool,
    /// The images for the model.
    #[serde(rename = "pictures", default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
}

/// An image in a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// The bytes, in base64.
    pub data: String,
    /// Their MIME type, such as `image/png`.
    pub mime_type: String,
}

/// A user's message to an agent, before it is stored as a [`Message`].
#[derive(Debug, Clone, Default)]
pub struct UserMessage {
    /// The text.
    pub content: String,
    /// The agent by name; default: the thread's own agent, or `default`.
    pub agent: Option<SmolStr>,
    /// The idempotency key: a repeated message with the same key starts no second run. It is scoped to the thread, and
    /// kept for a day.
    pub key: Option<IdempotencyKey>,
    /// Who sends it.
    pub caller: Caller,
    /// The trace context of the caller. It is passed on to the model and to the tools of its calls.
    pub trace: Option<TraceContext>,
}

impl<T: Into<String>> From<T> for UserMessage {
    fn from(content: T) -> Self {
        Self { content: content.into(), ..Self::default() }
    }
}

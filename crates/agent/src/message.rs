//! The words of a conversation, as it is kept and as every model is told it.
//!
//! A call and its result are never apart: an answer that asks for calls is followed by one message with a result for each of them.

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
    /// What a person said.
    User {
        /// The text.
        content: String,
    },
    /// What the model said.
    Assistant {
        /// The text; empty where it only asks for calls.
        content: String,
        /// What it thought before it asked for calls. Some servers want to be told it with what came of them.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reasoning: String,
        /// The calls it asks for.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        calls: Vec<AskedCall>,
    },
    /// What came of the calls of the message before, in their order.
    Tool {
        /// One for each call.
        results: Vec<CallResult>,
    },
}

/// A call a model asks for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AskedCall {
    /// The id the model gave it; unique in its message.
    pub id: SmolStr,
    /// The tool's name as the model wrote it.
    pub tool: SmolStr,
    /// What to give the tool; an empty object where that could not be read.
    pub arguments: Value,
    /// What the model wrote instead of arguments that can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub malformed: Option<String>,
    /// What the server put beside the call and wants to be told again with it, as it came: Gemini signs its calls there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra: Option<Value>,
}

/// What came of a call, as the model is told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CallResult {
    /// The id the model gave the call.
    pub id: SmolStr,
    /// The call here; none where none was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<CallId>,
    /// The tool's name as the model wrote it.
    pub tool: SmolStr,
    /// What the model reads.
    pub text: String,
    /// Whether that is why there is no result.
    #[serde(default)]
    pub is_error: bool,
    /// What the model sees.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pictures: Vec<Picture>,
}

/// A picture in a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Picture {
    /// The bytes, in base64.
    pub data: String,
    /// What they are, such as `image/png`.
    pub mime_type: String,
}

/// What a user says to an agent, before it is kept as a [`Message`].
#[derive(Debug, Clone, Default)]
pub struct UserMessage {
    /// The text.
    pub content: String,
    /// Who is spoken to; the thread's own agent, or `default`, where nothing is said.
    pub agent: Option<SmolStr>,
    /// The word that a repetition is the same message. It belongs to the thread, and is remembered for a day.
    pub key: Option<IdempotencyKey>,
    /// Who speaks.
    pub caller: Caller,
    /// Where it stands in a trace that began elsewhere. The model and the tools of its calls are told.
    pub trace: Option<TraceContext>,
}

impl<T: Into<String>> From<T> for UserMessage {
    fn from(content: T) -> Self {
        Self { content: content.into(), ..Self::default() }
    }
}

//! The model interface of the agent loop: a conversation and tools in; text, tool calls, or both out.
//!
//! In: a [`Prompt`]. Out: a [`Reply`], and its text as a stream. Each implementation handles its provider's wire format
//! and the retries of its requests.

mod anthropic;
mod attempt_error;
mod exchange;
mod factory;
mod model_list;
mod openai;
mod provider_client;
mod provider_json;
mod retry;
mod sanitize;
mod settings;
mod tool_calls;

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolhub_core::{BoxFuture, TraceContext, export::Format};

use crate::message::{Message, ToolCall};
pub use anthropic::Anthropic;
pub use factory::{ModelSettings, Provider, UnknownProvider, build_model};
pub use openai::OpenAi;
pub use provider_client::SettingsError;
use settings::settings;
pub use toolhub_net::Secret;

/// Something that continues a conversation.
///
/// An implementation promises: every call of a reply has an id that is unique in that reply, and arguments that are an
/// object; a truncated reply is an error, not a shorter reply; no error contains a key.
pub trait Model: Send + Sync + 'static {
    /// The model's name, as its provider knows it.
    fn name(&self) -> &str;

    /// The format of its tool definitions.
    fn format(&self) -> Format;

    /// Continues the conversation. Dropping the future aborts the request.
    fn ask<'a>(&'a self, prompt: Prompt<'a>, sink: &'a StreamSink) -> BoxFuture<'a, Result<Reply, ModelError>>;

    /// The models that the provider offers; `None` if it has no list. It checks that the provider is reachable and
    /// accepts the key, without a model request.
    fn list_models(&self) -> BoxFuture<'_, Result<Option<Vec<String>>, ModelError>> {
        Box::pin(async { Ok(None) })
    }
}

/// Callback for the parts of a streamed reply.
pub type StreamSink = dyn Fn(StreamPart<'_>) + Send + Sync;

/// A part of a streamed reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamPart<'a> {
    /// The next text delta.
    Text(&'a str),
    /// The request is retried: the text so far is void.
    Restart,
}

/// A request to a model.
#[derive(Debug, Clone, Copy)]
pub struct Prompt<'a> {
    /// The system prompt; may be empty.
    pub system: &'a str,
    /// The conversation so far. It ends with a message of the user or with results.
    pub messages: &'a [Message],
    /// The tools it may call, in the model's own [format](Model::format).
    pub tools: &'a [Value],
    /// Whether it may request calls at all. The tools are sent either way.
    pub may_call: bool,
    /// Whether to stream the text.
    pub stream: bool,
    /// Time limit, including retries.
    pub timeout: Duration,
    /// The trace context to propagate.
    pub trace: Option<&'a TraceContext>,
}

/// A model's reply.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reply {
    /// Its text; may be empty.
    pub text: String,
    /// Its reasoning, if that must be sent back.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reasoning: String,
    /// The calls it requests.
    pub calls: Vec<ToolCall>,
    /// Why it stopped.
    pub stop: StopReason,
    /// The tokens it used.
    pub usage: Usage,
}

/// Why a model stopped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StopReason {
    /// The reply is complete.
    #[default]
    End,
    /// It requests tool calls.
    Calls,
    /// The reply reached the token limit and is truncated.
    Length,
    /// The model or the provider's content filter refused.
    Refusal,
}

impl StopReason {
    /// The name in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::End => "end",
            Self::Calls => "calls",
            Self::Length => "length",
            Self::Refusal => "refusal",
        }
    }
}

/// Token usage, as the provider counts it; 0 if it does not report it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Tokens of the prompt.
    pub input_tokens: u64,
    /// Tokens of the reply.
    pub output_tokens: u64,
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
    }
}

/// Why a model request failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
#[non_exhaustive]
pub struct ModelError {
    /// The kind of failure.
    pub fault: ModelFault,
    /// The HTTP status, if there was a response.
    pub status: Option<u16>,
    /// The text for operators; contains no key and no content of the conversation.
    pub message: String,
}

impl ModelError {
    /// A failure without an HTTP status.
    pub fn new(fault: ModelFault, message: impl Into<String>) -> Self {
        Self { fault, status: None, message: message.into() }
    }

    /// Sets the HTTP status.
    #[must_use]
    pub fn status(mut self, status: u16) -> Self {
        self.status = Some(status);
        self
    }
}

/// The kinds of model failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ModelFault {
    /// The provider cannot be reached.
    Unreachable,
    /// The request timed out.
    Timeout,
    /// The provider's rate limit did not clear within the time limit.
    RateLimited,
    /// The provider rejected the request: a bad key, an unknown model, a conversation that is too long.
    Refused,
    /// The provider failed (5xx), or the client panicked.
    Failed,
    /// The response cannot be parsed, or was truncated.
    Broken,
}

//! A model, as the loop knows it: it is told a conversation and the tools, and answers with text, calls, or both.
//!
//! In: a [`Prompt`]. Out: a [`Reply`], and its text as it comes. How that is said to a provider is each model's own affair; so are
//! retries of requests that did no harm.

mod anthropic;
mod attempt_error;
mod exchange;
mod factory;
mod model_list;
mod openai;
mod provider_client;
mod retry;
mod sanitize;
mod settings;
mod tool_calls;

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolhub_core::{BoxFuture, TraceContext, export::Format};

use crate::message::{AskedCall, Message};
pub use anthropic::Anthropic;
pub use factory::{ModelSettings, Provider, UnknownProvider, build_model};
pub use openai::OpenAi;
pub use provider_client::SettingsError;
use settings::settings;
pub use toolhub_net::Secret;

/// Something that continues a conversation.
///
/// An implementation promises: every call of a reply has an id of its own in that reply and arguments that are an object;
/// a reply that was cut off in the middle is an error, not a shorter reply; no key stands in an error.
pub trait Model: Send + Sync + 'static {
    /// The model's name, as its provider knows it.
    fn name(&self) -> &str;

    /// How it wants to be told of tools.
    fn format(&self) -> Format;

    /// Continues the conversation. Dropped before its end, it stops.
    fn ask<'a>(&'a self, prompt: Prompt<'a>, hear: &'a StreamSink) -> BoxFuture<'a, Result<Reply, ModelError>>;

    /// The models that are to be had where this one is; none where nobody says. It tells whether anybody is there and takes the key,
    /// and asks no model.
    fn list_models(&self) -> BoxFuture<'_, Result<Option<Vec<String>>, ModelError>> {
        Box::pin(async { Ok(None) })
    }
}

/// Whoever listens while a model speaks.
pub type StreamSink = dyn Fn(StreamPart<'_>) + Send + Sync;

/// What is heard while a model speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamPart<'a> {
    /// The next piece of its text.
    Text(&'a str),
    /// It begins anew: what was heard so far does not count.
    Restart,
}

/// What a model is told.
#[derive(Debug, Clone, Copy)]
pub struct Prompt<'a> {
    /// Who it is and what it must know; may be empty.
    pub system: &'a str,
    /// The conversation so far. It ends with a message of the user or with results.
    pub messages: &'a [Message],
    /// The tools it may ask for, in the model's own [format](Model::format).
    pub tools: &'a [Value],
    /// Whether it may ask for calls at all. The tools are told either way.
    pub may_call: bool,
    /// Whether somebody wants to hear the text as it comes.
    pub stream: bool,
    /// How long it may take, retries and all.
    pub timeout: Duration,
    /// The trace it is asked in, to be handed on.
    pub trace: Option<&'a TraceContext>,
}

/// What a model answered.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reply {
    /// Its text; may be empty.
    pub text: String,
    /// What it thought aloud before, where that must be told again.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reasoning: String,
    /// The calls it asks for.
    pub calls: Vec<AskedCall>,
    /// Why it stopped.
    pub stop: Stop,
    /// What it cost.
    pub usage: Usage,
}

/// Why a model stopped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Stop {
    /// It had said everything.
    #[default]
    End,
    /// It asks for calls.
    Calls,
    /// It may not say more: its answer is cut off.
    Length,
    /// It does not want to, or its provider does not let it.
    Refusal,
}

impl Stop {
    /// The word in the API.
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

/// What a model read and wrote, in its own tokens; 0 where it does not say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// What it read.
    pub input_tokens: u64,
    /// What it wrote.
    pub output_tokens: u64,
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
    }
}

/// Why a model did not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
#[non_exhaustive]
pub struct ModelError {
    /// What sort of failure it is.
    pub fault: ModelFault,
    /// The status of HTTP, if there was an answer.
    pub status: Option<u16>,
    /// For operators; no key and no content of the conversation is in it.
    pub message: String,
}

impl ModelError {
    /// A failure.
    pub fn new(fault: ModelFault, message: impl Into<String>) -> Self {
        Self { fault, status: None, message: message.into() }
    }

    /// The status that was answered with.
    #[must_use]
    pub fn status(mut self, status: u16) -> Self {
        self.status = Some(status);
        self
    }
}

/// The sorts of failures of models.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ModelFault {
    /// Nobody answers at its address.
    Unreachable,
    /// It took too long.
    Timeout,
    /// It is asked too often, and said so until the time was over.
    RateLimited,
    /// It does not take the request: a bad key, an unknown model, a conversation that is too long.
    Refused,
    /// It fell over.
    Failed,
    /// What it answered cannot be understood, or was cut off.
    Broken,
}

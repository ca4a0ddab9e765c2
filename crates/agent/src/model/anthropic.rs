//! Model client for Anthropic's messages API.
//!
//! In: a prompt. Out: a reply. `request` builds the request, `response` parses a complete response, `stream` a streamed
//! one.

mod request;
mod response;
mod stream;

use std::time::Duration;

use serde_json::Value;
use toolhub_core::{BoxFuture, export::Format};
use toolhub_net::{HeaderMap, Secret, SecretError, header::HeaderValue};

use super::{
    Model, ModelError, Prompt, Reply, StreamSink,
    attempt_error::AttemptError,
    exchange::{self, Dialect},
    model_list::list_models,
    provider_client::{ProviderClient, SettingsError},
};

/// Anthropic's own API.
const DEFAULT_BASE_URL: &str = "https://api.anthropic.com/v1";
/// The version of the wire format; there is no later one.
const API_VERSION: &str = "2023-06-01";
/// Every model supports this much output.
const DEFAULT_MAX_TOKENS: u32 = 4096;

/// A model behind Anthropic's messages API, or a compatible server.
///
/// ```
/// use toolhub_agent::{Anthropic, Secret};
///
/// let model = Anthropic::new("claude-sonnet-4-5").key(Secret::new("…")).max_tokens(8192);
/// ```
#[derive(Debug, Clone)]
pub struct Anthropic {
    model: String,
    max_tokens: u32,
    client: ProviderClient,
}

impl Anthropic {
    /// This model, at Anthropic unless another [base URL](Self::base_url) is set.
    pub fn new(model: impl Into<String>) -> Self {
        Self { model: model.into(), max_tokens: DEFAULT_MAX_TOKENS, client: ProviderClient::new(DEFAULT_BASE_URL) }
    }

    /// Maximum number of tokens of one reply; default: 4096.
    #[must_use]
    pub fn max_tokens(mut self, tokens: u32) -> Self {
        self.max_tokens = tokens;
        self
    }
}

impl Dialect for Anthropic {
    type Decoder = stream::MessageDecoder;

    fn path(&self) -> &'static [&'static str] {
        &["messages"]
    }

    fn authenticate(&self, headers: &mut HeaderMap, key: Option<&Secret>) -> Result<(), SecretError> {
        headers.insert("anthropic-version", HeaderValue::from_static(API_VERSION));
        if let Some(key) = key {
            headers.insert("x-api-key", key.header("")?);
        }
        Ok(())
    }

    fn request_body(&self, prompt: &Prompt<'_>) -> Value {
        request::request_body(&self.model, self.max_tokens, prompt)
    }

    fn parse_response(&self, response: &Value, key: Option<&Secret>) -> Result<Reply, AttemptError> {
        response::parse_response(response, key)
    }

    fn decoder(&self) -> stream::MessageDecoder {
        stream::MessageDecoder::default()
    }
}

impl Model for Anthropic {
    fn name(&self) -> &str {
        &self.model
    }

    fn format(&self) -> Format {
        Format::Anthropic
    }

    fn ask<'a>(&'a self, prompt: Prompt<'a>, sink: &'a StreamSink) -> BoxFuture<'a, Result<Reply, ModelError>> {
        Box::pin(exchange::ask(self, &self.client, prompt, sink))
    }

    fn list_models(&self) -> BoxFuture<'_, Result<Option<Vec<String>>, ModelError>> {
        Box::pin(list_models(self, &self.client))
    }
}

super::settings!(Anthropic);

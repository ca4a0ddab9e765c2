//! Model client for OpenAI's chat completions API, which most servers implement: DeepSeek, vLLM, Ollama.
//!
//! In: a prompt. Out: a reply. `request` builds the request, `response` parses a complete response, `stream` a streamed
//! one.

mod request;
mod response;
mod stream;

use std::time::Duration;

use serde_json::Value;
use toolhub_core::{BoxFuture, export::Format};
use toolhub_net::{HeaderMap, Secret, SecretError, header::AUTHORIZATION};

use super::{
    Model, ModelError, Prompt, Reply, StreamSink,
    attempt_error::AttemptError,
    exchange::{self, Dialect},
    model_list::list_models,
    provider_client::{ProviderClient, SettingsError},
};

/// OpenAI's own API.
const DEFAULT_BASE_URL: &str = "https://api.openai.com/v1";

/// A model behind any server with OpenAI's chat completions API.
///
/// ```
/// use toolhub_agent::{OpenAi, Secret};
///
/// let model = OpenAi::new("deepseek-chat").base_url("https://api.deepseek.com/v1").key(Secret::new("…"));
/// ```
#[derive(Debug, Clone)]
pub struct OpenAi {
    model: String,
    max_tokens: Option<u32>,
    client: ProviderClient,
}

impl OpenAi {
    /// This model, at OpenAI unless another [base URL](Self::base_url) is set.
    pub fn new(model: impl Into<String>) -> Self {
        Self { model: model.into(), max_tokens: None, client: ProviderClient::new(DEFAULT_BASE_URL) }
    }

    /// Maximum number of tokens of one reply; default: the server decides.
    #[must_use]
    pub fn max_tokens(mut self, tokens: u32) -> Self {
        self.max_tokens = Some(tokens);
        self
    }
}

impl Dialect for OpenAi {
    type Decoder = stream::ChunkDecoder;

    fn path(&self) -> &'static [&'static str] {
        &["chat", "completions"]
    }

    fn authenticate(&self, headers: &mut HeaderMap, key: Option<&Secret>) -> Result<(), SecretError> {
        if let Some(key) = key {
            headers.insert(AUTHORIZATION, key.header("Bearer ")?);
        }
        Ok(())
    }

    fn request_body(&self, prompt: &Prompt<'_>) -> Value {
        // Other servers know only the older name of the limit, OpenAI's newer models only the newer one. And OpenAI
        // neither sends nor accepts reasoning content.
        let is_openai = self.client.endpoint_url(&[]).is_ok_and(|url| url.host_str() == Some("api.openai.com"));
        let limit = if is_openai { "max_completion_tokens" } else { "max_tokens" };
        request::request_body(&self.model, self.max_tokens.map(|tokens| (limit, tokens)), !is_openai, prompt)
    }

    fn strip_optional_fields(&self, body: &mut Value) -> bool {
        // Mistral and others reject it. Without it, a stream may not report its usage.
        body.as_object_mut().is_some_and(|body| body.remove("stream_options").is_some())
    }

    fn parse_response(&self, response: &Value, key: Option<&Secret>) -> Result<Reply, AttemptError> {
        response::parse_response(response, key)
    }

    fn decoder(&self) -> stream::ChunkDecoder {
        stream::ChunkDecoder::default()
    }
}

impl Model for OpenAi {
    fn name(&self) -> &str {
        &self.model
    }

    fn format(&self) -> Format {
        Format::OpenAi
    }

    fn ask<'a>(&'a self, prompt: Prompt<'a>, sink: &'a StreamSink) -> BoxFuture<'a, Result<Reply, ModelError>> {
        Box::pin(exchange::ask(self, &self.client, prompt, sink))
    }

    fn list_models(&self) -> BoxFuture<'_, Result<Option<Vec<String>>, ModelError>> {
        Box::pin(list_models(self, &self.client))
    }
}

super::settings!(OpenAi);

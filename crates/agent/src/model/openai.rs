//! Chat completions, as OpenAI has them and most others too: DeepSeek, vLLM, Ollama.
//!
//! In: a prompt. Out: a reply. `write` says the question, `read` understands an answer that came whole, `stream` one in pieces.

mod read;
mod stream;
mod write;

use std::time::Duration;

use serde_json::Value;
use toolhub_core::{BoxFuture, export::Format};
use toolhub_net::{HeaderMap, Secret, SecretError, header::AUTHORIZATION};

use super::{
    Hear, Model, ModelError, Prompt, Reply,
    exchange::{self, Dialect},
    offered::offered,
    provider_client::{ProviderClient, SettingsError},
    trouble::Failed,
};

/// Where OpenAI itself is.
const HOME: &str = "https://api.openai.com/v1";

/// A model behind any server that speaks OpenAI's chat completions.
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
    /// This model, at OpenAI unless another [address](Self::base_url) is given.
    pub fn new(model: impl Into<String>) -> Self {
        Self { model: model.into(), max_tokens: None, client: ProviderClient::new(HOME) }
    }

    /// How much it may write in one answer; without it the server decides.
    #[must_use]
    pub fn max_tokens(mut self, tokens: u32) -> Self {
        self.max_tokens = Some(tokens);
        self
    }
}

impl Dialect for OpenAi {
    type Ear = stream::Pieces;

    fn path(&self) -> &'static [&'static str] {
        &["chat", "completions"]
    }

    fn sign(&self, headers: &mut HeaderMap, key: Option<&Secret>) -> Result<(), SecretError> {
        if let Some(key) = key {
            headers.insert(AUTHORIZATION, key.header("Bearer ")?);
        }
        Ok(())
    }

    fn body(&self, prompt: &Prompt<'_>) -> Value {
        // The others know only the older name of the limit, OpenAI's newer models only the newer one; and OpenAI has no thoughts to tell.
        let home = self.client.address(&[]).is_ok_and(|url| url.host_str() == Some("api.openai.com"));
        let limit = if home { "max_completion_tokens" } else { "max_tokens" };
        write::body(&self.model, self.max_tokens.map(|tokens| (limit, tokens)), !home, prompt)
    }

    fn make_plain(&self, body: &mut Value) -> bool {
        // Mistral and others refuse it. Then a stream may not say what it cost.
        body.as_object_mut().is_some_and(|body| body.remove("stream_options").is_some())
    }

    fn whole(&self, answer: &Value, key: Option<&Secret>) -> Result<Reply, Failed> {
        read::whole(answer, key)
    }

    fn ear(&self) -> stream::Pieces {
        stream::Pieces::default()
    }
}

impl Model for OpenAi {
    fn name(&self) -> &str {
        &self.model
    }

    fn format(&self) -> Format {
        Format::OpenAi
    }

    fn ask<'a>(&'a self, prompt: Prompt<'a>, hear: &'a Hear) -> BoxFuture<'a, Result<Reply, ModelError>> {
        Box::pin(exchange::ask(self, &self.client, prompt, hear))
    }

    fn offered(&self) -> BoxFuture<'_, Result<Option<Vec<String>>, ModelError>> {
        Box::pin(offered(self, &self.client))
    }
}

super::settings!(OpenAi);

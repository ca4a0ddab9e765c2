//! Messages, as Anthropic has them.
//!
//! In: a prompt. Out: a reply. `write` says the question, `read` understands an answer that came whole, `stream` one in pieces.

mod read;
mod stream;
mod write;

use std::time::Duration;

use serde_json::Value;
use toolhub_core::{BoxFuture, export::Format};
use toolhub_net::{HeaderMap, Secret, SecretError, header::HeaderValue};

use super::{
    Hear, Model, ModelError, Prompt, Reply,
    exchange::{self, Dialect},
    offered::offered,
    provider_client::{ProviderClient, SettingsError},
    trouble::Failed,
};

/// Where Anthropic itself is.
const HOME: &str = "https://api.anthropic.com/v1";
/// The version of the wire format; there has been no other since.
const VERSION: &str = "2023-06-01";
/// What every model there can write.
const MAX_TOKENS: u32 = 4096;

/// A model behind Anthropic's messages, or a server that speaks them.
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
    /// This model, at Anthropic unless another [address](Self::base_url) is given.
    pub fn new(model: impl Into<String>) -> Self {
        Self { model: model.into(), max_tokens: MAX_TOKENS, client: ProviderClient::new(HOME) }
    }

    /// How much it may write in one answer: 4096 tokens where nothing is said.
    #[must_use]
    pub fn max_tokens(mut self, tokens: u32) -> Self {
        self.max_tokens = tokens;
        self
    }
}

impl Dialect for Anthropic {
    type Ear = stream::Pieces;

    fn path(&self) -> &'static [&'static str] {
        &["messages"]
    }

    fn sign(&self, headers: &mut HeaderMap, key: Option<&Secret>) -> Result<(), SecretError> {
        headers.insert("anthropic-version", HeaderValue::from_static(VERSION));
        if let Some(key) = key {
            headers.insert("x-api-key", key.header("")?);
        }
        Ok(())
    }

    fn body(&self, prompt: &Prompt<'_>) -> Value {
        write::body(&self.model, self.max_tokens, prompt)
    }

    fn whole(&self, answer: &Value, key: Option<&Secret>) -> Result<Reply, Failed> {
        read::whole(answer, key)
    }

    fn ear(&self) -> stream::Pieces {
        stream::Pieces::default()
    }
}

impl Model for Anthropic {
    fn name(&self) -> &str {
        &self.model
    }

    fn format(&self) -> Format {
        Format::Anthropic
    }

    fn ask<'a>(&'a self, prompt: Prompt<'a>, hear: &'a Hear) -> BoxFuture<'a, Result<Reply, ModelError>> {
        Box::pin(exchange::ask(self, &self.client, prompt, hear))
    }

    fn offered(&self) -> BoxFuture<'_, Result<Option<Vec<String>>, ModelError>> {
        Box::pin(offered(self, &self.client))
    }
}

super::settings!(Anthropic);

//! A model from plain settings, as a config has them.

use std::{str::FromStr, sync::Arc, time::Duration};

use toolhub_net::Secret;

use super::{Anthropic, Model, OpenAi, provider_client::SettingsError};

/// Whose words a model's server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Provider {
    /// OpenAI's chat completions: also DeepSeek, vLLM, Ollama.
    OpenAi,
    /// Anthropic's messages.
    Anthropic,
}

/// A word that names no provider.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no provider `{0}`; use `openai`, which most servers speak, or `anthropic`")]
pub struct UnknownProvider(String);

impl FromStr for Provider {
    type Err = UnknownProvider;

    fn from_str(word: &str) -> Result<Self, UnknownProvider> {
        match word {
            "openai" => Ok(Self::OpenAi),
            "anthropic" => Ok(Self::Anthropic),
            other => Err(UnknownProvider(other.chars().take(64).collect())),
        }
    }
}

/// How a model is reached. What is not said is as [`OpenAi`] and [`Anthropic`] have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelSettings {
    /// Whose words its server speaks.
    pub provider: Provider,
    /// The model's name, as its provider knows it.
    pub model: String,
    /// Where the server is, up to and with `/v1`.
    pub base_url: Option<String>,
    /// Who we are.
    pub key: Option<Secret>,
    /// How long one try may take.
    pub request_timeout: Option<Duration>,
    /// How long a connection may take to be made.
    pub connect_timeout: Option<Duration>,
    /// How long a streamed answer may pause in the middle.
    pub idle_timeout: Option<Duration>,
    /// How much the model may write in one answer.
    pub max_tokens: Option<u32>,
    /// How often a question that may do better later is asked again.
    pub retries: Option<u32>,
}

impl ModelSettings {
    /// This model of this provider, with nothing else said.
    pub fn new(provider: Provider, model: impl Into<String>) -> Self {
        Self {
            provider,
            model: model.into(),
            base_url: None,
            key: None,
            request_timeout: None,
            connect_timeout: None,
            idle_timeout: None,
            max_tokens: None,
            retries: None,
        }
    }
}

/// The model of these settings. Nobody is asked anything yet.
///
/// # Errors
/// When the address, the key or the name cannot be used.
pub fn build_model(settings: ModelSettings) -> Result<Arc<dyn Model>, SettingsError> {
    if settings.model.trim().is_empty() {
        return Err(SettingsError::NoModel);
    }
    macro_rules! made {
        ($model:ident) => {{
            let mut model = $model::new(settings.model);
            if let Some(url) = settings.base_url {
                model = model.base_url(url);
            }
            if let Some(key) = settings.key {
                model = model.key(key);
            }
            if let Some(time) = settings.request_timeout {
                model = model.request_timeout(time);
            }
            if let Some(time) = settings.connect_timeout {
                model = model.connect_timeout(time);
            }
            if let Some(time) = settings.idle_timeout {
                model = model.idle_timeout(time);
            }
            if let Some(tokens) = settings.max_tokens {
                model = model.max_tokens(tokens);
            }
            if let Some(retries) = settings.retries {
                model = model.retries(retries);
            }
            model.check()?;
            Arc::new(model) as Arc<dyn Model>
        }};
    }
    Ok(match settings.provider {
        Provider::OpenAi => made!(OpenAi),
        Provider::Anthropic => made!(Anthropic),
    })
}

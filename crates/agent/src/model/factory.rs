//! Builds a model client from plain settings, such as those of a config.

use std::{str::FromStr, sync::Arc, time::Duration};

use toolhub_net::Secret;

use super::{Anthropic, Model, OpenAi, provider_client::SettingsError};

/// The API that a model's server implements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Provider {
    /// OpenAI's chat completions API: also DeepSeek, vLLM, Ollama.
    OpenAi,
    /// Anthropic's messages API.
    Anthropic,
}

/// An unknown provider name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown provider `{0}`; use `openai`, which most servers implement, or `anthropic`")]
pub struct UnknownProvider(String);

impl FromStr for Provider {
    type Err = UnknownProvider;

    fn from_str(name: &str) -> Result<Self, UnknownProvider> {
        match name {
            "openai" => Ok(Self::OpenAi),
            "anthropic" => Ok(Self::Anthropic),
            other => Err(UnknownProvider(other.chars().take(64).collect())),
        }
    }
}

/// The settings of a model client. `None` means the default of [`OpenAi`] or [`Anthropic`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelSettings {
    /// The API that the server implements.
    pub provider: Provider,
    /// The model's name, as its provider knows it.
    pub model: String,
    /// The base URL of the API, including `/v1`.
    pub base_url: Option<String>,
    /// The API key.
    pub key: Option<Secret>,
    /// Timeout of one attempt.
    pub request_timeout: Option<Duration>,
    /// Timeout of connecting.
    pub connect_timeout: Option<Duration>,
    /// Maximum time between two chunks of a streamed response.
    pub idle_timeout: Option<Duration>,
    /// Maximum number of tokens of one reply.
    pub max_tokens: Option<u32>,
    /// Maximum number of retries of a transient failure.
    pub retries: Option<u32>,
}

impl ModelSettings {
    /// This model of this provider, with default settings.
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

/// Builds the model client of these settings. Sends no request.
///
/// # Errors
/// When the base URL, the key or the name is invalid.
pub fn build_model(settings: ModelSettings) -> Result<Arc<dyn Model>, SettingsError> {
    if settings.model.trim().is_empty() {
        return Err(SettingsError::NoModel);
    }
    macro_rules! build {
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
        Provider::OpenAi => build!(OpenAi),
        Provider::Anthropic => build!(Anthropic),
    })
}

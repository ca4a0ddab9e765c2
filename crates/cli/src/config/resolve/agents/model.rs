//! The model of `[llm]`, made of what holds. Nobody is asked anything by that.

use std::sync::Arc;

use toolhub::agent::{self, Model, ModelSettings, Secret, SettingsError};

use super::{Llm, Place, Provider};

impl Llm {
    /// The model of this name.
    ///
    /// # Errors
    /// When its address or its key cannot be used.
    pub(crate) fn model(&self, name: &str) -> Result<Arc<dyn Model>, SettingsError> {
        match &self.provider {
            Provider::Openai(place) => agent::connect(self.settings(agent::Provider::OpenAi, name, place)),
            Provider::Anthropic(place) => agent::connect(self.settings(agent::Provider::Anthropic, name, place)),
            Provider::Scripted(_) => Err(SettingsError::NoModel),
        }
    }

    fn settings(&self, provider: agent::Provider, name: &str, place: &Place) -> ModelSettings {
        ModelSettings {
            base_url: place.base_url.clone(),
            key: place.key.as_ref().map(|key| Secret::new(key.reveal())),
            request_timeout: Some(self.request_timeout),
            connect_timeout: Some(self.connect_timeout),
            idle_timeout: Some(self.idle_timeout),
            max_tokens: self.max_tokens,
            retries: Some(self.retries),
            ..ModelSettings::new(provider, name)
        }
    }
}

//! Builds the model of `[llm]`. Building sends no request and starts no server.

use std::sync::Arc;

use tokio::sync::OnceCell;
use toolhub::{
    BoxFuture,
    agent::{
        self, Model, ModelError, ModelFault, ModelSettings, Prompt, Reply, Script, Secret, SettingsError, StreamSink,
        Stub,
    },
    export::Format,
};

use super::{Llm, ModelEndpoint, Provider};

impl Llm {
    /// Builds the model of this name.
    ///
    /// # Errors
    /// When its URL, its key or its script cannot be used.
    pub(crate) fn build_model(&self, name: &str) -> Result<Arc<dyn Model>, String> {
        let to_text = |error: SettingsError| error.to_string();
        match &self.provider {
            Provider::Openai(endpoint) => {
                agent::build_model(self.model_settings(agent::Provider::OpenAi, name, Some(endpoint))).map_err(to_text)
            }
            Provider::Anthropic(endpoint) => {
                agent::build_model(self.model_settings(agent::Provider::Anthropic, name, Some(endpoint)))
                    .map_err(to_text)
            }
            Provider::Scripted(script) => {
                let script = match script {
                    Some(file) => Script::parse(&file.text).map_err(|error| error.to_string())?,
                    None => Script::demo(),
                };
                let settings = self.model_settings(agent::Provider::OpenAi, name, None);
                Ok(Arc::new(ScriptedModel { script, settings, server: OnceCell::new() }))
            }
        }
    }

    fn model_settings(&self, provider: agent::Provider, name: &str, endpoint: Option<&ModelEndpoint>) -> ModelSettings {
        ModelSettings {
            base_url: endpoint.and_then(|endpoint| endpoint.base_url.clone()),
            key: endpoint.and_then(|endpoint| endpoint.key.as_ref()).map(|key| Secret::new(key.reveal())),
            request_timeout: Some(self.request_timeout),
            connect_timeout: Some(self.connect_timeout),
            idle_timeout: Some(self.idle_timeout),
            max_tokens: self.max_tokens,
            retries: Some(self.retries),
            ..ModelSettings::new(provider, name)
        }
    }
}

/// A scripted model, served by its own stub server and accessed through the real client. The server starts with the first request,
/// and stops when the last run that uses the model is dropped.
struct ScriptedModel {
    script: Script,
    settings: ModelSettings,
    server: OnceCell<(Stub, Arc<dyn Model>)>,
}

impl ScriptedModel {
    async fn start_server(&self) -> Result<(Stub, Arc<dyn Model>), ModelError> {
        let unreachable = |error: String| ModelError::new(ModelFault::Unreachable, error);
        let stub = Stub::serve(self.script.clone(), 0)
            .await
            .map_err(|error| unreachable(format!("the scripted model cannot listen: {error}")))?;
        let settings = ModelSettings { base_url: Some(stub.base_url()), ..self.settings.clone() };
        let model = agent::build_model(settings).map_err(|error| unreachable(error.to_string()))?;
        Ok((stub, model))
    }
}

impl Model for ScriptedModel {
    fn name(&self) -> &str {
        &self.settings.model
    }

    fn format(&self) -> Format {
        Format::OpenAi
    }

    fn ask<'a>(&'a self, prompt: Prompt<'a>, sink: &'a StreamSink) -> BoxFuture<'a, Result<Reply, ModelError>> {
        Box::pin(async move {
            let (_, model) = self.server.get_or_try_init(|| self.start_server()).await?;
            model.ask(prompt, sink).await
        })
    }
}

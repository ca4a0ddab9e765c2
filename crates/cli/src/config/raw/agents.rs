//! The sections `[llm]`, `[agents.NAME]` and `[toolsets.NAME]`.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use toolhub::config::{PositiveDuration, SecretSource};

/// The bundled script.
pub(crate) const DEMO_SCRIPT: &str = "builtin:demo";

/// The model of the agents.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Llm {
    /// API of the model's server: "openai" for everything compatible with it (DeepSeek, vLLM, Ollama), "anthropic", or "scripted"
    /// for a model that follows a script and needs no key.
    pub(crate) provider: Provider,
    /// Name of the model at its server. A scripted model needs none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub(crate) model: Option<String>,
    /// Base URL of the model's server, including `/v1`. Default: the provider's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) base_url: Option<String>,
    /// API key of the server, preferably as a reference to a variable or file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) api_key: Option<SecretSource>,
    /// Script of a scripted model: a file, or "builtin:demo". Default: "builtin:demo".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) script: Option<String>,
    /// Timeout of one model request, including retries.
    #[serde(default = "request_timeout")]
    pub(crate) request_timeout: PositiveDuration,
    /// Timeout for connecting to the model's server.
    #[serde(default = "connect_timeout")]
    pub(crate) connect_timeout: PositiveDuration,
    /// Maximum pause within a streamed response.
    #[serde(default = "idle_timeout")]
    pub(crate) idle_timeout: PositiveDuration,
    /// Maximum number of tokens of one response. Default: the provider's maximum, or 4096 for "anthropic".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub(crate) max_tokens: Option<u32>,
    /// How often a request is retried after a rate limit, a server error or a connection failure.
    #[serde(default = "retries")]
    #[schemars(range(max = 20))]
    pub(crate) retries: u32,
    /// Maximum number of steps of a run, unless the agent sets its own: a step is one response of the model and the calls it
    /// requests.
    #[serde(default = "max_steps")]
    #[schemars(range(min = 1))]
    pub(crate) max_steps: u32,
}

/// The API of the model's server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Provider {
    /// A script in this process, for demos and tests.
    Scripted,
    /// OpenAI's chat completions API.
    Openai,
    /// Anthropic's messages API.
    Anthropic,
}

fn request_timeout() -> PositiveDuration {
    PositiveDuration(Duration::from_secs(120))
}

fn connect_timeout() -> PositiveDuration {
    PositiveDuration(Duration::from_secs(10))
}

fn idle_timeout() -> PositiveDuration {
    PositiveDuration(Duration::from_secs(60))
}

fn retries() -> u32 {
    4
}

fn max_steps() -> u32 {
    12
}

/// An agent: its prompt, tools and limits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Agent {
    /// System prompt.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) system_prompt: String,
    /// Names of [toolsets.NAME] whose tools the agent is offered. Default: every tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub(crate) toolsets: Option<Vec<String>>,
    /// Another model of the same server than [llm] names.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub(crate) model: Option<String>,
    /// Maximum number of steps of a run. Default: that of [llm].
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub(crate) max_steps: Option<u32>,
    /// Maximum number of tokens of a run, input and output. Default: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub(crate) token_budget: Option<u32>,
    /// Maximum duration of a run, including waits for approvals and external results. Default: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) time_budget: Option<PositiveDuration>,
    /// Context window of the model in tokens; the oldest messages of a longer conversation are left out. Default: 128000.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1000))]
    pub(crate) context_window: Option<u32>,
    /// Who executes the calls.
    #[serde(skip_serializing_if = "Execution::is_internal")]
    pub(crate) tool_execution: Execution,
    /// How often a failed call is retried, instead of the tool's own setting; only for "internal".
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 20))]
    pub(crate) max_retries: Option<u32>,
    /// Deadline for an external result; only for "external". Default: "5m".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) external_deadline: Option<PositiveDuration>,
}

/// Who executes an agent's calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Execution {
    /// Toolhub.
    #[default]
    Internal,
    /// The client that sent the message: calls are admitted here, and it sends their results to `POST /api/v1/calls/{id}/result`.
    External,
}

impl Execution {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde requires this signature")]
    fn is_internal(&self) -> bool {
        *self == Self::Internal
    }
}

/// A named set of tools, for agents.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Toolset {
    /// Description for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) description: Option<String>,
    /// Names of tools, and globs over them: "fs__*".
    #[schemars(length(min = 1))]
    pub(crate) tools: Vec<String>,
}

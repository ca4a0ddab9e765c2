//! The sections `[llm]`, `[agents.NAME]` and `[toolsets.NAME]`.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use toolhub::config::{SecretSource, Time};

/// The script that the binary carries.
pub(crate) const DEMO_SCRIPT: &str = "builtin:demo";

/// The model that agents ask.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Llm {
    /// Whose words the model's server speaks: "openai" for everything that is compatible with it (DeepSeek, vLLM, Ollama),
    /// "anthropic", or "scripted" for a model that follows a script and needs no key.
    pub(crate) provider: Provider,
    /// The model, as its server calls it. A scripted one needs no name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub(crate) model: Option<String>,
    /// Where the model's server is, up to and with its `/v1`; the provider's own where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) base_url: Option<String>,
    /// The key for it: best a reference to where it is found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) api_key: Option<SecretSource>,
    /// What a scripted model says: a file, or "builtin:demo", which it is where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) script: Option<String>,
    /// How long one answer may take, with all that is tried again.
    #[serde(default = "request_timeout")]
    pub(crate) request_timeout: Time,
    /// How long the model's server may take to take a connection.
    #[serde(default = "connect_timeout")]
    pub(crate) connect_timeout: Time,
    /// How long it may be silent in the middle of an answer.
    #[serde(default = "idle_timeout")]
    pub(crate) idle_timeout: Time,
    /// How many tokens one answer may have; as many as the provider allows where nothing is said, 4096 with "anthropic".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub(crate) max_tokens: Option<u32>,
    /// How often a request is sent again that was asked too often, or whose server fell over or could not be reached.
    #[serde(default = "retries")]
    #[schemars(range(max = 20))]
    pub(crate) retries: u32,
    /// How many steps a run may take, of an agent that does not say so itself: a step is one answer of the model and the calls
    /// it asks for.
    #[serde(default = "max_steps")]
    #[schemars(range(min = 1))]
    pub(crate) max_steps: u32,
}

/// Who makes a model's answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Provider {
    /// A script, in this process: for trying things out, and for tests.
    Scripted,
    /// A server that speaks OpenAI's chat completions.
    Openai,
    /// A server that speaks Anthropic's messages.
    Anthropic,
}

fn request_timeout() -> Time {
    Time(Duration::from_secs(120))
}

fn connect_timeout() -> Time {
    Time(Duration::from_secs(10))
}

fn idle_timeout() -> Time {
    Time(Duration::from_secs(60))
}

fn retries() -> u32 {
    4
}

fn max_steps() -> u32 {
    12
}

/// One agent: what it is told, and what it may do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Agent {
    /// What the model is told before everything else.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) system_prompt: String,
    /// Names of [toolsets.NAME]: the agent is offered the tools of all of them. Every tool where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub(crate) toolsets: Option<Vec<String>>,
    /// Another model than [llm] names, of the same server.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub(crate) model: Option<String>,
    /// How many steps a run may take; what [llm] says where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub(crate) max_steps: Option<u32>,
    /// How many tokens a run may cost, read and written; no limit where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub(crate) token_budget: Option<u32>,
    /// How long a run may take, with the time it waits for people and for results from outside; no limit where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) time_budget: Option<Time>,
    /// How many tokens the model can read at once: the oldest of a long conversation is left out before that. 128000 where nothing
    /// is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1000))]
    pub(crate) context_window: Option<u32>,
    /// Who does the work of a call.
    #[serde(skip_serializing_if = "Execution::is_internal")]
    pub(crate) tool_execution: Execution,
    /// How often a call is tried again that failed, in the place of what the tool says; only for "internal".
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 20))]
    pub(crate) max_retries: Option<u32>,
    /// How long a result from outside may take; only for "external". "5m" where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) external_deadline: Option<Time>,
}

/// Who does the work of an agent's calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Execution {
    /// Toolhub.
    #[default]
    Internal,
    /// Whoever sent the message: calls are admitted here, and their results are brought to `POST /api/v1/calls/{id}/result`.
    External,
}

impl Execution {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
    fn is_internal(&self) -> bool {
        *self == Self::Internal
    }
}

/// Tools under one name, for agents.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Toolset {
    /// What they are for, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) description: Option<String>,
    /// Names of tools, and globs over them: "fs__*".
    #[schemars(length(min = 1))]
    pub(crate) tools: Vec<String>,
}

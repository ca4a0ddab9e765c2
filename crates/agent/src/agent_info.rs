//! What a client may know about a defined agent. The system prompt is not part of it.

use std::{sync::Arc, time::Duration};

use schemars::JsonSchema;
use serde::Serialize;
use smol_str::SmolStr;
use toolhub_core::Tool;

use crate::{
    definition::{AgentDefinition, ToolExecution},
    service::{AgentService, DEFAULT_AGENT},
};

/// A defined agent.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct AgentInfo {
    /// Its name.
    #[schemars(with = "String")]
    pub name: SmolStr,
    /// Whether messages that name no agent go to it, in threads without an agent.
    #[serde(rename = "default")]
    pub is_default: bool,
    /// The name of its model.
    pub model: String,
    /// Names of tools, and globs over them; null for all tools.
    pub patterns: Option<Vec<String>>,
    /// How many of the registered tools it may use.
    pub tools: usize,
    /// Who executes its calls.
    pub execution: ExecutionInfo,
    /// Largest number of model requests for one message.
    pub max_steps: u32,
    /// Largest number of input and output tokens for one message.
    pub token_budget: Option<u64>,
    /// Time limit for one message, including the time it awaits approvals.
    #[serde(rename = "timeBudgetMs", with = "toolhub_core::millis::option")]
    #[schemars(with = "Option<u64>")]
    pub time_budget: Option<Duration>,
    /// Tokens of the model's context window.
    pub context_window: u64,
}

/// Who executes an agent's calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "by", rename_all = "snake_case", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum ExecutionInfo {
    /// The hub.
    Internal {
        /// Largest number of retries of a call, instead of the tool's own setting.
        max_retries: Option<u32>,
    },
    /// The client that sent the message.
    External {
        /// Time limit for a result.
        #[serde(rename = "deadlineMs", with = "toolhub_core::millis")]
        #[schemars(with = "u64")]
        deadline: Duration,
    },
}

impl AgentService {
    /// The defined agents, by name, with the number of tools that are registered now.
    #[must_use]
    pub fn agent_infos(&self) -> Vec<AgentInfo> {
        let registered = self.hub().list(&Default::default());
        self.agents().into_iter().map(|(name, definition)| AgentInfo::of(name, &definition, &registered)).collect()
    }
}

impl AgentInfo {
    fn of(name: SmolStr, definition: &AgentDefinition, registered: &[Arc<Tool>]) -> Self {
        let toolset = &definition.toolset;
        Self {
            is_default: name == DEFAULT_AGENT,
            name,
            model: definition.model.name().to_owned(),
            patterns: toolset.patterns().map(|patterns| patterns.iter().map(ToString::to_string).collect()),
            tools: registered.iter().filter(|tool| toolset.contains(&tool.definition.name)).count(),
            execution: match definition.execution {
                ToolExecution::Internal { max_retries } => ExecutionInfo::Internal { max_retries },
                ToolExecution::External { deadline } => ExecutionInfo::External { deadline },
            },
            max_steps: definition.max_steps,
            token_budget: definition.token_budget,
            time_budget: definition.time_budget,
            context_window: definition.context_window,
        }
    }
}

//! The definition of an agent: model, system prompt, toolset and limits.
//!
//! Plain settings; `driver.rs` applies them. The program or the config provides them.

use std::{fmt, sync::Arc, time::Duration};

use toolhub_core::{Toolset, clock::Timestamp};

use crate::{model::Model, run::RunBudget};

/// Who executes an agent's calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToolExecution {
    /// The hub.
    Internal {
        /// Maximum retries of a call, instead of the tool's own setting; the retry rules still apply.
        max_retries: Option<u32>,
    },
    /// The client that sent the message. The hub admits the calls, the client executes them and reports their results.
    External {
        /// Time limit for a result.
        deadline: Duration,
    },
}

impl Default for ToolExecution {
    fn default() -> Self {
        Self::Internal { max_retries: None }
    }
}

/// The definition of an agent.
#[derive(Clone)]
pub struct AgentDefinition {
    pub(crate) model: Arc<dyn Model>,
    pub(crate) system_prompt: String,
    pub(crate) toolset: Toolset,
    pub(crate) execution: ToolExecution,
    pub(crate) max_steps: u32,
    pub(crate) token_budget: Option<u64>,
    pub(crate) time_budget: Option<Duration>,
    pub(crate) context_window: u64,
    pub(crate) request_timeout: Duration,
    /// Whether the agent is no longer defined: its runs can only end.
    pub(crate) is_removed: bool,
}

impl AgentDefinition {
    /// An agent with this model: all tools, twelve steps, no budget, and a context window of 128,000 tokens.
    #[must_use]
    pub fn new(model: Arc<dyn Model>) -> Self {
        Self {
            model,
            system_prompt: String::new(),
            toolset: Toolset::all(),
            execution: ToolExecution::default(),
            max_steps: 12,
            token_budget: None,
            time_budget: None,
            context_window: 128_000,
            request_timeout: Duration::from_secs(300),
            is_removed: false,
        }
    }

    /// The system prompt.
    #[must_use]
    pub fn system_prompt(mut self, text: impl Into<String>) -> Self {
        self.system_prompt = text.into();
        self
    }

    /// The tools it may use.
    #[must_use]
    pub fn toolset(mut self, toolset: Toolset) -> Self {
        self.toolset = toolset;
        self
    }

    /// Who executes its calls.
    #[must_use]
    pub fn execution(mut self, execution: ToolExecution) -> Self {
        self.execution = execution;
        self
    }

    /// Maximum number of model requests for one message; at least one. The last one may not request calls.
    #[must_use]
    pub fn max_steps(mut self, steps: u32) -> Self {
        self.max_steps = steps.max(1);
        self
    }

    /// Maximum number of input and output tokens for one message.
    #[must_use]
    pub fn token_budget(mut self, tokens: Option<u64>) -> Self {
        self.token_budget = tokens;
        self
    }

    /// Time limit for one message, including the time it awaits approvals.
    #[must_use]
    pub fn time_budget(mut self, time: Option<Duration>) -> Self {
        self.time_budget = time;
        self
    }

    /// The model's context window in tokens. Older messages that do not fit are not sent to the model.
    #[must_use]
    pub fn context_window(mut self, tokens: u64) -> Self {
        self.context_window = tokens;
        self
    }

    /// Time limit for one model request, including retries.
    #[must_use]
    pub fn request_timeout(mut self, time: Duration) -> Self {
        self.request_timeout = time;
        self
    }

    /// Its toolset.
    #[must_use]
    pub fn tools(&self) -> &Toolset {
        &self.toolset
    }

    pub(crate) fn bounds(&self, now: Timestamp) -> RunBudget {
        RunBudget {
            steps: self.max_steps,
            tokens: self.token_budget,
            deadline: self.time_budget.map(|time| now + time),
        }
    }
}

impl fmt::Debug for AgentDefinition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { model, toolset, execution, max_steps, token_budget, time_budget, context_window, .. } = self;
        f.debug_struct("AgentDefinition")
            .field("model", &model.name())
            .field("toolset", toolset)
            .field("execution", execution)
            .field("max_steps", max_steps)
            .field("token_budget", token_budget)
            .field("time_budget", time_budget)
            .field("context_window", context_window)
            .finish_non_exhaustive()
    }
}

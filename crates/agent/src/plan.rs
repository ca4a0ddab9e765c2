//! What an agent is: its model, what it is told, which tools it may use, and how far it may go.
//!
//! Plain settings. Who uses them is `driver.rs`; where they come from is the program's own affair.

use std::{fmt, sync::Arc, time::Duration};

use toolhub_core::{Toolset, clock::Timestamp};

use crate::{model::Model, run::Bounds};

/// Who does the work of an agent's calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToolExecution {
    /// The hub does.
    Internal {
        /// How often a call is tried again, instead of what its tool says; within the rules of what may be tried again.
        max_retries: Option<u32>,
    },
    /// Whoever sent the message does. Calls are admitted here and handed out, and their results are reported back.
    External {
        /// How long a result may take.
        deadline: Duration,
    },
}

impl Default for ToolExecution {
    fn default() -> Self {
        Self::Internal { max_retries: None }
    }
}

/// What an agent is.
#[derive(Clone)]
pub struct AgentPlan {
    pub(crate) model: Arc<dyn Model>,
    pub(crate) system_prompt: String,
    pub(crate) toolset: Toolset,
    pub(crate) execution: ToolExecution,
    pub(crate) max_steps: u32,
    pub(crate) token_budget: Option<u64>,
    pub(crate) time_budget: Option<Duration>,
    pub(crate) context_window: u64,
    pub(crate) request_timeout: Duration,
    /// Whether there is no such agent any more: its runs can only end.
    pub(crate) is_removed: bool,
}

impl AgentPlan {
    /// An agent with this model: every tool, twelve steps, no budget, and a window of 128,000 tokens.
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

    /// Who the model is and what it must know.
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

    /// Who does the work of its calls.
    #[must_use]
    pub fn execution(mut self, execution: ToolExecution) -> Self {
        self.execution = execution;
        self
    }

    /// How often the model is asked for one message at most; at least once. The last time it may not ask for calls.
    #[must_use]
    pub fn max_steps(mut self, steps: u32) -> Self {
        self.max_steps = steps.max(1);
        self
    }

    /// How many tokens the model may read and write for one message.
    #[must_use]
    pub fn token_budget(mut self, tokens: Option<u64>) -> Self {
        self.token_budget = tokens;
        self
    }

    /// How long one message may take, waiting for people included.
    #[must_use]
    pub fn time_budget(mut self, time: Option<Duration>) -> Self {
        self.time_budget = time;
        self
    }

    /// How many tokens the model can be told at once. A longer conversation loses its beginning.
    #[must_use]
    pub fn context_window(mut self, tokens: u64) -> Self {
        self.context_window = tokens;
        self
    }

    /// How long the model may take for one answer, retries and all.
    #[must_use]
    pub fn request_timeout(mut self, time: Duration) -> Self {
        self.request_timeout = time;
        self
    }

    /// Which tools it may use.
    #[must_use]
    pub fn tools(&self) -> &Toolset {
        &self.toolset
    }

    pub(crate) fn bounds(&self, now: Timestamp) -> Bounds {
        Bounds { steps: self.max_steps, tokens: self.token_budget, until: self.time_budget.map(|time| now + time) }
    }
}

impl fmt::Debug for AgentPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { model, toolset, execution, max_steps, token_budget, time_budget, context_window, .. } = self;
        f.debug_struct("AgentPlan")
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

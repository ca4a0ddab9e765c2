//! The model loop: agents that offer a model the tools that work now, and keep their threads over turns and restarts.
//!
//! Use the crate `toolhub`; this one is what its feature `agent` is made of.
#![forbid(unsafe_code)]

mod active_runs;
mod agent;
mod calls;
mod driver;
mod follow;
mod message;
mod meters;
mod model;
mod plan;
mod record;
mod rules;
mod run;
mod run_store;
#[cfg(feature = "stub")]
mod script;
mod service;
#[cfg(feature = "stub")]
mod stub;
mod window;

pub use agent::{Agent, AgentBuilder};
pub use follow::{RunNews, events};
pub use message::{AskedCall, CallResult, Message, Picture, UserMessage};
pub use meters::{AgentStats, Meters, RUN_SECONDS, SECONDS, Spread, TOKENS};
pub use model::{
    Anthropic, Hear, Heard, Model, ModelError, ModelFault, ModelSettings, OpenAi, Prompt, Provider, Reply, Secret,
    SettingsError, Stop, UnknownProvider, Usage, connect,
};
pub use plan::{AgentPlan, ToolExecution};
pub use record::{RunRecord, RunStatus};
pub use run::{Bounds, End, Planned, Run, RunCall, RunError, Todo};
pub use run_store::KeptMessage;
#[cfg(feature = "stub")]
pub use script::{Conversation, Fault, Script, ScriptError, ScriptProblem, Scripted};
pub use service::{AgentError, AgentService, CancelRun, DEFAULT_AGENT, RunHandle, ThreadExport};
#[cfg(feature = "stub")]
pub use stub::Stub;

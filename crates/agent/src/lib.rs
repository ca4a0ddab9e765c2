//! The agent loop: agents that offer a model the tools that are available now, and keep their threads across turns and
//! restarts.
//!
//! Use the crate `toolhub`; its feature `agent` re-exports this one.
#![forbid(unsafe_code)]

mod active_runs;
mod agent;
mod agent_info;
mod definition;
mod dependency_prompt;
mod driver;
mod follower;
mod message;
mod meters;
mod model;
mod record;
mod run;
mod run_store;
#[cfg(feature = "stub")]
mod script;
mod service;
mod step_calls;
#[cfg(feature = "stub")]
mod stub;
mod window;

pub use agent::{Agent, AgentBuilder};
pub use agent_info::{AgentInfo, ExecutionInfo};
pub use definition::{AgentDefinition, ToolExecution};
pub use follower::RunEvent;
pub use message::{CallResult, Image, Message, ToolCall, UserMessage};
pub use meters::{AgentStats, Histogram, Metrics, REQUEST_SECONDS_BUCKETS, RUN_SECONDS_BUCKETS, TOKEN_BUCKETS};
pub use model::{
    Anthropic, Model, ModelError, ModelFault, ModelSettings, OpenAi, Prompt, Provider, Reply, Secret, SettingsError,
    StopReason, StreamPart, StreamSink, UnknownProvider, Usage, build_model,
};
pub use record::{RunRecord, RunStatus};
pub use run::{NextAction, PlannedCall, Run, RunBudget, RunCall, RunEnd, RunError, RunStep};
pub use run_store::StoredMessage;
#[cfg(feature = "stub")]
pub use script::{Conversation, Fault, Script, ScriptError, ScriptProblem, ScriptedReply};
pub use service::{AgentError, AgentService, DEFAULT_AGENT, ExportPart, RunCancellation, RunHandle, ThreadExport};
#[cfg(feature = "stub")]
pub use stub::Stub;

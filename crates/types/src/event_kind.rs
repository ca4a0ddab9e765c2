//! The events by name, each with what it has to tell.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use smol_str::SmolStr;

use crate::{
    approval::{ApprovalOutcome, ApprovalState},
    effect::Effect,
    error::ErrorKind,
    export_format::Format,
    ids::{ApprovalId, CallId, Caller, RunId},
    outcome::Status,
    status::ToolStatus,
    timestamp::Timestamp,
    tool::ToolName,
};

/// A call that a model asks for.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct MessageCall {
    /// The call.
    pub id: CallId,
    /// The tool's name as the model wrote it.
    pub tool: SmolStr,
    /// What the tool is to be given, without what is secret.
    pub arguments: Value,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(untagged, rename_all_fields = "camelCase")]
#[non_exhaustive]
#[schemars(rename = "EventData")]
pub enum EventKind {
    /// `tool.registered`: a tool can be called from now on.
    ToolRegistered {
        /// The tool.
        tool_name: ToolName,
    },
    /// `tool.unregistered`: a tool can no longer be called.
    ToolUnregistered {
        /// The tool.
        tool_name: ToolName,
    },
    /// `hub.initialized`: the hub is ready.
    HubInitialized {
        /// How many tools it knows.
        tools: usize,
    },
    /// `hub.cleared`: all tools were removed.
    HubCleared {
        /// How many there were.
        removed: usize,
    },
    /// `tool.execution.started`: a call passed every door and its tool starts.
    ExecutionStarted {
        /// The call.
        call_id: CallId,
        /// The agent run the call belongs to.
        #[serde(skip_serializing_if = "Option::is_none")]
        run_id: Option<RunId>,
        /// The tool.
        tool_name: SmolStr,
    },
    /// `tool.execution.completed`: a call ended well.
    ExecutionCompleted {
        /// The call.
        call_id: CallId,
        /// The agent run the call belongs to.
        #[serde(skip_serializing_if = "Option::is_none")]
        run_id: Option<RunId>,
        /// The tool.
        tool_name: SmolStr,
        /// What it did to the world.
        effect: Effect,
        /// How long the tool ran.
        #[serde(rename = "durationMs", with = "crate::millis")]
        #[schemars(with = "u64")]
        duration: Duration,
        /// Whether the answer is the kept one of an earlier call.
        replayed: bool,
    },
    /// `tool.execution.failed`: a call was refused, failed or was cancelled.
    ExecutionFailed {
        /// The call.
        call_id: CallId,
        /// The agent run the call belongs to.
        #[serde(skip_serializing_if = "Option::is_none")]
        run_id: Option<RunId>,
        /// The tool's name as the caller wrote it.
        tool_name: SmolStr,
        /// `error` or `cancelled`.
        status: Status,
        /// What it did to the world.
        effect: Effect,
        /// What went wrong.
        error: ErrorKind,
        /// The line for operators.
        message: String,
    },
    /// `tool.executed`: a good result was reported to the tool's status.
    ToolExecuted {
        /// The tool.
        tool_name: ToolName,
    },
    /// `tool.failed`: a bad result was reported to the tool's status.
    ToolFailed {
        /// The tool.
        tool_name: ToolName,
        /// What went wrong.
        error: ErrorKind,
        /// Whether it speaks against the tool.
        counts: bool,
        /// The line for operators.
        message: String,
    },
    /// `tool.status.changed`: a tool's status is another than before. Without a thread it concerns everybody.
    StatusChanged {
        /// The tool.
        tool_name: ToolName,
        /// What it was.
        #[serde(skip_serializing_if = "Option::is_none")]
        old_status: Option<ToolStatus>,
        /// What it is.
        new_status: ToolStatus,
        /// Why.
        reason: String,
    },
    /// `tool.availability.changed`: a tool may be used now, or no longer.
    AvailabilityChanged {
        /// The tool.
        tool_name: ToolName,
        /// Whether it may.
        available: bool,
        /// Why.
        reason: String,
    },
    /// `tool.rebind.required`: a thread would be offered other tools than the list somebody holds.
    RebindRequired {
        /// Tools that may be used now, and are not on the list.
        added: Vec<ToolName>,
        /// Tools on the list that may no longer be used.
        removed: Vec<ToolName>,
        /// In words.
        reason: String,
    },
    /// `tool.executor.cleaned`: an instance was closed.
    ExecutorCleaned {
        /// The tool whose instance it was.
        tool_name: ToolName,
        /// Why.
        reason: &'static str,
    },
    /// `tool.executor.exported`: definitions were exported.
    ExecutorExported {
        /// For whom.
        format: Format,
        /// How many.
        count: usize,
    },
    /// `approval.requested`: a call waits for a person.
    ApprovalRequested {
        /// The question.
        approval_id: ApprovalId,
        /// The call.
        call_id: CallId,
        /// The agent run the call belongs to.
        #[serde(skip_serializing_if = "Option::is_none")]
        run_id: Option<RunId>,
        /// The tool.
        tool_name: ToolName,
        /// The rule that asks.
        rule: String,
        /// Why it asks.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// When it is too late to answer.
        expires_at: Timestamp,
    },
    /// `approval.resolved`: a question is no longer open.
    ApprovalResolved {
        /// The question.
        approval_id: ApprovalId,
        /// The call that asked.
        call_id: CallId,
        /// The agent run the call belongs to.
        #[serde(skip_serializing_if = "Option::is_none")]
        run_id: Option<RunId>,
        /// The tool.
        tool_name: ToolName,
        /// How it stands now.
        state: ApprovalState,
        /// What was answered.
        #[serde(skip_serializing_if = "Option::is_none")]
        outcome: Option<ApprovalOutcome>,
        /// Who answered.
        #[serde(skip_serializing_if = "Option::is_none")]
        by: Option<Caller>,
    },
    /// `call.progress`: a running tool says how far it is.
    CallProgress {
        /// The call.
        call_id: CallId,
        /// The agent run the call belongs to.
        #[serde(skip_serializing_if = "Option::is_none")]
        run_id: Option<RunId>,
        /// The tool.
        tool_name: ToolName,
        /// In words.
        message: String,
        /// From 0 to 1, where the tool knows.
        #[serde(skip_serializing_if = "Option::is_none")]
        fraction: Option<f64>,
    },
    /// `run.started`: an agent began to work on a message.
    RunStarted {
        /// The run.
        run_id: RunId,
        /// The agent.
        agent: SmolStr,
    },
    /// `run.completed`: a run came to its end, and that was no failure.
    RunCompleted {
        /// The run.
        run_id: RunId,
        /// How it ended, in a word.
        status: SmolStr,
        /// How many steps it took.
        steps: u32,
        /// Why the model stopped: `end`, `length` where its answer is cut off, or `refusal`.
        #[serde(skip_serializing_if = "Option::is_none")]
        stop: Option<SmolStr>,
    },
    /// `run.failed`: a run could not be brought to its end.
    RunFailed {
        /// The run.
        run_id: RunId,
        /// How many steps it took.
        steps: u32,
        /// The stable name of what went wrong.
        code: SmolStr,
        /// In words.
        message: String,
    },
    /// `message.delta`: a piece of what a model says, while it says it.
    MessageDelta {
        /// The run.
        run_id: RunId,
        /// The piece.
        text: String,
        /// Whether the model begins anew: what was heard of this message so far does not count.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        again: bool,
    },
    /// `message.completed`: a model has said what it has to say.
    MessageCompleted {
        /// The run.
        run_id: RunId,
        /// Who speaks: `assistant`.
        role: SmolStr,
        /// What it said.
        content: String,
        /// The calls it asks for.
        calls: Vec<MessageCall>,
    },
    /// `thread.swept`: a thread is gone, with everything that was kept for it.
    ThreadSwept {
        /// Why.
        reason: &'static str,
        /// How many records went with it.
        rows: usize,
    },
    /// `config.reloaded`: other settings hold from now on.
    ConfigReloaded {
        /// Tools that came.
        added: Vec<ToolName>,
        /// Tools that took the place of others.
        replaced: Vec<ToolName>,
        /// Tools that went.
        removed: Vec<ToolName>,
        /// Tools that stayed, and whose limits or rules are others now.
        adjusted: Vec<ToolName>,
        /// What has changed and holds only after a restart.
        needs_restart: Vec<String>,
    },
    /// `stream.reset`: this listener was too slow and missed events.
    StreamReset,
}

impl EventKind {
    /// Every event's name, in the order of the variants.
    pub const NAMES: [&'static str; 25] = [
        "tool.registered",
        "tool.unregistered",
        "hub.initialized",
        "hub.cleared",
        "tool.execution.started",
        "tool.execution.completed",
        "tool.execution.failed",
        "tool.executed",
        "tool.failed",
        "tool.status.changed",
        "tool.availability.changed",
        "tool.rebind.required",
        "tool.executor.cleaned",
        "tool.executor.exported",
        "approval.requested",
        "approval.resolved",
        "call.progress",
        "run.started",
        "run.completed",
        "run.failed",
        "message.delta",
        "message.completed",
        "thread.swept",
        "config.reloaded",
        "stream.reset",
    ];

    /// Whether whoever was away wants to hear it later. What calls do is in the journal.
    pub fn is_persisted(&self) -> bool {
        matches!(
            self,
            Self::StatusChanged { .. }
                | Self::ApprovalRequested { .. }
                | Self::ApprovalResolved { .. }
                | Self::ConfigReloaded { .. }
        )
    }

    /// The agent run it belongs to.
    #[must_use]
    pub fn run_id(&self) -> Option<RunId> {
        match self {
            Self::ExecutionStarted { run_id, .. }
            | Self::ExecutionCompleted { run_id, .. }
            | Self::ExecutionFailed { run_id, .. }
            | Self::ApprovalRequested { run_id, .. }
            | Self::ApprovalResolved { run_id, .. }
            | Self::CallProgress { run_id, .. } => *run_id,
            Self::RunStarted { run_id, .. }
            | Self::RunCompleted { run_id, .. }
            | Self::RunFailed { run_id, .. }
            | Self::MessageDelta { run_id, .. }
            | Self::MessageCompleted { run_id, .. } => Some(*run_id),
            _ => None,
        }
    }

    /// The event's name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::ToolRegistered { .. } => "tool.registered",
            Self::ToolUnregistered { .. } => "tool.unregistered",
            Self::HubInitialized { .. } => "hub.initialized",
            Self::HubCleared { .. } => "hub.cleared",
            Self::ExecutionStarted { .. } => "tool.execution.started",
            Self::ExecutionCompleted { .. } => "tool.execution.completed",
            Self::ExecutionFailed { .. } => "tool.execution.failed",
            Self::ToolExecuted { .. } => "tool.executed",
            Self::ToolFailed { .. } => "tool.failed",
            Self::StatusChanged { .. } => "tool.status.changed",
            Self::AvailabilityChanged { .. } => "tool.availability.changed",
            Self::RebindRequired { .. } => "tool.rebind.required",
            Self::ExecutorCleaned { .. } => "tool.executor.cleaned",
            Self::ExecutorExported { .. } => "tool.executor.exported",
            Self::ApprovalRequested { .. } => "approval.requested",
            Self::ApprovalResolved { .. } => "approval.resolved",
            Self::CallProgress { .. } => "call.progress",
            Self::RunStarted { .. } => "run.started",
            Self::RunCompleted { .. } => "run.completed",
            Self::RunFailed { .. } => "run.failed",
            Self::MessageDelta { .. } => "message.delta",
            Self::MessageCompleted { .. } => "message.completed",
            Self::ThreadSwept { .. } => "thread.swept",
            Self::ConfigReloaded { .. } => "config.reloaded",
            Self::StreamReset => "stream.reset",
        }
    }
}

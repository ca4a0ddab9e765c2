//! The kinds of events, each with its name and payload.

mod class;
mod names;
mod read;

use std::{collections::BTreeMap, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
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

pub use class::{EventClass, EventClasses};

/// A call requested by a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MessageCall {
    /// The call.
    pub id: CallId,
    /// The tool's name as the model wrote it.
    pub tool: SmolStr,
    /// The arguments, with secrets redacted.
    pub arguments: Value,
}

/// The kind of an event, with its payload.
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
        /// The number of registered tools.
        tools: usize,
    },
    /// `hub.cleared`: all tools were removed.
    HubCleared {
        /// The number of removed tools.
        removed: usize,
    },
    /// `tool.execution.started`: a call passed all checks and its tool starts.
    ExecutionStarted {
        /// The call.
        call_id: CallId,
        /// The agent run the call belongs to.
        #[serde(skip_serializing_if = "Option::is_none")]
        run_id: Option<RunId>,
        /// The tool.
        tool_name: SmolStr,
    },
    /// `tool.execution.completed`: a call succeeded.
    ExecutionCompleted {
        /// The call.
        call_id: CallId,
        /// The agent run the call belongs to.
        #[serde(skip_serializing_if = "Option::is_none")]
        run_id: Option<RunId>,
        /// The tool.
        tool_name: SmolStr,
        /// The side effect of the call.
        effect: Effect,
        /// How long the tool ran.
        #[serde(rename = "durationMs", with = "crate::millis::fractional")]
        #[schemars(with = "f64", range(min = 0))]
        duration: Duration,
        /// Whether the outcome is the stored one of an earlier call.
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
        /// The side effect of the call.
        effect: Effect,
        /// The error kind.
        error: ErrorKind,
        /// The text for operators.
        message: String,
    },
    /// `tool.executed`: a success was recorded in the tool's status.
    ToolExecuted {
        /// The tool.
        tool_name: ToolName,
    },
    /// `tool.failed`: a failure was recorded in the tool's status.
    ToolFailed {
        /// The tool.
        tool_name: ToolName,
        /// The error kind.
        error: ErrorKind,
        /// Whether it counts as a failure of the tool.
        counts: bool,
        /// The text for operators.
        message: String,
    },
    /// `tool.status.changed`: a tool's status changed; without a thread, its shared status.
    StatusChanged {
        /// The tool.
        tool_name: ToolName,
        /// The previous status.
        #[serde(skip_serializing_if = "Option::is_none")]
        old_status: Option<ToolStatus>,
        /// The new status.
        new_status: ToolStatus,
        /// The reason of the new status.
        reason: String,
    },
    /// `tool.availability.changed`: a tool became available or unavailable.
    AvailabilityChanged {
        /// The tool.
        tool_name: ToolName,
        /// Whether it is available.
        available: bool,
        /// The reason.
        reason: String,
    },
    /// `tool.rebind.required`: the tools offered to a thread differ from the list that an agent has bound.
    RebindRequired {
        /// Tools that are available now but not in the bound list.
        added: Vec<ToolName>,
        /// Tools in the bound list that are no longer available.
        removed: Vec<ToolName>,
        /// The reason, as text.
        reason: String,
    },
    /// `tool.executor.cleaned`: an instance, or the connections of a tool, were closed.
    ExecutorCleaned {
        /// The tool.
        tool_name: ToolName,
        /// The reason.
        reason: &'static str,
    },
    /// `tool.executor.exported`: definitions were exported.
    ExecutorExported {
        /// The export format.
        format: Format,
        /// The number of exported tools.
        count: usize,
    },
    /// `approval.requested`: a call waits for the approval of a person.
    ApprovalRequested {
        /// The approval.
        approval_id: ApprovalId,
        /// The call.
        call_id: CallId,
        /// The agent run the call belongs to.
        #[serde(skip_serializing_if = "Option::is_none")]
        run_id: Option<RunId>,
        /// The tool.
        tool_name: ToolName,
        /// The rule that requires approval.
        rule: String,
        /// The reason given in the rule.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// When the approval times out.
        expires_at: Timestamp,
    },
    /// `approval.resolved`: an approval is no longer pending.
    ApprovalResolved {
        /// The approval.
        approval_id: ApprovalId,
        /// The call that needs it.
        call_id: CallId,
        /// The agent run the call belongs to.
        #[serde(skip_serializing_if = "Option::is_none")]
        run_id: Option<RunId>,
        /// The tool.
        tool_name: ToolName,
        /// The new state.
        state: ApprovalState,
        /// The decision, if a person made one.
        #[serde(skip_serializing_if = "Option::is_none")]
        outcome: Option<ApprovalOutcome>,
        /// Who made the decision.
        #[serde(skip_serializing_if = "Option::is_none")]
        by: Option<Caller>,
    },
    /// `call.progress`: a running tool reports progress.
    CallProgress {
        /// The call.
        call_id: CallId,
        /// The agent run the call belongs to.
        #[serde(skip_serializing_if = "Option::is_none")]
        run_id: Option<RunId>,
        /// The tool.
        tool_name: ToolName,
        /// The message of the tool.
        message: String,
        /// The completed fraction from 0 to 1, if the tool knows it.
        #[serde(skip_serializing_if = "Option::is_none")]
        fraction: Option<f64>,
        /// How much is done, in a unit of the tool.
        #[serde(skip_serializing_if = "Option::is_none")]
        done: Option<f64>,
        /// How much there is to do, in the same unit.
        #[serde(skip_serializing_if = "Option::is_none")]
        total: Option<f64>,
    },
    /// `call.log`: a running tool logs a line.
    CallLog {
        /// The call.
        call_id: CallId,
        /// The agent run the call belongs to.
        #[serde(skip_serializing_if = "Option::is_none")]
        run_id: Option<RunId>,
        /// The tool.
        tool_name: ToolName,
        /// The level, as the tool names it.
        level: String,
        /// The text.
        message: String,
    },
    /// `run.started`: an agent started to work on a message.
    RunStarted {
        /// The run.
        run_id: RunId,
        /// The agent.
        agent: SmolStr,
    },
    /// `run.completed`: a run ended without a failure.
    RunCompleted {
        /// The run.
        run_id: RunId,
        /// The final status of the run.
        status: SmolStr,
        /// The number of steps.
        steps: u32,
        /// Why the model stopped: `end`, `length` if its answer was truncated, or `refusal`.
        #[serde(skip_serializing_if = "Option::is_none")]
        stop: Option<SmolStr>,
    },
    /// `run.failed`: a run failed.
    RunFailed {
        /// The run.
        run_id: RunId,
        /// The number of steps.
        steps: u32,
        /// The stable error code.
        code: SmolStr,
        /// The error message.
        message: String,
    },
    /// `message.delta`: a streamed part of a model's message.
    MessageDelta {
        /// The run.
        run_id: RunId,
        /// The part of the text.
        text: String,
        /// Whether the message restarts: discard the deltas received for it so far.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        again: bool,
    },
    /// `message.completed`: a model's message is complete.
    MessageCompleted {
        /// The run.
        run_id: RunId,
        /// The role of the author: `assistant`.
        role: SmolStr,
        /// The text of the message.
        content: String,
        /// The calls it requests.
        calls: Vec<MessageCall>,
    },
    /// `thread.swept`: a thread and everything stored for it were deleted.
    ThreadSwept {
        /// The reason.
        reason: &'static str,
        /// The number of deleted rows.
        rows: usize,
    },
    /// `config.reloaded`: a new configuration is in effect.
    ConfigReloaded {
        /// New tools.
        added: Vec<ToolName>,
        /// Tools whose definition was replaced.
        replaced: Vec<ToolName>,
        /// Removed tools.
        removed: Vec<ToolName>,
        /// Unchanged tools with new limits or rules.
        adjusted: Vec<ToolName>,
        /// Changed settings that take effect only after a restart.
        needs_restart: Vec<String>,
    },
    /// `mcp.server.connected`: the tools of an MCP server can be called.
    ServerConnected {
        /// The server.
        server_name: String,
        /// The number of its tools.
        tools: usize,
    },
    /// `mcp.server.disconnected`: the tools of an MCP server are unavailable.
    ServerDisconnected {
        /// The server.
        server_name: String,
        /// The number of its tools.
        tools: usize,
        /// Why.
        reason: String,
    },
    /// `store.lost`: the store has lost commits that it had acknowledged to this node, in a fail-over for example.
    StoreLost {
        /// How many, those of other tenants included.
        commits: u64,
        /// When the first of them was acknowledged, as far as this node remembers.
        since: Timestamp,
        /// Partitions that they changed, at most 20: tenant and thread.
        partitions: Vec<String>,
        /// How many partitions are not named.
        other_partitions: u64,
        /// Calls whose records they wrote, at most 20.
        calls: Vec<CallId>,
        /// How many calls are not named.
        other_calls: u64,
    },
    /// `node.joined`: a node of a shared store has started.
    NodeJoined {
        /// The node.
        node_id: SmolStr,
        /// Its name.
        node_name: SmolStr,
    },
    /// `node.left`: a node of a shared store was shut down, or is dead.
    NodeLeft {
        /// The node.
        node_id: SmolStr,
        /// Its name.
        node_name: SmolStr,
        /// The reason.
        reason: SmolStr,
    },
    /// `alert.failed`: a message to an alert target was not delivered, or the target was disabled.
    AlertFailed {
        /// The target.
        alert_target: SmolStr,
        /// The message.
        message_id: SmolStr,
        /// Why.
        reason: String,
        /// Whether the target gets no more messages, because it asked for that.
        disabled: bool,
    },
    /// `metrics.tick`: what calls did on this node within about the last second.
    MetricsTick {
        /// The time that the numbers are about, in seconds.
        seconds: f64,
        /// How many calls ended after they had reached their tool or its result cache, by outcome: `success` or the error.
        calls: BTreeMap<&'static str, u64>,
        /// How many calls were refused before, by error.
        refusals: BTreeMap<&'static str, u64>,
        /// How many calls were answered from the result cache.
        cache_hits: u64,
        /// How many calls are executing.
        in_flight: u64,
        /// How many calls wait for a slot.
        queued: usize,
        /// 95 of 100 of these calls took no longer; absent if there were none.
        #[serde(rename = "p95Ms", skip_serializing_if = "Option::is_none")]
        p95: Option<f64>,
        /// The same for the calls of the last minute.
        #[serde(rename = "p95MinuteMs", skip_serializing_if = "Option::is_none")]
        p95_minute: Option<f64>,
    },
    /// `stream.thinned`: events about calls that were not sent to this client, because they were more than it asked for.
    StreamThinned {
        /// How many, by name, since the last event of this kind.
        counts: BTreeMap<&'static str, u64>,
    },
    /// `stream.reset`: this subscriber fell behind and missed events.
    StreamReset,
}

//! The names of events, and what is known of an event by its kind.

use super::{EventClass, EventKind};
use crate::ids::RunId;

impl EventKind {
    /// The names of all events, in the order of the variants.
    pub const NAMES: &'static [&'static str] = &[
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
        "call.log",
        "run.started",
        "run.completed",
        "run.failed",
        "message.delta",
        "message.completed",
        "thread.swept",
        "config.reloaded",
        "mcp.server.connected",
        "mcp.server.disconnected",
        "store.lost",
        "node.joined",
        "node.left",
        "alert.failed",
        "metrics.tick",
        "stream.thinned",
        "stream.reset",
    ];

    /// Whether the event is stored, so that a subscriber can resume after it. Events of calls are not: the journal has them.
    pub fn is_persisted(&self) -> bool {
        matches!(
            self,
            Self::StatusChanged { .. }
                | Self::ApprovalRequested { .. }
                | Self::ApprovalResolved { .. }
                | Self::ConfigReloaded { .. }
                | Self::ServerConnected { .. }
                | Self::ServerDisconnected { .. }
                | Self::StoreLost { .. }
                | Self::NodeJoined { .. }
                | Self::NodeLeft { .. }
                | Self::AlertFailed { .. }
        )
    }

    /// Whether the nodes of a shared store pass the event on to each other, for listeners that follow its thread: the life and progress
    /// of calls and runs. Events about availability are not: every node notices by itself.
    pub fn is_relayed(&self) -> bool {
        matches!(
            self,
            Self::ExecutionStarted { .. }
                | Self::ExecutionCompleted { .. }
                | Self::ExecutionFailed { .. }
                | Self::CallProgress { .. }
                | Self::CallLog { .. }
                | Self::RunStarted { .. }
                | Self::RunCompleted { .. }
                | Self::RunFailed { .. }
                | Self::MessageDelta { .. }
                | Self::MessageCompleted { .. }
        )
    }

    /// The agent run the event belongs to.
    #[must_use]
    pub fn run_id(&self) -> Option<RunId> {
        match self {
            Self::ExecutionStarted { run_id, .. }
            | Self::ExecutionCompleted { run_id, .. }
            | Self::ExecutionFailed { run_id, .. }
            | Self::ApprovalRequested { run_id, .. }
            | Self::ApprovalResolved { run_id, .. }
            | Self::CallProgress { run_id, .. }
            | Self::CallLog { run_id, .. } => *run_id,
            Self::RunStarted { run_id, .. }
            | Self::RunCompleted { run_id, .. }
            | Self::RunFailed { run_id, .. }
            | Self::MessageDelta { run_id, .. }
            | Self::MessageCompleted { run_id, .. } => Some(*run_id),
            _ => None,
        }
    }

    /// The class of the event.
    #[must_use]
    pub fn class(&self) -> EventClass {
        EventClass::of(self.name())
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
            Self::CallLog { .. } => "call.log",
            Self::RunStarted { .. } => "run.started",
            Self::RunCompleted { .. } => "run.completed",
            Self::RunFailed { .. } => "run.failed",
            Self::MessageDelta { .. } => "message.delta",
            Self::MessageCompleted { .. } => "message.completed",
            Self::ThreadSwept { .. } => "thread.swept",
            Self::ConfigReloaded { .. } => "config.reloaded",
            Self::ServerConnected { .. } => "mcp.server.connected",
            Self::ServerDisconnected { .. } => "mcp.server.disconnected",
            Self::StoreLost { .. } => "store.lost",
            Self::NodeJoined { .. } => "node.joined",
            Self::NodeLeft { .. } => "node.left",
            Self::AlertFailed { .. } => "alert.failed",
            Self::MetricsTick { .. } => "metrics.tick",
            Self::StreamThinned { .. } => "stream.thinned",
            Self::StreamReset => "stream.reset",
        }
    }
}

//! Rows of a backend, addressed by partition, table and id.

use std::{fmt, sync::Arc};

use smol_str::SmolStr;

use super::Partition;
use toolhub_types::timestamp::Timestamp;

/// The types of durable records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Table {
    /// Calls that have finished.
    Calls,
    /// Which call an idempotency key belongs to.
    Claims,
    /// Tool state.
    State,
    /// Content that is too long for the model.
    Artifacts,
    /// Which tools have succeeded in a thread.
    Evidence,
    /// Status records of tools that have failed or were overridden.
    Statuses,
    /// Approval requests for calls, and the decisions.
    Approvals,
    /// Standing grants.
    Grants,
    /// History events of states.
    History,
    /// Earlier values of states.
    Versions,
    /// The existing threads.
    Threads,
    /// Calls that were opened and have not finished.
    OpenCalls,
    /// The nodes that run calls, with their heartbeats.
    Nodes,
    /// The event log.
    Events,
    /// API keys; only a one-way hash of the secret is stored.
    Keys,
    /// The audit log of API callers.
    Audit,
    /// Tools that were created at run time, as they were requested.
    Tools,
    /// Agent runs of threads: the finished ones, and under [`Table::OPEN_RUN`] the open one.
    Runs,
    /// Messages of threads.
    Messages,
    /// What is remembered of MCP servers: their protocol, and the approved definitions of their tools.
    McpServers,
    /// Sessions of MCP clients.
    McpSessions,
    /// Usage of rate limits that several nodes share.
    Rates,
    /// What one node asks of another: to cancel a call or run, or to accept the result of an external call.
    Requests,
    /// How many calls of a tool run on each node, for tools whose concurrency all nodes share.
    Permits,
    /// Events that nodes pass on to each other, and which threads they follow.
    Relay,
    /// Alerts: signals of changes, records, and the messages about them.
    Alerts,
}

impl Table {
    /// Every table.
    pub const ALL: [Self; 26] = [
        Self::Calls,
        Self::Claims,
        Self::State,
        Self::Artifacts,
        Self::Evidence,
        Self::Statuses,
        Self::Approvals,
        Self::Grants,
        Self::History,
        Self::Versions,
        Self::Threads,
        Self::OpenCalls,
        Self::Nodes,
        Self::Events,
        Self::Keys,
        Self::Audit,
        Self::Tools,
        Self::Runs,
        Self::Messages,
        Self::McpServers,
        Self::McpSessions,
        Self::Rates,
        Self::Requests,
        Self::Permits,
        Self::Relay,
        Self::Alerts,
    ];

    /// The row id of a thread's open run in the table [`Runs`](Self::Runs). There is at most one, and a thread that
    /// has it is not idle.
    pub const OPEN_RUN: &'static str = "~";

    /// Whether the oldest rows of this table may be removed when a store comes near its size limit: the journal with its events
    /// and artifacts, and threads that hold nothing else.
    #[must_use]
    pub const fn is_trimmable(self) -> bool {
        matches!(self, Self::Calls | Self::Events | Self::Artifacts | Self::Threads | Self::Evidence)
    }

    /// The name in files, database tables and keys.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Calls => "calls",
            Self::Claims => "claims",
            Self::State => "state",
            Self::Artifacts => "artifacts",
            Self::Evidence => "evidence",
            Self::Statuses => "statuses",
            Self::Approvals => "approvals",
            Self::Grants => "grants",
            Self::History => "history",
            Self::Versions => "versions",
            Self::Threads => "threads",
            Self::OpenCalls => "open",
            Self::Nodes => "nodes",
            Self::Events => "events",
            Self::Keys => "keys",
            Self::Audit => "audit",
            Self::Tools => "tools",
            Self::Runs => "runs",
            Self::Messages => "messages",
            Self::McpServers => "mcp_servers",
            Self::McpSessions => "mcp_sessions",
            Self::Rates => "rates",
            Self::Requests => "requests",
            Self::Permits => "permits",
            Self::Relay => "relay",
            Self::Alerts => "alerts",
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The full key of a row.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RowKey {
    /// The partition it belongs to.
    pub partition: Partition,
    /// The table it belongs to.
    pub table: Table,
    /// Unique within the partition and table.
    pub id: SmolStr,
}

/// A stored record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The version of the row.
    pub version: RowVersion,
    /// The version of the record's own layout, for migrations.
    pub schema: u32,
    /// The record: JSON text, or the bytes of an artifact.
    pub value: Arc<[u8]>,
    /// When it expires.
    pub expires: Option<Timestamp>,
    /// When it was created: the `now` of its first put.
    pub created: Timestamp,
    /// When it was last written: the `now` of its last put.
    pub updated: Timestamp,
}

/// The version of a row, unique across removal and recreation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RowVersion {
    /// How often the row has been written since it was created.
    pub number: u64,
    /// The stamp of the batch that wrote it.
    pub stamp: u64,
}

impl Row {
    /// Whether the row has expired.
    #[must_use]
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|at| at <= now)
    }
}

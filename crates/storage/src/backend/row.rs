//! What a backend keeps: rows, found by table and id inside a partition.

use std::{fmt, sync::Arc};

use smol_str::SmolStr;

use super::Partition;
use toolhub_types::timestamp::Timestamp;

/// The sorts of durable records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Table {
    /// Calls that have ended.
    Calls,
    /// Which call an idempotency key belongs to.
    Claims,
    /// What tools remember.
    State,
    /// Content too long for the model.
    Artifacts,
    /// Which tools have succeeded in a thread.
    Evidence,
    /// What is known about tools that made trouble.
    Statuses,
    /// Questions to people about calls, and their answers.
    Approvals,
    /// What people have allowed for good.
    Grants,
    /// What happened to states.
    History,
    /// What states were like before.
    Versions,
    /// Which threads there are.
    Threads,
    /// Calls that were opened and have not ended.
    OpenCalls,
    /// Which nodes run calls, and say so again and again.
    Nodes,
    /// Events that can be heard later.
    Events,
    /// What callers from outside show to say who they are; only what cannot be turned back is kept of it.
    Keys,
    /// Who from outside did what.
    Audit,
    /// Tools that were made at run time, as they were asked for.
    Tools,
    /// What agents did in threads: the runs that have ended, and under [`Table::OPEN_RUN`] the one that has not.
    Runs,
    /// What was said in threads.
    Messages,
}

impl Table {
    /// Every table.
    pub const ALL: [Self; 19] = [
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
    ];

    /// The id of the run that is open in a thread, in the table [`Runs`](Self::Runs). There is one at most, and a thread that
    /// has it is not idle.
    pub const OPEN_RUN: &'static str = "~";

    /// The word in file, table and key names.
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
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The full name of a row.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RowKey {
    /// The rows it is committed with.
    pub partition: Partition,
    /// What sort of record it is.
    pub table: Table,
    /// Which one; unique in the partition and table.
    pub id: SmolStr,
}

/// A stored record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Which writing of the row this is.
    pub version: RowVersion,
    /// The version of the record's own layout, for migrations.
    pub schema: u32,
    /// The record: JSON text, or the bytes of an artifact.
    pub value: Arc<[u8]>,
    /// When it ceases to exist.
    pub expires: Option<Timestamp>,
    /// When it was made: the `now` of its first put.
    pub created: Timestamp,
    /// When it was written last: the `now` of its last put.
    pub updated: Timestamp,
}

/// One writing of a row, told apart from every other one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowVersion {
    /// How often the row has been written since it was made.
    pub number: u64,
    /// The stamp of the batch that wrote it.
    pub stamp: u64,
}

impl Row {
    /// Whether its time has passed.
    #[must_use]
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|at| at <= now)
    }
}

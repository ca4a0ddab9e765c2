//! The table of error kinds: one row for everything the rest of the house wants to know about a kind.
//!
//! Nobody else decides what counts, what may be retried or which HTTP status fits; they read a column.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Whether a failure speaks against the tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountsAsFailure {
    /// It counts.
    Yes,
    /// It never counts.
    No,
    /// It counts only for a tool that asks for it (`count_tool_errors`).
    OptIn,
}

/// Whose record a counted failure is kept in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureScope {
    /// Nobody's.
    Nobody,
    /// The thread's own.
    Thread,
    /// The thread's own; everybody's too once two threads have it, or when it happened while connecting.
    ThreadThenShared,
    /// Everybody's.
    Shared,
}

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub struct ErrorRow {
    /// The kind this row describes.
    pub kind: ErrorKind,
    /// The stable name in records, answers and metrics.
    pub name: &'static str,
    /// Whether it speaks against the tool.
    pub counts: CountsAsFailure,
    /// Whose record it counts in.
    pub scope: FailureScope,
    /// Whether trying the same call again may help.
    pub retryable: bool,
    /// The status of an HTTP answer. 200: the call ran, its outcome tells the rest.
    pub http: u16,
    /// What an operator reads where nothing more exact is known.
    pub operator: &'static str,
    /// What a model may read where nothing more exact is known.
    pub model: &'static str,
}

macro_rules! table {
    ($($kind:ident $name:literal $counts:ident $scope:ident $retry:ident $http:literal $operator:literal $model:literal;)*) => {
        /// What went wrong with a call.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorKind { $(#[doc = $operator] $kind,)* }

        impl ErrorKind {
            /// The whole table, in the order of the documentation.
            pub const TABLE: &'static [ErrorRow] = &[$(ErrorRow {
                kind: Self::$kind, name: $name, counts: CountsAsFailure::$counts, scope: FailureScope::$scope,
                retryable: table!(@ $retry), http: $http, operator: $operator, model: $model,
            },)*];
        }
    };
    (@ retry) => { true };
    (@ final) => { false };
}

table! {
    ToolNotFound "tool_not_found" No Nobody final 404
        "no tool has this name"
        "There is no tool with this name. Use one of the tools you were given.";
    ArgumentsInvalid "arguments_invalid" No Nobody final 422
        "the arguments do not fit the tool's schema"
        "The arguments are not valid. Correct them and call the tool again.";
    DependencyNotMet "dependency_not_met" No Nobody final 409
        "a tool that must succeed first has not succeeded in this thread"
        "Another tool must be called successfully first.";
    RateLimited "rate_limited" No Nobody final 429
        "the rate limit of the tool or the caller is reached"
        "Too many calls. Wait before calling this tool again.";
    Overloaded "overloaded" No Nobody retry 503
        "no slot is free and the queue is full"
        "The tool is busy. Try again in a moment.";
    ApprovalRequired "approval_required" No Nobody final 403
        "a person must approve this call first"
        "A person must approve this call. Make the same call again once it is approved.";
    ApprovalDenied "approval_denied" No Nobody final 403
        "a person refused this call"
        "A person refused this call. Do not try it again unless asked to.";
    ApprovalTimeout "approval_timeout" No Nobody final 504
        "nobody approved this call in time"
        "Nobody approved this call in time, so it was not made.";
    Forbidden "forbidden" No Nobody final 403
        "a rule forbids this call"
        "This call is not allowed. Do not try it again.";
    IdempotencyKeyReused "idempotency_key_reused" No Nobody final 422
        "the idempotency key was used before with other arguments"
        "This call was made before with other arguments under the same key.";
    IdempotencyInProgress "idempotency_in_progress" No Nobody final 409
        "a call with this idempotency key is still running"
        "The same call is still running. Wait for its result.";
    ToolFailedStatus "tool_failed_status" No Nobody final 503
        "the tool failed too often and is withheld for now"
        "This tool failed repeatedly and is switched off for now. Go on without it.";
    ToolMaintenance "tool_maintenance" No Nobody final 503
        "the tool is under maintenance"
        "This tool is under maintenance. Go on without it.";
    ToolUnavailable "tool_unavailable" No Nobody final 503
        "the tool is disabled, disconnected or has no implementation"
        "This tool is not available at the moment. Go on without it.";
    ToolError "tool_error" Yes Thread final 200
        "the tool ran and failed"
        "The tool failed.";
    ToolRefused "tool_error" OptIn Thread final 200
        "the tool ran and said no"
        "The tool refused this call.";
    Crashed "crashed" Yes Thread final 200
        "the tool crashed"
        "The tool crashed. What it was doing may be half done.";
    Timeout "timeout" Yes ThreadThenShared retry 200
        "the tool did not answer in time"
        "The tool did not answer in time.";
    UpstreamUnreachable "upstream_unreachable" Yes Shared retry 200
        "the service behind the tool cannot be reached"
        "The service behind this tool cannot be reached.";
    UpstreamError "upstream_error" Yes Shared retry 200
        "the service behind the tool answered with a failure"
        "The service behind this tool has a problem.";
    StateConflict "state_conflict" No Nobody final 409
        "the state was changed by another call in the meantime"
        "The tool's state was changed by another call in the meantime. Look at it again before you go on.";
    StateNotFound "state_not_found" No Nobody final 404
        "there is no such state, or it has expired"
        "The tool remembers nothing here.";
    StateTooLarge "state_too_large" No Nobody final 413
        "the state is larger than allowed; nothing was changed"
        "The tool cannot remember that much. Nothing was changed.";
    StateUnreadable "state_unreadable" No Nobody final 500
        "the stored state cannot be read by this version of the tool"
        "The tool cannot read what it remembered.";
    StateLimit "state_limit" No Nobody final 409
        "the thread keeps as many states as it may"
        "This conversation keeps too many things in mind already.";
    StoreUnavailable "store_unavailable" No Nobody retry 503
        "the store does not answer"
        "The tool's memory does not answer at the moment.";
    ShuttingDown "shutting_down" No Nobody retry 503
        "the hub is shutting down and takes no new calls"
        "The tool system is restarting. Try again in a moment.";
    Cancelled "cancelled" No Nobody final 200
        "the call was cancelled"
        "The call was cancelled.";
    Interrupted "interrupted" No Nobody final 200
        "the node that ran the call stopped before it ended"
        "The call was interrupted. Whether it took effect is not known; look before you repeat it.";
    Internal "internal" No Nobody final 500
        "toolhub itself failed; this is a bug"
        "Something went wrong inside the tool system.";
}

crate::text_schema! { ErrorKind "the stable name of what went wrong" { "enum": unique_names() } }

/// Every name, once.
fn unique_names() -> Vec<&'static str> {
    let mut names: Vec<_> = ErrorKind::TABLE.iter().map(|row| row.name).collect();
    names.dedup();
    names
}

impl ErrorKind {
    /// Whether a tool or an executor may raise it. The others say something about the call that only the hub knows.
    pub fn is_raised_by_tools(self) -> bool {
        use ErrorKind::{Crashed, Overloaded, Timeout, ToolError, ToolRefused, UpstreamError, UpstreamUnreachable};
        matches!(self, ToolError | ToolRefused | Crashed | Timeout | UpstreamUnreachable | UpstreamError | Overloaded)
    }

    /// This kind's row of the table.
    #[must_use]
    pub fn row(self) -> &'static ErrorRow {
        // The macro writes the variants and the rows from one list, so a variant's number is its row.
        &Self::TABLE[self as usize]
    }

    /// The stable name in records, answers and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().name
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for ErrorKind {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for ErrorKind {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        let row = Self::TABLE.iter().find(|row| row.name == name);
        row.map(|row| row.kind).ok_or_else(|| serde::de::Error::custom(format!("unknown error kind `{name}`")))
    }
}

//! The table of error kinds: name, counting, scope, retryability, HTTP status and default texts of each.
//!
//! The single source of these decisions: other modules read a column and never decide for themselves what counts, what may be retried or
//! which HTTP status applies.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Whether an error counts as a failure of the tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountsAsFailure {
    /// It counts.
    Yes,
    /// It never counts.
    No,
    /// It counts only for tools with `count_tool_errors`.
    OptIn,
}

/// Which status record a counted failure goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureScope {
    /// None; the kind is never counted.
    None,
    /// The thread's record.
    Thread,
    /// The thread's record; also the shared one once two threads have the failure, or if it happened while connecting.
    ThreadThenShared,
    /// The shared record.
    Shared,
}

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub struct ErrorRow {
    /// The kind this row describes.
    pub kind: ErrorKind,
    /// The stable name in records, responses and metrics.
    pub name: &'static str,
    /// Whether it counts as a failure of the tool.
    pub counts: CountsAsFailure,
    /// Which status record it counts in.
    pub scope: FailureScope,
    /// Whether the same call may succeed if it is made again.
    pub retryable: bool,
    /// The HTTP status of the response. 200: the call ran, and its outcome carries the error.
    pub http: u16,
    /// The default text for operators.
    pub operator: &'static str,
    /// The default text for models.
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
    ToolNotFound "tool_not_found" No None final 404
        "no tool has this name"
        "There is no tool with this name. Use one of the tools you were given.";
    ArgumentsInvalid "arguments_invalid" No None final 422
        "the arguments do not fit the tool's schema"
        "The arguments are not valid. Correct them and call the tool again.";
    DependencyNotMet "dependency_not_met" No None final 409
        "a tool that must succeed first has not succeeded in this thread"
        "Another tool must be called successfully first.";
    RateLimited "rate_limited" No None final 429
        "the rate limit of the tool or the caller is reached"
        "Too many calls. Wait before calling this tool again.";
    Overloaded "overloaded" No None retry 503
        "no slot is free and the queue is full"
        "The tool is busy. Try again in a moment.";
    ApprovalRequired "approval_required" No None final 403
        "a person must approve this call first"
        "A person must approve this call. Make the same call again once it is approved.";
    ApprovalDenied "approval_denied" No None final 403
        "a person refused this call"
        "A person refused this call. Do not try it again unless asked to.";
    ApprovalTimeout "approval_timeout" No None final 504
        "the approval request timed out"
        "This call was not approved in time, so it was not made.";
    Forbidden "forbidden" No None final 403
        "a rule forbids this call"
        "This call is not allowed. Do not try it again.";
    IdempotencyKeyReused "idempotency_key_reused" No None final 422
        "the idempotency key was used before with other arguments"
        "This call was made before with other arguments under the same key.";
    IdempotencyInProgress "idempotency_in_progress" No None final 409
        "a call with this idempotency key is still running"
        "The same call is still running. Wait for its result.";
    ToolFailedStatus "tool_failed_status" No None final 503
        "the tool failed too often and its circuit breaker is open"
        "This tool failed repeatedly and is withheld for now. Go on without it.";
    ToolMaintenance "tool_maintenance" No None final 503
        "the tool is in maintenance"
        "This tool is in maintenance. Go on without it.";
    ToolUnavailable "tool_unavailable" No None final 503
        "the tool is disabled, disconnected or has no implementation"
        "This tool is not available at the moment. Go on without it.";
    ToolError "tool_error" Yes Thread final 200
        "the tool ran and failed"
        "The tool failed.";
    ToolRefused "tool_error" OptIn Thread final 200
        "the tool ran and refused the request"
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
    StateConflict "state_conflict" No None final 409
        "the state was changed by another call in the meantime"
        "The tool's state was changed by another call in the meantime. Look at it again before you go on.";
    StateNotFound "state_not_found" No None final 404
        "there is no such state, or it has expired"
        "The tool remembers nothing here.";
    StateTooLarge "state_too_large" No None final 413
        "the state is larger than allowed; nothing was changed"
        "The tool cannot remember that much. Nothing was changed.";
    StateUnreadable "state_unreadable" No None final 500
        "the stored state cannot be read by this version of the tool"
        "The tool cannot read what it remembered.";
    StateLimit "state_limit" No None final 409
        "the thread has reached its limit of stored states"
        "This conversation keeps too many things in mind already.";
    StoreUnavailable "store_unavailable" No None retry 503
        "the store does not answer"
        "The tool's memory does not answer at the moment.";
    ShuttingDown "shutting_down" No None retry 503
        "the hub is shutting down and takes no new calls"
        "The tool system is restarting. Try again in a moment.";
    Cancelled "cancelled" No None final 200
        "the call was cancelled"
        "The call was cancelled.";
    Interrupted "interrupted" No None final 200
        "the node that ran the call stopped before it ended"
        "The call was interrupted. Whether it took effect is not known; look before you repeat it.";
    Internal "internal" No None final 500
        "toolhub itself failed; this is a bug"
        "Something went wrong inside the tool system.";
}

crate::text_schema! { ErrorKind "the stable name of the error kind" { "enum": unique_names() } }

/// All names without duplicates; the rows that share a name are adjacent.
fn unique_names() -> Vec<&'static str> {
    let mut names: Vec<_> = ErrorKind::TABLE.iter().map(|row| row.name).collect();
    names.dedup();
    names
}

impl ErrorKind {
    /// Whether a tool or an executor may raise it. Only the hub can know that another kind applies.
    pub fn is_raised_by_tools(self) -> bool {
        use ErrorKind::{Crashed, Overloaded, Timeout, ToolError, ToolRefused, UpstreamError, UpstreamUnreachable};
        matches!(self, ToolError | ToolRefused | Crashed | Timeout | UpstreamUnreachable | UpstreamError | Overloaded)
    }

    /// This kind's row of the table.
    #[must_use]
    pub fn row(self) -> &'static ErrorRow {
        // The macro generates variants and rows from one list, so a variant's discriminant is the index of its row.
        &Self::TABLE[self as usize]
    }

    /// The stable name in records, responses and metrics.
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
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for ErrorKind {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let row = Self::TABLE.iter().find(|row| row.name == name);
        row.map(|row| row.kind).ok_or_else(|| serde::de::Error::custom(format!("unknown error kind `{name}`")))
    }
}

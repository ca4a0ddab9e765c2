//! States of an approval, and the decisions a person can make about it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The state of an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalState {
    /// No decision yet.
    Pending,
    /// Approved; one call may use it.
    Approved,
    /// Denied.
    Denied,
    /// No decision in time, which counts as denied.
    TimedOut,
    /// The caller gave up before a decision.
    Withdrawn,
    /// A call has used it.
    Used,
}

impl ApprovalState {
    /// The name of the state for messages.
    #[must_use]
    pub fn display_name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Denied => "denied",
            Self::TimedOut => "timed out",
            Self::Withdrawn => "withdrawn",
            Self::Used => "used",
        }
    }
}

/// The decision of a person about an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalOutcome {
    /// Approve this call only.
    ProceedOnce,
    /// Approve, and grant all further calls of this tool in this thread.
    ProceedAlways,
    /// Approve, and grant all further calls of this tool in all threads of the tenant.
    ProceedAlwaysTool,
    /// Approve, and grant all further calls of all tools of its server, in all threads of the tenant.
    ProceedAlwaysServer,
    /// Approve with edited arguments.
    ModifyWithEditor,
    /// Deny.
    Cancel,
}

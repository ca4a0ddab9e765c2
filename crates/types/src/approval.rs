//! What a person may answer to a question about a call, and where such a question stands.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where an approval stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalState {
    /// Nobody has answered yet.
    Pending,
    /// Yes; one call may be made on it.
    Approved,
    /// No.
    Denied,
    /// Nobody answered in time, which is a no.
    TimedOut,
    /// The caller gave up before anybody answered.
    Withdrawn,
    /// A call was made on it.
    Used,
}

impl ApprovalState {
    /// The state in words, for a sentence.
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

/// What a person may answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalOutcome {
    /// Yes, this once.
    ProceedOnce,
    /// Yes, and from now on for this tool in this thread.
    ProceedAlways,
    /// Yes, and from now on for this tool in all threads of the tenant.
    ProceedAlwaysTool,
    /// Yes, and from now on for all tools of the server it comes from, in all threads of the tenant.
    ProceedAlwaysServer,
    /// Yes, with these arguments instead.
    ModifyWithEditor,
    /// No.
    Cancel,
}

//! How far a call has come when its caller is told.

use toolhub_types::{
    ids::{ApprovalId, CallId, ThreadId},
    outcome::Outcome,
};

/// How far a call has come. In all cases but the first it goes on by itself, and its record is in the journal: also if this
/// process dies now.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "the common answer is the large one, and lives for a moment")]
#[non_exhaustive]
pub enum CallReceipt {
    /// It has ended.
    Ended(Outcome),
    /// A person was asked.
    AwaitingApproval {
        /// The call.
        call: CallId,
        /// The question.
        approval: ApprovalId,
        /// The conversation; minted where the tool needs one and the caller named none.
        thread: Option<ThreadId>,
    },
    /// It waits for its turn, or runs.
    Accepted {
        /// The call.
        call: CallId,
        /// The conversation; minted where the tool needs one and the caller named none.
        thread: Option<ThreadId>,
    },
}

impl CallReceipt {
    /// The end, if it is there.
    #[must_use]
    pub fn into_outcome(self) -> Option<Outcome> {
        if let Self::Ended(outcome) = self { Some(outcome) } else { None }
    }
}

//! `CallReceipt`: the answer to a caller that does not wait for the outcome.

use toolhub_types::{
    ids::{ApprovalId, CallId, ThreadId},
    outcome::Outcome,
};

/// The state of a call when it was accepted. Unless it has ended, it continues without its caller, and its record is in the
/// journal, so that it survives a crash of this process.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "the common variant is the large one, and short-lived")]
#[non_exhaustive]
pub enum CallReceipt {
    /// The call has ended.
    Ended(Outcome),
    /// The call waits for approval.
    AwaitingApproval {
        /// The call.
        call: CallId,
        /// The approval.
        approval: ApprovalId,
        /// The thread; minted if the tool needs one and the caller named none.
        thread: Option<ThreadId>,
    },
    /// The call is queued or runs.
    Accepted {
        /// The call.
        call: CallId,
        /// The thread; minted if the tool needs one and the caller named none.
        thread: Option<ThreadId>,
    },
}

impl CallReceipt {
    /// The outcome, if the call has ended.
    #[must_use]
    pub fn into_outcome(self) -> Option<Outcome> {
        if let Self::Ended(outcome) = self { Some(outcome) } else { None }
    }
}

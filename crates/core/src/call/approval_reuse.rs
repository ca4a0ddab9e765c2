//! `ApprovalReuse`: which approvals of identical calls a call may use.

use toolhub_types::ids::ApprovalId;

/// Which approvals of earlier, identical calls a call may use. Grants apply in any case.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ApprovalReuse {
    /// All: answers that no call has used, and pending requests, which the call joins.
    #[default]
    All,
    /// Answers that no call has used. A pending request belongs to the call that made it, and this call makes its own.
    Answered,
    /// Only this one, with its answer: a denial counts even if a grant was given since.
    Only(ApprovalId),
}

impl ApprovalReuse {
    /// Whether the call must not use the approval of another call.
    pub(crate) fn excludes(self, id: ApprovalId, is_pending: bool) -> bool {
        match self {
            Self::All => false,
            Self::Answered => is_pending,
            Self::Only(own) => own != id,
        }
    }
}

//! `ApprovalReuse`: which approvals of identical calls a call may use.

use toolhub_types::ids::ApprovalId;

/// Which approvals of earlier, identical calls a call may use. Grants apply in any case.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ApprovalReuse {
    /// All: answers that no call has used, and pending requests that do not belong to another call, which the call joins.
    #[default]
    All,
    /// Answers that no call has used. The call makes a request of its own, which identical calls do not join.
    Answered,
    /// Only this one, with its answer: a denial counts even if a grant was given since.
    Only(ApprovalId),
}

impl ApprovalReuse {
    /// Whether the call must not use the approval of another call, to which it may belong exclusively.
    pub(crate) fn excludes(self, id: ApprovalId, is_pending: bool, is_exclusive: bool) -> bool {
        match self {
            Self::All => is_pending && is_exclusive,
            Self::Answered => is_pending,
            Self::Only(own) => own != id,
        }
    }

    /// Whether a request that the call makes belongs to it.
    pub(crate) fn is_exclusive(self) -> bool {
        self != Self::All
    }
}

//! `CallerWait`: what a caller waits for, and whether the call outlives it.

/// What a caller waits for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum CallerWait {
    /// The outcome, including a pending approval. If the caller is dropped, the call is cancelled.
    #[default]
    Outcome,
    /// The outcome, but not an approval: if one is required, the call ends.
    NoApproval,
    /// The outcome or a pending approval. From then on the call continues without its caller.
    UntilApproval,
    /// Nothing: the call continues without its caller from the start.
    Detached,
    /// Like `Detached`, but if an approval is required, the call ends.
    DetachedNoApproval,
}

impl CallerWait {
    /// The same, for a call that outlives its caller.
    #[must_use]
    pub(crate) fn detached(self) -> Self {
        if self.waits_for_approval() { Self::Detached } else { Self::DetachedNoApproval }
    }

    /// The same, for a caller that does not wait for approval.
    #[must_use]
    pub(crate) fn no_approval(self) -> Self {
        if self.is_detached() { Self::DetachedNoApproval } else { Self::NoApproval }
    }

    /// The same, for a caller that waits only until an approval is pending.
    #[must_use]
    pub(crate) fn until_approval(self) -> Self {
        if self == Self::Outcome { Self::UntilApproval } else { self }
    }

    /// Whether the call outlives its caller from the start.
    pub(crate) fn is_detached(self) -> bool {
        matches!(self, Self::Detached | Self::DetachedNoApproval)
    }

    /// Whether the call may wait for approval.
    pub(crate) fn waits_for_approval(self) -> bool {
        !matches!(self, Self::NoApproval | Self::DetachedNoApproval)
    }

    /// Whether the call may wait for approval without its caller: then its record is stored before the approval is requested.
    pub(crate) fn outlives_approval(self) -> bool {
        matches!(self, Self::UntilApproval | Self::Detached)
    }
}

#[cfg(test)]
mod tests {
    use super::CallerWait::{self, *};

    #[track_caller]
    fn check(wait: CallerWait, expected: CallerWait, facts: [bool; 3]) {
        assert_eq!(wait, expected);
        assert_eq!([wait.is_detached(), wait.waits_for_approval(), wait.outlives_approval()], facts);
    }

    #[test]
    fn what_is_said_later_does_not_undo_what_was_said_before() {
        check(CallerWait::default(), Outcome, [false, true, false]);
        check(Outcome.until_approval(), UntilApproval, [false, true, true]);
        check(Outcome.detached(), Detached, [true, true, true]);
        check(Outcome.no_approval(), NoApproval, [false, false, false]);
        check(NoApproval.detached(), DetachedNoApproval, [true, false, false]);
        check(Detached.no_approval(), DetachedNoApproval, [true, false, false]);
        check(Detached.until_approval(), Detached, [true, true, true]);
        check(NoApproval.until_approval(), NoApproval, [false, false, false]);
    }
}

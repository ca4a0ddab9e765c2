//! How the caller of a call waits for it: for what, and whether the call goes on without it.

/// How a caller waits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum CallerWait {
    /// It waits for the outcome, also while a person is asked. If it goes away, the call is cancelled.
    #[default]
    Outcome,
    /// It waits for the outcome, but not for a person: where one must be asked, the call ends.
    NoApproval,
    /// It waits until a person is asked. From then on the call goes on by itself.
    UntilApproval,
    /// It need not wait: the call goes on by itself from the beginning.
    Detached,
    /// As `Detached`, but where a person must be asked, the call ends.
    DetachedNoApproval,
}

impl CallerWait {
    /// The same, for a call that goes on without its caller.
    #[must_use]
    pub(crate) fn detached(self) -> Self {
        if self.waits_for_approval() { Self::Detached } else { Self::DetachedNoApproval }
    }

    /// The same, for a caller that does not wait for a person.
    #[must_use]
    pub(crate) fn no_approval(self) -> Self {
        if self.is_detached() { Self::DetachedNoApproval } else { Self::NoApproval }
    }

    /// The same, for a caller that waits until a person is asked, and no longer.
    #[must_use]
    pub(crate) fn until_approval(self) -> Self {
        if self == Self::Outcome { Self::UntilApproval } else { self }
    }

    /// Whether the call goes on without its caller from the beginning.
    pub(crate) fn is_detached(self) -> bool {
        matches!(self, Self::Detached | Self::DetachedNoApproval)
    }

    /// Whether the call may wait for a person.
    pub(crate) fn waits_for_approval(self) -> bool {
        !matches!(self, Self::NoApproval | Self::DetachedNoApproval)
    }

    /// Whether the call may wait for a person when its caller is gone: then it is recorded before the question is asked.
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

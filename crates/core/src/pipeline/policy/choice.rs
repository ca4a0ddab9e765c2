//! Decides which earlier approval request a call uses, is denied by or joins, or whether it needs a new one.
//!
//! In: a summary of each earlier request with the same binding, newest first. Out: a choice. Pure: the policy stage
//! loads the requests and acts on the choice.

/// Summary of an earlier approval request for the same call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EarlierApproval {
    pub(super) state: EarlierState,
    /// It was requested for this very call: the same id, or the same idempotency key.
    pub(super) is_same_call: bool,
    /// It was requested with the same idempotency key, or both without one.
    pub(super) same_key: bool,
    /// The call that requested it is live on this node, so the answer belongs to that call.
    pub(super) is_claimed: bool,
    /// This call resumes after a restart, and had requested another approval than this one.
    pub(super) is_foreign: bool,
}

/// The current state of an approval request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EarlierState {
    /// Approved, and not used by any call.
    Usable,
    /// Denied, and not delivered to any call.
    Denied,
    /// Not answered yet.
    Pending,
    /// Used, delivered, expired or withdrawn.
    Closed,
}

/// How a call joins a pending request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Join {
    /// It is the call's own request.
    Same(usize),
    /// The call takes the request over, provided no call on this node waits for it.
    Adopt(usize),
}

/// What a call does; numbers are indices into the list of earlier requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Choice {
    /// It uses this approval.
    Use(usize),
    /// It is refused by this denial.
    Deny(usize),
    /// It joins the first of these requests that it can, or makes a new one.
    JoinOrAsk(Vec<Join>),
}

/// Chooses for one call. `waits`: whether it can wait for a person.
pub(super) fn choose(earlier: &[EarlierApproval], waits: bool) -> Choice {
    let mut joins = Vec::new();
    for (index, request) in earlier.iter().enumerate().filter(|(_, request)| !request.is_foreign) {
        // An answer belongs to the call that requested it, as long as that call waits on this node.
        let taken = request.is_claimed && !request.is_same_call;
        match request.state {
            EarlierState::Usable if !taken => return Choice::Use(index),
            EarlierState::Denied if !taken => return Choice::Deny(index),
            // A caller that repeats a call means the request that is still pending, not a new one. Without a key this
            // holds only if no call waits for the answer: its call could not wait, or its process is gone.
            EarlierState::Pending if !waits || request.is_same_call => joins.push(Join::Same(index)),
            EarlierState::Pending if !taken && request.same_key => joins.push(Join::Adopt(index)),
            EarlierState::Usable | EarlierState::Denied | EarlierState::Pending | EarlierState::Closed => {}
        }
    }
    // Oldest first: it has been on the approvers' list the longest.
    joins.reverse();
    Choice::JoinOrAsk(joins)
}

#[cfg(test)]
mod tests {
    use super::{EarlierState::*, *};

    fn earlier(state: EarlierState) -> EarlierApproval {
        EarlierApproval { state, is_same_call: false, same_key: true, is_claimed: false, is_foreign: false }
    }

    #[track_caller]
    fn check(earlier: &[EarlierApproval], waits: bool, expected: &Choice) {
        assert_eq!(choose(earlier, waits), *expected);
    }

    fn ask() -> Choice {
        Choice::JoinOrAsk(Vec::new())
    }

    #[test]
    fn the_newest_answer_counts_and_questions_that_are_over_do_not() {
        check(&[], true, &ask());
        check(&[earlier(Closed)], true, &ask());
        check(&[earlier(Closed), earlier(Usable), earlier(Denied)], true, &Choice::Use(1));
        check(&[earlier(Denied), earlier(Usable)], false, &Choice::Deny(0));
        check(&[earlier(Pending), earlier(Usable)], true, &Choice::Use(1));
    }

    #[test]
    fn an_answer_whose_call_waits_here_belongs_to_that_call() {
        let taken = |state| EarlierApproval { is_claimed: true, ..earlier(state) };
        check(&[taken(Usable), taken(Denied), taken(Pending)], true, &ask());
        check(&[EarlierApproval { is_same_call: true, ..taken(Usable) }], true, &Choice::Use(0));
        check(&[EarlierApproval { is_same_call: true, ..taken(Denied) }], true, &Choice::Deny(0));
    }

    #[test]
    fn an_open_question_is_joined_by_a_repetition_and_adopted_where_nobody_waits() {
        let joined = |joins: &[Join]| Choice::JoinOrAsk(joins.to_vec());
        check(&[earlier(Pending)], true, &joined(&[Join::Adopt(0)]));
        check(&[earlier(Pending)], false, &joined(&[Join::Same(0)]));
        check(&[EarlierApproval { is_same_call: true, ..earlier(Pending) }], true, &joined(&[Join::Same(0)]));
        check(&[EarlierApproval { same_key: false, ..earlier(Pending) }], true, &ask());
        check(&[EarlierApproval { same_key: false, ..earlier(Pending) }], false, &joined(&[Join::Same(0)]));
        check(&[EarlierApproval { is_claimed: true, ..earlier(Pending) }], true, &ask());
        check(&[EarlierApproval { is_claimed: true, ..earlier(Pending) }], false, &joined(&[Join::Same(0)]));
        let two = [earlier(Pending), EarlierApproval { is_same_call: true, ..earlier(Pending) }];
        check(&two, true, &joined(&[Join::Same(1), Join::Adopt(0)]));
    }

    #[test]
    fn a_call_that_goes_on_means_its_own_question_and_no_other() {
        let foreign = |state| EarlierApproval { is_foreign: true, ..earlier(state) };
        check(&[foreign(Usable), foreign(Denied), foreign(Pending)], true, &ask());
        check(&[foreign(Usable), earlier(Pending)], true, &Choice::JoinOrAsk(vec![Join::Adopt(1)]));
    }
}

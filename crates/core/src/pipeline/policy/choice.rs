//! Decides which earlier approval request a call uses, is denied by or joins, or whether it may make a new one.
//!
//! In: a summary of each earlier request with the same binding, newest first, and what the call can do. Out: a choice. Pure: the
//! policy stage loads the requests and acts on the choice.

/// Summary of an earlier approval request for the same call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EarlierApproval<T> {
    /// The request.
    pub(super) request: T,
    pub(super) state: EarlierState,
    /// It was requested for this very call: the same id, or the same idempotency key.
    pub(super) is_same_call: bool,
    /// It was requested with the same idempotency key, or both without one.
    pub(super) same_key: bool,
    /// The answer belongs to another call: the one that requested it is live on this node, or it is reserved.
    pub(super) is_claimed: bool,
    /// A call on this node waits for its answer.
    pub(super) has_waiter: bool,
    /// No other call joins it.
    pub(super) is_exclusive: bool,
    /// This call may not use it, or had requested another one before a restart.
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

/// What is known about the call that asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AskingCall {
    /// It can wait for a person.
    pub(super) waits: bool,
    /// How many identical calls may await approval.
    pub(super) max_identical: usize,
    /// It resumes after a restart; it was admitted before.
    pub(super) resumes: bool,
    /// The maximum number of pending approvals is reached.
    pub(super) approvals_full: bool,
}

/// What a call does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice<T> {
    /// It uses this approval.
    Use(T),
    /// It is refused by this denial.
    Deny(T),
    /// It joins this request, which is its own.
    Join(T),
    /// It takes this request over, because no call on this node waits for it.
    Adopt(T),
    /// It makes a new request.
    Ask,
    /// It makes a new request in the place of this one.
    Replace(T),
    /// It is refused, because a new request would exceed this bound.
    Refuse(Bound),
}

/// A bound on new requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bound {
    /// Too many identical calls await approval.
    IdenticalCalls,
    /// Too many approvals are pending.
    Pending,
}

/// Chooses for one call.
pub(super) fn choose<T: Copy>(earlier: &[EarlierApproval<T>], call: AskingCall) -> Choice<T> {
    let mut joined = None;
    for earlier in earlier.iter().filter(|earlier| !earlier.is_foreign) {
        // An answer belongs to the call that requested it, as long as that call waits on this node.
        let taken = earlier.is_claimed && !earlier.is_same_call;
        match earlier.state {
            EarlierState::Usable if !taken => return Choice::Use(earlier.request),
            EarlierState::Denied if !taken => return Choice::Deny(earlier.request),
            // A caller that repeats a call means the request that is still pending, not a new one. Without a key this
            // holds only if no call waits for the answer: its call could not wait, or its process is gone. The oldest
            // request counts: it has been on the approvers' list the longest.
            EarlierState::Pending if !call.waits || earlier.is_same_call => {
                joined = Some(Choice::Join(earlier.request));
            }
            EarlierState::Pending if !taken && earlier.same_key && !earlier.has_waiter => {
                joined = Some(Choice::Adopt(earlier.request));
            }
            EarlierState::Usable | EarlierState::Denied | EarlierState::Pending | EarlierState::Closed => {}
        }
    }
    // The oldest request that no call can join and none waits for: its caller may never come back.
    let is_abandoned = |earlier: &&EarlierApproval<T>| {
        earlier.state == EarlierState::Pending && earlier.is_exclusive && !earlier.is_claimed && !earlier.has_waiter
    };
    let new = if earlier.len() >= call.max_identical {
        let abandoned = earlier.iter().rfind(is_abandoned);
        abandoned.map_or(Choice::Refuse(Bound::IdenticalCalls), |earlier| Choice::Replace(earlier.request))
    } else if !call.resumes && call.approvals_full {
        Choice::Refuse(Bound::Pending)
    } else {
        Choice::Ask
    };
    joined.unwrap_or(new)
}

#[cfg(test)]
mod tests {
    use super::{EarlierState::*, *};

    /// Requests without a payload; `check` numbers them.
    fn earlier(state: EarlierState) -> EarlierApproval<()> {
        EarlierApproval {
            request: (),
            state,
            is_same_call: false,
            same_key: true,
            is_claimed: false,
            has_waiter: false,
            is_exclusive: false,
            is_foreign: false,
        }
    }

    fn same(state: EarlierState) -> EarlierApproval<()> {
        EarlierApproval { is_same_call: true, ..earlier(state) }
    }

    const MAX_IDENTICAL: usize = 32;
    const WAITS: AskingCall =
        AskingCall { waits: true, max_identical: MAX_IDENTICAL, resumes: false, approvals_full: false };
    const NO_WAIT: AskingCall = AskingCall { waits: false, ..WAITS };

    #[track_caller]
    fn check(requests: &[EarlierApproval<()>], call: AskingCall, expected: Choice<usize>) {
        let number = |(request, earlier): (usize, &EarlierApproval<()>)| {
            let EarlierApproval { request: (), state, is_same_call, same_key, is_claimed, .. } = *earlier;
            let EarlierApproval { has_waiter, is_exclusive, is_foreign, .. } = *earlier;
            EarlierApproval { request, state, is_same_call, same_key, is_claimed, has_waiter, is_exclusive, is_foreign }
        };
        let numbered: Vec<_> = requests.iter().enumerate().map(number).collect();
        assert_eq!(choose(&numbered, call), expected);
    }

    #[test]
    fn the_newest_answer_counts_and_closed_requests_do_not() {
        check(&[], WAITS, Choice::Ask);
        check(&[earlier(Closed)], WAITS, Choice::Ask);
        check(&[earlier(Closed), earlier(Usable), earlier(Denied)], WAITS, Choice::Use(1));
        check(&[earlier(Denied), earlier(Usable)], NO_WAIT, Choice::Deny(0));
        check(&[earlier(Pending), earlier(Usable)], WAITS, Choice::Use(1));
    }

    #[test]
    fn an_answer_whose_call_waits_here_belongs_to_that_call() {
        let taken = |state| EarlierApproval { is_claimed: true, ..earlier(state) };
        check(&[taken(Usable), taken(Denied), taken(Pending)], WAITS, Choice::Ask);
        check(&[EarlierApproval { is_claimed: true, ..same(Usable) }], WAITS, Choice::Use(0));
        check(&[EarlierApproval { is_claimed: true, ..same(Denied) }], WAITS, Choice::Deny(0));
    }

    #[test]
    fn a_pending_request_is_joined_by_a_repetition_and_adopted_if_no_call_waits_for_it() {
        let other_key = EarlierApproval { same_key: false, ..earlier(Pending) };
        let claimed = EarlierApproval { is_claimed: true, ..earlier(Pending) };
        let waited = EarlierApproval { has_waiter: true, ..earlier(Pending) };
        for (requests, waits, no_wait) in [
            (&[earlier(Pending)][..], Choice::Adopt(0), Choice::Join(0)),
            (&[same(Pending)], Choice::Join(0), Choice::Join(0)),
            (&[other_key], Choice::Ask, Choice::Join(0)),
            (&[claimed], Choice::Ask, Choice::Join(0)),
            (&[waited], Choice::Ask, Choice::Join(0)),
            (&[EarlierApproval { has_waiter: true, ..same(Pending) }], Choice::Join(0), Choice::Join(0)),
            // The oldest counts, which is the last.
            (&[earlier(Pending), earlier(Pending)], Choice::Adopt(1), Choice::Join(1)),
            (&[earlier(Pending), same(Pending)], Choice::Join(1), Choice::Join(1)),
            (&[same(Pending), earlier(Pending)], Choice::Adopt(1), Choice::Join(1)),
            (&[earlier(Pending), waited], Choice::Adopt(0), Choice::Join(1)),
        ] {
            check(requests, WAITS, waits);
            check(requests, NO_WAIT, no_wait);
        }
    }

    #[test]
    fn a_resumed_call_uses_its_own_request_and_no_other() {
        let foreign = |state| EarlierApproval { is_foreign: true, ..earlier(state) };
        let resumed = AskingCall { resumes: true, ..WAITS };
        check(&[foreign(Usable), foreign(Denied), foreign(Pending)], resumed, Choice::Ask);
        check(&[foreign(Usable), earlier(Pending)], resumed, Choice::Adopt(1));
    }

    #[test]
    fn new_requests_are_bounded_and_joined_ones_are_not() {
        let waited = EarlierApproval { has_waiter: true, ..earlier(Pending) };
        let resumed = AskingCall { resumes: true, ..WAITS };
        let full = |call| AskingCall { approvals_full: true, ..call };
        let identical = Choice::Refuse(Bound::IdenticalCalls);
        for call in [WAITS, resumed, full(WAITS)] {
            check(&[waited; MAX_IDENTICAL], call, identical);
        }
        // Forms that callers were shown and that none of them has answered make room, the oldest first.
        let form = EarlierApproval { is_exclusive: true, is_foreign: true, ..earlier(Pending) };
        let open = EarlierApproval { is_claimed: true, ..form };
        let answered = EarlierApproval { is_claimed: true, is_exclusive: true, ..earlier(Usable) };
        let mut forms = [open; MAX_IDENTICAL];
        check(&forms, WAITS, identical);
        (forms[3], forms[7], forms[9]) = (form, form, answered);
        check(&forms, WAITS, Choice::Replace(7));
        check(&forms[1..], WAITS, Choice::Ask);
        check(&[waited; MAX_IDENTICAL - 1], WAITS, Choice::Ask);
        check(&[earlier(Pending); MAX_IDENTICAL], full(WAITS), Choice::Adopt(MAX_IDENTICAL - 1));
        check(&[waited], full(WAITS), Choice::Refuse(Bound::Pending));
        check(&[], full(NO_WAIT), Choice::Refuse(Bound::Pending));
        // A resumed call was admitted before.
        check(&[waited], full(resumed), Choice::Ask);
    }
}

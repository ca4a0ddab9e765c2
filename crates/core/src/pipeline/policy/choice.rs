//! Decides which earlier question a call that needs an approval uses, is refused by, joins, or whether it must ask.
//!
//! In: what matters of each earlier question with the same binding, the newest first. Out: a choice. Pure: the stage reads the
//! questions before, and acts on the choice.

/// What matters of an earlier question about the same call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EarlierApproval {
    /// Where it stands.
    pub(super) state: EarlierState,
    /// It was asked for this very call: the same id, or the same idempotency key.
    pub(super) is_same_call: bool,
    /// It was asked with the same idempotency key, or both without one.
    pub(super) same_key: bool,
    /// The call that asked it runs on this node, and its answer belongs to that call.
    pub(super) is_claimed: bool,
    /// This call goes on after a restart, and had asked another question than this one.
    pub(super) is_foreign: bool,
}

/// Where a question stands now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EarlierState {
    /// A person said yes, and no call has used that.
    Usable,
    /// A person said no, and no call was told.
    Denied,
    /// Nobody has answered yet.
    Pending,
    /// It is over.
    Closed,
}

/// How a call joins a question that is still open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Join {
    /// It means that very question.
    Same(usize),
    /// It takes the question over, provided nobody on this node waits for it.
    Adopt(usize),
}

/// What a call does; numbers are places in the list of earlier questions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Choice {
    /// It uses this yes.
    Use(usize),
    /// It is refused by this no.
    Deny(usize),
    /// It joins the first of these questions that it can, or asks a new one where there is none.
    JoinOrAsk(Vec<Join>),
}

/// What a call does. `waits`: whether it can wait for a person.
pub(super) fn choose(earlier: &[EarlierApproval], waits: bool) -> Choice {
    let mut joins = Vec::new();
    for (at, question) in earlier.iter().enumerate().filter(|(_, question)| !question.is_foreign) {
        // An answer belongs to the call that asked, as long as that waits for it here.
        let taken = question.is_claimed && !question.is_same_call;
        match question.state {
            EarlierState::Usable if !taken => return Choice::Use(at),
            EarlierState::Denied if !taken => return Choice::Deny(at),
            // A caller that repeats itself means the question that is still open, not another one. Without a key it does
            // so where nobody waits for the answer: whoever asked could not wait, or is gone with its process.
            EarlierState::Pending if !waits || question.is_same_call => joins.push(Join::Same(at)),
            EarlierState::Pending if !taken && question.same_key => joins.push(Join::Adopt(at)),
            EarlierState::Usable | EarlierState::Denied | EarlierState::Pending | EarlierState::Closed => {}
        }
    }
    // The oldest first: whoever is to answer has seen that one for the longest time.
    joins.reverse();
    Choice::JoinOrAsk(joins)
}

#[cfg(test)]
mod tests {
    use super::{EarlierState::*, *};

    fn question(standing: EarlierState) -> EarlierApproval {
        EarlierApproval { state: standing, is_same_call: false, same_key: true, is_claimed: false, is_foreign: false }
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
        check(&[question(Closed)], true, &ask());
        check(&[question(Closed), question(Usable), question(Denied)], true, &Choice::Use(1));
        check(&[question(Denied), question(Usable)], false, &Choice::Deny(0));
        check(&[question(Pending), question(Usable)], true, &Choice::Use(1));
    }

    #[test]
    fn an_answer_whose_call_waits_here_belongs_to_that_call() {
        let taken = |standing| EarlierApproval { is_claimed: true, ..question(standing) };
        check(&[taken(Usable), taken(Denied), taken(Pending)], true, &ask());
        check(&[EarlierApproval { is_same_call: true, ..taken(Usable) }], true, &Choice::Use(0));
        check(&[EarlierApproval { is_same_call: true, ..taken(Denied) }], true, &Choice::Deny(0));
    }

    #[test]
    fn an_open_question_is_joined_by_a_repetition_and_adopted_where_nobody_waits() {
        let joined = |joins: &[Join]| Choice::JoinOrAsk(joins.to_vec());
        check(&[question(Pending)], true, &joined(&[Join::Adopt(0)]));
        check(&[question(Pending)], false, &joined(&[Join::Same(0)]));
        check(&[EarlierApproval { is_same_call: true, ..question(Pending) }], true, &joined(&[Join::Same(0)]));
        check(&[EarlierApproval { same_key: false, ..question(Pending) }], true, &ask());
        check(&[EarlierApproval { same_key: false, ..question(Pending) }], false, &joined(&[Join::Same(0)]));
        check(&[EarlierApproval { is_claimed: true, ..question(Pending) }], true, &ask());
        check(&[EarlierApproval { is_claimed: true, ..question(Pending) }], false, &joined(&[Join::Same(0)]));
        let two = [question(Pending), EarlierApproval { is_same_call: true, ..question(Pending) }];
        check(&two, true, &joined(&[Join::Same(1), Join::Adopt(0)]));
    }

    #[test]
    fn a_call_that_goes_on_means_its_own_question_and_no_other() {
        let foreign = |standing| EarlierApproval { is_foreign: true, ..question(standing) };
        check(&[foreign(Usable), foreign(Denied), foreign(Pending)], true, &ask());
        check(&[foreign(Usable), question(Pending)], true, &Choice::JoinOrAsk(vec![Join::Adopt(1)]));
    }
}

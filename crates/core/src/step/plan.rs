//! The order of the calls of one step.
//!
//! In: for each call whether it is safe beside others, and which earlier calls it builds on; then what becomes of
//! them. Out: which calls may start or go on now.
//! Starts nothing and knows no tool. A dependent only waits here until the calls it builds on have ended; whether they
//! did what it needs is for the door of dependencies to say.
//!
//! A call is either safe or lone. The rules:
//! - Consecutive safe calls run together. A lone call executes when all earlier ones have ended and nothing executes;
//!   what comes after it waits for it.
//! - A call that asks a person does not execute. It holds back later lone calls, and safe ones go past it, and past
//!   the lone ones it holds back: an answer may take a quarter of an hour.
//! - An answered call executes under the same rules as one that starts. It may have to hold: a lone one until the safe
//!   ones that went past it are done, a safe one until the lone one before it is.
//!
//! It follows that at most one lone call has begun and not ended, and that all before it have ended. And there is
//! never a deadlock: the first call that has not ended runs, asks, or waits only for what runs now.

use std::collections::HashMap;

use toolhub_types::tool::DependsOn;

/// The calls of one step and how far each is.
#[derive(Debug, Clone)]
pub(crate) struct Plan(Vec<PlannedCall>);

/// One call of a step.
#[derive(Debug, Clone)]
pub(crate) struct PlannedCall {
    /// Whether it may execute beside others: its tool is read-only or declared parallel-safe.
    pub(crate) parallel_safe: bool,
    /// The earlier calls it builds on.
    pub(crate) dependencies: Vec<usize>,
    state: State,
}

/// How far a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// It has not begun.
    Pending,
    /// It executes, or is on its way to.
    Running,
    /// It waits for a person.
    AwaitingApproval,
    /// The person said yes; its turn has not come.
    Approved,
    /// It is over.
    Ended {
        /// Whether the tool did what was asked.
        success: bool,
    },
}

/// Whether an answered call may execute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a call that must hold executes only when `ready` names it"]
pub(crate) enum Resumption {
    /// It executes from now on.
    Now,
    /// It waits until `ready` names it.
    Later,
}

impl PlannedCall {
    pub(crate) fn new(safe: bool, bases: Vec<usize>) -> Self {
        Self { parallel_safe: safe, dependencies: bases, state: State::Pending }
    }
}

impl Plan {
    /// A plan in which no call has begun. A base that is not an earlier call is passed over: it would never end.
    pub(crate) fn new(mut calls: Vec<PlannedCall>) -> Self {
        for (at, call) in calls.iter_mut().enumerate() {
            call.dependencies.retain(|base| *base < at);
        }
        Self(calls)
    }

    /// The calls that may execute now, all of them at once: those that have not begun and those that were held.
    pub(crate) fn ready(&self) -> Vec<usize> {
        let executing = self.0.iter().any(|call| call.state == State::Running);
        let mut ready = Vec::new();
        // What the calls before the one we look at mean for it.
        let (mut all_ended, mut one_asks, mut lone_ahead) = (true, false, false);
        for (at, call) in self.0.iter().enumerate() {
            let wants = match call.state {
                State::Pending => call.dependencies.iter().all(|base| self.has_ended(*base)),
                State::Approved => true,
                State::Running | State::AwaitingApproval | State::Ended { .. } => false,
            };
            let may = if call.parallel_safe { !lone_ahead } else { all_ended && !executing };
            if wants && may {
                ready.push(at);
            }
            match call.state {
                State::Ended { .. } => continue,
                State::AwaitingApproval => one_asks = true,
                // It cannot be next before the question is answered, so nobody waits for it until then.
                State::Pending if one_asks => {}
                State::Pending | State::Approved | State::Running => lone_ahead |= !call.parallel_safe,
            }
            all_ended = false;
        }
        ready
    }

    /// A call that was ready has begun, or goes on after it was held.
    pub(crate) fn mark_running(&mut self, at: usize) {
        self.transition(at, &[State::Pending, State::Approved], State::Running);
    }

    /// A call waits for a person.
    pub(crate) fn mark_awaiting_approval(&mut self, at: usize) {
        self.transition(at, &[State::Running], State::AwaitingApproval);
    }

    /// The person said yes. What was running while it asked may be in its way.
    pub(crate) fn mark_approved(&mut self, at: usize) -> Resumption {
        self.transition(at, &[State::AwaitingApproval], State::Approved);
        if self.ready().contains(&at) {
            self.mark_running(at);
        }
        if self.0[at].state == State::Running { Resumption::Now } else { Resumption::Later }
    }

    /// A call is over: it succeeded, failed, was refused, or was cancelled before it began.
    pub(crate) fn mark_ended(&mut self, at: usize, success: bool) {
        self.0[at].state = State::Ended { success };
    }

    /// Nobody follows the plan any more: no call has to wait for another.
    pub(crate) fn abandon(&mut self) {
        for call in &mut self.0 {
            call.state = State::Ended { success: false };
        }
    }

    /// How far a call is.
    pub(crate) fn state(&self, at: usize) -> State {
        self.0[at].state
    }

    fn has_ended(&self, at: usize) -> bool {
        matches!(self.0[at].state, State::Ended { .. })
    }

    /// News may overtake each other: a call that was cancelled does not begin to ask.
    fn transition(&mut self, at: usize, from: &[State], to: State) {
        if from.contains(&self.0[at].state) {
            self.0[at].state = to;
        }
    }
}

/// For each call the earlier calls it builds on: those whose tool its own tool waits for. In: the names of the tools
/// and what they wait for, in the order of the calls; a tool nobody knows waits for nothing.
pub(crate) fn earlier_dependencies(calls: &[(&str, &DependsOn)]) -> Vec<Vec<usize>> {
    let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
    let mut bases = Vec::with_capacity(calls.len());
    for (at, (name, depends_on)) in calls.iter().enumerate() {
        let mut found: Vec<usize> =
            depends_on.names().filter_map(|base| places.get(base.as_str())).flatten().copied().collect();
        // A tool may stand in several groups.
        found.sort_unstable();
        found.dedup();
        bases.push(found);
        places.entry(name).or_default().push(at);
    }
    bases
}

#[cfg(test)]
mod tests;

//! Decides which connections are closed to make room for new ones.
//!
//! In: the holder and the activity of every connection. Out: the ones to close. Holds no connection and no clock.

use std::{cmp::Reverse, collections::HashMap, hash::Hash};

/// What a connection that may be closed is doing, in the order in which they are closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Activity {
    /// No request is in flight.
    Idle,
    /// The client does not read an answer.
    Unread,
    /// A request without a key is in flight.
    Anonymous,
    /// No request is in flight yet, or one without a key since a moment ago, or the last one ended a moment ago.
    Recent,
    /// Only event streams are in flight; their clients reconnect and continue where they were.
    Streaming,
    /// The client reads an answer.
    Answering,
    /// The server has not begun to read: a client must not be closed because the server is busy.
    Unstarted,
}

/// One connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate<H> {
    pub(super) holder: H,
    /// `None` while a request with a key is executed: such a connection is never closed.
    pub(super) activity: Option<Activity>,
    /// How long it has done so, in milliseconds.
    pub(super) millis: u64,
}

/// The indices of `count` connections to close.
///
/// A holder of more than a quarter of all places loses its own connections first. Otherwise the activity decides, then the
/// number of connections of the holder, then the time.
pub(super) fn choose<H: Copy + Eq + Hash>(all: &[Candidate<H>], limit: usize, count: usize) -> Vec<usize> {
    let mut held: HashMap<H, usize> = HashMap::new();
    for candidate in all {
        *held.entry(candidate.holder).or_default() += 1;
    }
    let share = limit / 4;
    let rank = |candidate: &Candidate<H>| {
        let held = held[&candidate.holder];
        let excess = if held > share { held } else { 0 };
        Some((Reverse(excess), candidate.activity?, Reverse(held), Reverse(candidate.millis)))
    };
    let mut ranked: Vec<_> =
        all.iter().enumerate().filter_map(|(index, candidate)| Some((rank(candidate)?, index))).collect();
    let count = count.min(ranked.len());
    if count > 0 {
        ranked.select_nth_unstable(count - 1);
    }
    ranked[..count].iter().map(|(_, index)| *index).collect()
}

#[cfg(test)]
mod tests {
    use super::{Activity::*, *};

    /// The holders of the connections that are closed, one by one.
    #[track_caller]
    fn check(all: &[(&str, Option<Activity>, u64)], limit: usize, expected: &[usize]) {
        let mut all: Vec<_> =
            all.iter().map(|&(holder, activity, millis)| Candidate { holder, activity, millis }).collect();
        let mut closed = Vec::new();
        while let [index] = choose(&all, limit, 1)[..] {
            closed.push(index);
            all[index].activity = None;
        }
        assert_eq!(closed, expected);
    }

    #[test]
    fn the_activity_decides_then_the_time_and_a_request_being_executed_is_never_cut() {
        let all = [
            ("a", Some(Answering), 9),
            ("i", Some(Unstarted), 9),
            ("b", Some(Streaming), 9),
            ("c", Some(Recent), 0),
            ("d", Some(Anonymous), 9),
            ("e", Some(Unread), 9),
            ("f", Some(Idle), 5),
            ("g", Some(Idle), 9),
            ("h", None, 9),
        ];
        check(&all, 100, &[7, 6, 5, 4, 3, 2, 0, 1]);
    }

    #[test]
    fn who_holds_more_than_a_quarter_loses_its_own_and_then_streams_of_who_holds_the_most() {
        let streams = [("a", Some(Streaming), 1), ("a", Some(Streaming), 2), ("a", Some(Streaming), 3)];
        let others = [("b", Some(Idle), 9), ("c", Some(Streaming), 9)];
        check(&[&streams[..], &others].concat(), 8, &[2, 1, 0, 3, 4]);
        check(&[&streams[..], &others].concat(), 100, &[3, 2, 1, 0, 4]);
    }

    #[test]
    fn several_are_chosen_together() {
        let all = [("a", Some(Idle), 1), ("b", Some(Idle), 2), ("c", Some(Idle), 3)];
        let all = all.map(|(holder, activity, millis)| Candidate { holder, activity, millis });
        let mut chosen = choose(&all, 100, 2);
        chosen.sort_unstable();
        assert_eq!(chosen, [1, 2]);
        assert!(choose::<&str>(&[], 100, 2).is_empty());
    }
}

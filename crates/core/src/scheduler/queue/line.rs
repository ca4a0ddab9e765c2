//! Everybody who waits, and who is next. All of it is under one lock.
//!
//! In: somebody joins or leaves, or a slot may have become free. Out: slots with those they belong to now. They are
//! handed out after the lock is gone (`hand_out`), because that wakes tasks, and a slot that nobody wants any more
//! comes straight back here.
//!
//! A lane whose own slots are all taken stands aside. The others, which wait for nothing but a shared slot, are the
//! ring. So a slot given back finds the next call without looking at lanes that cannot use it.

use std::{
    collections::{BTreeMap, btree_map},
    sync::atomic::Ordering::SeqCst,
};

use tokio::sync::oneshot::Sender;

use super::{Bound, Full, Lane, Party, RETRY, Slot, rounds::Rounds, take};

/// Those who wait.
#[derive(Default)]
pub(super) struct Line {
    /// Only lanes in which somebody waits.
    lanes: BTreeMap<u64, Waiters>,
    /// The lanes that may have a slot of their own free.
    ring: Rounds<u64, ()>,
    tickets: u64,
}

/// Those who wait in one lane. While there are any they keep the lane in memory, and through it the queue.
struct Waiters {
    lane: Lane,
    parties: Rounds<Party, BTreeMap<u64, Sender<Slot>>>,
}

/// A slot and the one it goes to.
pub(super) type Gift = (Sender<Slot>, Slot);

/// Gives the slots to those they belong to. Whoever has left meanwhile lets the slot drop, and it goes on to the next.
pub(super) fn hand_out(gifts: Vec<Gift>) {
    for (to, slot) in gifts {
        drop(to.send(slot));
    }
}

impl Line {
    /// Adds one who waits and serves whoever can be served, perhaps the newcomer. Only one who has to wait can be
    /// refused, therefore the bounds come last.
    pub(super) fn join(&mut self, lane: &Lane, who: &Party, to: Sender<Slot>) -> (Vec<Gift>, Result<u64, Full>) {
        let ticket = self.tickets;
        self.tickets += 1;
        lane.0.queued.fetch_add(1, SeqCst);
        lane.0.all.queued.fetch_add(1, SeqCst);
        let waiters = self.lanes.entry(lane.0.key);
        let waiters = waiters.or_insert_with(|| Waiters { lane: lane.clone(), parties: Rounds::default() });
        waiters.parties.join(who).insert(ticket, to);
        let gifts = self.serve(lane);

        let bounds = &lane.0.all.bounds;
        let over = if lane.0.queued.load(SeqCst) > bounds.per_tool {
            Some(Bound::Tool)
        } else {
            (lane.0.all.queued.load(SeqCst) > bounds.in_all).then_some(Bound::All)
        };
        match over {
            Some(bound) if self.leave(lane, who, ticket).is_some() => (gifts, Err(Full { bound, retry: RETRY })),
            _ => (gifts, Ok(ticket)),
        }
    }

    /// Takes one out who does not want to wait any more; `None` when it was served already.
    pub(super) fn leave(&mut self, lane: &Lane, who: &Party, ticket: u64) -> Option<Sender<Slot>> {
        let btree_map::Entry::Occupied(mut waiters) = self.lanes.entry(lane.0.key) else { return None };
        let parties = &mut waiters.get_mut().parties;
        let calls = parties.get_mut(who)?;
        let left = calls.remove(&ticket)?;
        if calls.is_empty() {
            parties.leave(who);
        }
        if parties.is_empty() {
            waiters.remove();
            self.ring.leave(&lane.0.key);
            lane.0.all.ready.store(self.ring.len(), SeqCst);
        }
        uncount(lane);
        Some(left)
    }

    /// Gives out what is free, after something changed in this lane.
    pub(super) fn serve(&mut self, changed: &Lane) -> Vec<Gift> {
        let all = &changed.0.all;
        if self.lanes.contains_key(&changed.0.key) {
            self.ring.join(&changed.0.key);
        }
        // Said before the slots are tried, so that whoever gives one back after that looks in here again.
        all.ready.store(self.ring.len(), SeqCst);
        let mut gifts = Vec::new();
        while let Some((key, ())) = self.ring.first() {
            let btree_map::Entry::Occupied(mut waiters) = self.lanes.entry(*key) else {
                self.ring.leave_first();
                continue;
            };
            let lane = waiters.get().lane.clone();
            if !take(&lane.0.running, lane.0.limit.load(SeqCst)) {
                self.ring.leave_first();
                continue;
            }
            if !all.limit.is_none_or(|limit| take(&all.running, limit)) {
                lane.0.running.fetch_sub(1, SeqCst);
                break;
            }
            gifts.push((waiters.get_mut().next(), Slot::of(lane.clone())));
            uncount(&lane);
            if waiters.get().parties.is_empty() {
                waiters.remove();
                self.ring.leave_first();
            } else {
                self.ring.rotate();
            }
        }
        all.ready.store(self.ring.len(), SeqCst);
        gifts
    }
}

impl Waiters {
    /// The first call of the party whose turn it is.
    fn next(&mut self) -> Sender<Slot> {
        let (_, calls) = self.parties.first().expect("a lane without parties has left the line");
        let (_, to) = calls.pop_first().expect("a party without calls has left the lane");
        if calls.is_empty() {
            self.parties.leave_first();
        } else {
            self.parties.rotate();
        }
        to
    }
}

fn uncount(lane: &Lane) {
    lane.0.queued.fetch_sub(1, SeqCst);
    lane.0.all.queued.fetch_sub(1, SeqCst);
}

#[cfg(test)]
impl Line {
    pub(super) fn is_empty(&self) -> bool {
        self.lanes.is_empty() && self.ring.is_empty()
    }
}

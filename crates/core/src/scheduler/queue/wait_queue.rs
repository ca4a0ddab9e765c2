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

use super::{FairnessKey, QueueFull, QueueLimit, RETRY_AFTER, Slot, ToolQueue, round_robin::RoundRobin, try_increment};

/// Those who wait.
#[derive(Default)]
pub(super) struct WaitQueue {
    /// Only lanes in which somebody waits.
    queues: BTreeMap<u64, Waiters>,
    /// The lanes that may have a slot of their own free.
    ready: RoundRobin<u64, ()>,
    next_sequence: u64,
}

/// Those who wait in one lane. While there are any they keep the lane in memory, and through it the queue.
struct Waiters {
    queue: ToolQueue,
    by_key: RoundRobin<FairnessKey, BTreeMap<u64, Sender<Slot>>>,
}

/// A slot and the one it goes to.
pub(super) type Handoff = (Sender<Slot>, Slot);

/// Gives the slots to those they belong to. Whoever has left meanwhile lets the slot drop, and it goes on to the next.
pub(super) fn deliver(gifts: Vec<Handoff>) {
    for (to, slot) in gifts {
        drop(to.send(slot));
    }
}

impl WaitQueue {
    /// Adds one who waits and serves whoever can be served, perhaps the newcomer. Only one who has to wait can be
    /// refused, therefore the bounds come last.
    pub(super) fn enqueue(
        &mut self,
        lane: &ToolQueue,
        who: &FairnessKey,
        to: Sender<Slot>,
    ) -> (Vec<Handoff>, Result<u64, QueueFull>) {
        let ticket = self.next_sequence;
        self.next_sequence += 1;
        lane.0.queued.fetch_add(1, SeqCst);
        lane.0.shared.queued.fetch_add(1, SeqCst);
        let waiters = self.queues.entry(lane.0.key);
        let waiters = waiters.or_insert_with(|| Waiters { queue: lane.clone(), by_key: RoundRobin::default() });
        waiters.by_key.get_or_insert(who).insert(ticket, to);
        let gifts = self.dispatch(lane);

        let bounds = &lane.0.shared.queue_limits;
        let over = if lane.0.queued.load(SeqCst) > bounds.per_tool {
            Some(QueueLimit::Tool)
        } else {
            (lane.0.shared.queued.load(SeqCst) > bounds.total).then_some(QueueLimit::Global)
        };
        match over {
            Some(bound) if self.remove(lane, who, ticket).is_some() => {
                (gifts, Err(QueueFull { limit: bound, retry_after: RETRY_AFTER }))
            }
            _ => (gifts, Ok(ticket)),
        }
    }

    /// Takes one out who does not want to wait any more; `None` when it was served already.
    pub(super) fn remove(&mut self, lane: &ToolQueue, who: &FairnessKey, ticket: u64) -> Option<Sender<Slot>> {
        let btree_map::Entry::Occupied(mut waiters) = self.queues.entry(lane.0.key) else { return None };
        let parties = &mut waiters.get_mut().by_key;
        let calls = parties.get_mut(who)?;
        let left = calls.remove(&ticket)?;
        if calls.is_empty() {
            parties.remove(who);
        }
        if parties.is_empty() {
            waiters.remove();
            self.ready.remove(&lane.0.key);
            lane.0.shared.ready_queues.store(self.ready.len(), SeqCst);
        }
        decrement_queued(lane);
        Some(left)
    }

    /// Gives out what is free, after something changed in this lane.
    pub(super) fn dispatch(&mut self, changed: &ToolQueue) -> Vec<Handoff> {
        let all = &changed.0.shared;
        if self.queues.contains_key(&changed.0.key) {
            self.ready.get_or_insert(&changed.0.key);
        }
        // Said before the slots are tried, so that whoever gives one back after that looks in here again.
        all.ready_queues.store(self.ready.len(), SeqCst);
        let mut gifts = Vec::new();
        while let Some((key, ())) = self.ready.first() {
            let btree_map::Entry::Occupied(mut waiters) = self.queues.entry(*key) else {
                self.ready.remove_first();
                continue;
            };
            let lane = waiters.get().queue.clone();
            if !try_increment(&lane.0.running, lane.0.limit.load(SeqCst)) {
                self.ready.remove_first();
                continue;
            }
            if !all.limit.is_none_or(|limit| try_increment(&all.running, limit)) {
                lane.0.running.fetch_sub(1, SeqCst);
                break;
            }
            gifts.push((waiters.get_mut().pop_next(), Slot::new(lane.clone())));
            decrement_queued(&lane);
            if waiters.get().by_key.is_empty() {
                waiters.remove();
                self.ready.remove_first();
            } else {
                self.ready.rotate();
            }
        }
        all.ready_queues.store(self.ready.len(), SeqCst);
        gifts
    }
}

impl Waiters {
    /// The first call of the party whose turn it is.
    fn pop_next(&mut self) -> Sender<Slot> {
        let (_, calls) = self.by_key.first().expect("a lane without parties has left the line");
        let (_, to) = calls.pop_first().expect("a party without calls has left the lane");
        if calls.is_empty() {
            self.by_key.remove_first();
        } else {
            self.by_key.rotate();
        }
        to
    }
}

fn decrement_queued(lane: &ToolQueue) {
    lane.0.queued.fetch_sub(1, SeqCst);
    lane.0.shared.queued.fetch_sub(1, SeqCst);
}

#[cfg(test)]
impl WaitQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty() && self.ready.is_empty()
    }
}

//! The book of rooms: who is in which, which are kept, and which must go.
//!
//! In: calls that enter and leave, instances that are made and lost, the time. Out: the rooms to be given up, each with the
//! reason. A room in use is never among them. Plain bookkeeping: nothing here waits, closes or tells.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use tokio_util::sync::CancellationToken;

use super::{
    InstanceInfo,
    instance_slot::{AnyInstance, InstanceSlot},
};
use crate::registration::{RegisteredTool, Registration};
use toolhub_storage::clock::{self, Instant};
use toolhub_types::{ids::ThreadKey, timestamp::Timestamp};

/// How many instances are kept while no call uses them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InstanceLimits {
    pub(crate) per_thread: usize,
    pub(crate) total: usize,
}

/// Which rooms.
#[derive(Clone, Copy)]
pub(super) enum SlotSelector<'a> {
    /// Those of a thread; of one tool, or of all.
    Thread(&'a ThreadKey, Option<&'a str>),
    /// Those of one registration of a tool, in every thread.
    Tool(&'a Registration),
    /// All.
    All,
}

/// A room that is given up. It has left the book, and no call is in it.
pub(super) struct EvictedSlot {
    pub(super) slot: Arc<InstanceSlot>,
    pub(super) reason: &'static str,
}

pub(super) struct PoolState {
    limits: InstanceLimits,
    threads: HashMap<ThreadKey, Vec<u64>>,
    slots: HashMap<u64, SlotEntry>,
    /// The rooms that are kept although nobody is in them, the one that was left first ahead.
    idle_lru: BTreeMap<u64, u64>,
    live_count: usize,
    next_id: u64,
}

struct SlotEntry {
    slot: Arc<InstanceSlot>,
    /// Calls in the room, those included that wait for their turn.
    users: usize,
    /// When its instance was made, if it has one.
    created_at: Option<Timestamp>,
    last_used: Instant,
    /// Its place among the kept ones.
    lru_key: Option<u64>,
    /// Why it is given up as soon as nobody is in it. Nobody finds it any more.
    evict_reason: Option<&'static str>,
}

impl PoolState {
    pub(super) fn new(caps: InstanceLimits) -> Self {
        let (threads, rooms, kept) = Default::default();
        Self { limits: caps, threads, slots: rooms, idle_lru: kept, live_count: 0, next_id: 0 }
    }

    /// A call enters the room of its tool in its thread; made where there is none.
    pub(super) fn acquire(
        &mut self,
        owner: &ThreadKey,
        (tool, among): (RegisteredTool<'_>, bool),
        now: Instant,
        seat: impl FnOnce() -> Arc<dyn AnyInstance>,
    ) -> (u64, Arc<InstanceSlot>) {
        let found = self.threads.get(owner).and_then(|ids| {
            let this =
                |id: &&u64| self.slots.get(id).is_some_and(|entry| entry.slot.registration == *tool.registration);
            ids.iter().find(this).copied()
        });
        let id = found.unwrap_or_else(|| self.add(owner, (tool, among), seat(), now));
        let entry = self.slots.get_mut(&id).expect("a thread lists only rooms of this book");
        entry.users += 1;
        if let Some(turn) = entry.lru_key.take() {
            self.idle_lru.remove(&turn);
        }
        (id, entry.slot.clone())
    }

    fn add(
        &mut self,
        owner: &ThreadKey,
        (tool, among): (RegisteredTool<'_>, bool),
        seat: Arc<dyn AnyInstance>,
        now: Instant,
    ) -> u64 {
        self.next_id += 1;
        let (owner, name) = (owner.clone(), tool.name.clone());
        self.threads.entry(owner.clone()).or_default().push(self.next_id);
        let by = tool.registration.clone();
        // A call that waited while its tool was taken away may still make an instance; it goes with the call.
        let gone = (by.is_retired() && !among).then_some("the tool was removed");
        let room = Arc::new(InstanceSlot {
            owner,
            tool: name,
            registration: by,
            cell: seat,
            closed: CancellationToken::new(),
        });
        let entry =
            SlotEntry { slot: room, users: 0, created_at: None, last_used: now, lru_key: None, evict_reason: gone };
        self.slots.insert(self.next_id, entry);
        if gone.is_some() {
            self.unlist(self.next_id);
        }
        self.next_id
    }

    /// The room has an instance now. Answers what must go to make room for it.
    pub(super) fn instance_created(&mut self, id: u64, at: Timestamp) -> Vec<EvictedSlot> {
        let Some(entry) = self.slots.get_mut(&id) else { return Vec::new() };
        if entry.created_at.replace(at).is_none() {
            self.live_count += 1;
        }
        let owner = entry.slot.owner.clone();
        self.evict_over_limits(&owner)
    }

    /// The room's instance is lost.
    pub(super) fn instance_lost(&mut self, id: u64) {
        if self.slots.get_mut(&id).and_then(|entry| entry.created_at.take()).is_some() {
            self.live_count -= 1;
        }
    }

    /// A call leaves. Answers what must go: the room itself if it was given up, or one that was kept for too many.
    pub(super) fn release(&mut self, id: u64, now: Instant) -> Vec<EvictedSlot> {
        let Some(entry) = self.slots.get_mut(&id) else { return Vec::new() };
        entry.users -= 1;
        entry.last_used = now;
        if entry.users > 0 {
            return Vec::new();
        }
        match (entry.evict_reason, entry.created_at) {
            (Some(reason), Some(_)) => self.evict_one(id, reason).into_iter().collect(),
            (_, None) => {
                let room = self.remove(id);
                room.into_iter().for_each(|room| room.closed.cancel());
                Vec::new()
            }
            (None, Some(_)) => {
                self.next_id += 1;
                entry.lru_key = Some(self.next_id);
                let owner = entry.slot.owner.clone();
                self.idle_lru.insert(self.next_id, id);
                self.evict_over_limits(&owner)
            }
        }
    }

    /// Gives up the chosen rooms: those nobody is in at once, the others when the last call has left. Answers both.
    pub(super) fn evict(
        &mut self,
        which: SlotSelector<'_>,
        reason: &'static str,
    ) -> (Vec<EvictedSlot>, Vec<Arc<InstanceSlot>>) {
        let ids: Vec<u64> = match which {
            SlotSelector::Thread(owner, tool) => {
                let of = |id: &&u64| {
                    self.slots.get(id).is_some_and(|entry| tool.is_none_or(|it| entry.slot.is_for_tool(it)))
                };
                self.threads.get(owner).into_iter().flatten().filter(of).copied().collect()
            }
            SlotSelector::Tool(registration) => {
                registration.retire();
                self.find_slots(|room| room.registration == *registration)
            }
            SlotSelector::All => self.find_slots(|_| true),
        };
        let (mut free, mut busy) = (Vec::new(), Vec::new());
        for id in ids {
            if self.slots.get(&id).is_some_and(|entry| entry.users == 0) {
                free.extend(self.evict_one(id, reason));
            } else if let Some(entry) = self.slots.get_mut(&id) {
                entry.evict_reason = Some(reason);
                busy.push(entry.slot.clone());
                self.unlist(id);
            }
        }
        (free, busy)
    }

    /// Gives up what nobody has used for so long. Answers also when to look again.
    pub(super) fn evict_idle(&mut self, idle: Duration, now: Instant) -> (Vec<EvictedSlot>, Option<Instant>) {
        let mut leaving = Vec::new();
        while let Some((_, id)) = self.idle_lru.first_key_value() {
            let id = *id;
            let due = self.slots.get(&id).map_or(now, |entry| clock::deadline_after(entry.last_used, idle));
            if due > now {
                return (leaving, Some(due));
            }
            leaving.extend(self.evict_one(id, "it was idle"));
        }
        (leaving, None)
    }

    /// What is known about the thread's instance of this tool, if there is one.
    pub(super) fn instance_info(&self, owner: &ThreadKey, tool: &str) -> Option<InstanceInfo> {
        let mut rooms = self.threads.get(owner)?.iter().rev().filter_map(|id| self.slots.get(id));
        let entry = rooms.find(|entry| entry.slot.is_for_tool(tool) && entry.created_at.is_some())?;
        Some(InstanceInfo { tool: entry.slot.tool.clone(), created: entry.created_at?, in_use: entry.users > 0 })
    }

    /// Whether a call is in one of the thread's rooms.
    pub(super) fn is_in_use(&self, owner: &ThreadKey) -> bool {
        let ids = self.threads.get(owner).map_or(&[][..], Vec::as_slice);
        ids.iter().any(|id| self.slots.get(id).is_some_and(|entry| entry.users > 0))
    }

    /// How many instances there are.
    pub(super) fn live_count(&self) -> usize {
        self.live_count
    }

    /// The rooms that can still be found and are wanted.
    fn find_slots(&self, wanted: impl Fn(&InstanceSlot) -> bool) -> Vec<u64> {
        let chosen = |(_, entry): &(&u64, &SlotEntry)| entry.evict_reason.is_none() && wanted(&entry.slot);
        self.slots.iter().filter(chosen).map(|(id, _)| *id).collect()
    }

    /// What is kept beyond the caps, the least recently used first. More than the caps may be in use at once.
    fn evict_over_limits(&mut self, owner: &ThreadKey) -> Vec<EvictedSlot> {
        let mut leaving = Vec::new();
        let ids = self.threads.get(owner).map_or(&[][..], Vec::as_slice);
        let live = ids.iter().filter_map(|id| self.slots.get(id)).filter(|entry| entry.created_at.is_some()).count();
        if live > self.limits.per_thread {
            let turn = |id: &u64| self.slots.get(id).and_then(|entry| entry.lru_key).map(|turn| (turn, *id));
            let mut kept: Vec<(u64, u64)> = ids.iter().filter_map(turn).collect();
            kept.sort_unstable();
            for (_, id) in kept.into_iter().take(live - self.limits.per_thread) {
                leaving.extend(self.evict_one(id, "the thread has too many instances"));
            }
        }
        while self.live_count > self.limits.total
            && let Some((_, id)) = self.idle_lru.first_key_value()
        {
            leaving.extend(self.evict_one(*id, "there are too many instances"));
        }
        leaving
    }

    fn evict_one(&mut self, id: u64, reason: &'static str) -> Option<EvictedSlot> {
        self.instance_lost(id);
        self.remove(id).map(|room| EvictedSlot { slot: room, reason })
    }

    fn remove(&mut self, id: u64) -> Option<Arc<InstanceSlot>> {
        self.unlist(id);
        let entry = self.slots.remove(&id)?;
        if let Some(turn) = entry.lru_key {
            self.idle_lru.remove(&turn);
        }
        Some(entry.slot)
    }

    /// Nobody finds the room any more.
    fn unlist(&mut self, id: u64) {
        let Some(owner) = self.slots.get(&id).map(|entry| &entry.slot.owner) else { return };
        if let Some(ids) = self.threads.get_mut(owner) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.threads.remove(owner);
            }
        }
    }
}

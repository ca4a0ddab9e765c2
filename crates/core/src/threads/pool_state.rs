//! Bookkeeping of the instance pool: usage counts, the LRU order of idle instances, and evictions.
//!
//! In: leases acquired and released, instances created and lost, the time. Out: the slots to evict, each with a reason.
//! A slot in use is never evicted. Pure state: does not wait, close or emit events.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio_util::sync::CancellationToken;

use super::{
    InstanceInfo,
    instance_slot::{AnyInstance, InstanceSlot},
};
use crate::registration::Registration;
use toolhub_storage::clock::{self, Instant};
use toolhub_types::{ids::ThreadKey, timestamp::Timestamp};

/// Maximum numbers of instances. Only idle instances are evicted, so more may be in use concurrently.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InstanceLimits {
    pub(crate) per_thread: usize,
    pub(crate) total: usize,
}

/// Selects slots.
#[derive(Clone, Copy)]
pub(super) enum SlotSelector<'a> {
    /// Those of a thread, of one tool or of all.
    Thread(&'a ThreadKey, Option<&'a str>),
    /// Those that no tool uses once this registration is gone, in every thread.
    Tool(&'a Registration),
    /// All slots.
    All,
}

/// An evicted slot. It was removed from the pool, and no call uses it.
pub(super) struct EvictedSlot {
    pub(super) slot: Arc<InstanceSlot>,
    pub(super) reason: &'static str,
}

pub(super) struct PoolState {
    limits: InstanceLimits,
    threads: HashMap<ThreadKey, Vec<u64>>,
    slots: HashMap<u64, SlotEntry>,
    /// The idle slots by LRU key, least recently used first.
    idle_lru: BTreeMap<u64, u64>,
    live_count: usize,
    next_id: u64,
}

struct SlotEntry {
    slot: Arc<InstanceSlot>,
    /// Number of calls that use the slot or wait for exclusive use.
    users: usize,
    /// When its instance was created, if it has one.
    created_at: Option<Timestamp>,
    last_used: Instant,
    /// Its key in `idle_lru`, while it is idle.
    lru_key: Option<u64>,
    /// Why the slot is evicted when its last user releases it. Such a slot is not found any more.
    evict_reason: Option<&'static str>,
}

impl SlotEntry {
    /// Summary of its instance, if it has one.
    fn info(&self) -> Option<InstanceInfo> {
        Some(InstanceInfo { tool: self.slot.tool.clone(), created: self.created_at?, in_use: self.users > 0 })
    }
}

impl PoolState {
    pub(super) fn new(limits: InstanceLimits) -> Self {
        let (threads, slots, idle_lru) = Default::default();
        Self { limits, threads, slots, idle_lru, live_count: 0, next_id: 0 }
    }

    /// Acquires the slot of a tool in a thread; creates it if there is none.
    pub(super) fn acquire(
        &mut self,
        owner: &ThreadKey,
        (tool, from_offer): (&Registration, bool),
        now: Instant,
        new_cell: impl FnOnce() -> Arc<dyn AnyInstance>,
    ) -> (u64, Arc<InstanceSlot>) {
        let found = self.threads.get(owner).and_then(|ids| {
            let is_for_tool = |id: &&u64| self.slots.get(id).is_some_and(|entry| entry.slot.group == *tool.instances());
            ids.iter().find(is_for_tool).copied()
        });
        let id = found.unwrap_or_else(|| self.add(owner, (tool, from_offer), new_cell(), now));
        (id, self.add_user(id))
    }

    /// Acquires the slot of a tool in a thread if it has an instance.
    pub(super) fn acquire_live(&mut self, owner: &ThreadKey, tool: &str) -> Option<(u64, Arc<InstanceSlot>)> {
        let is_live = |id: &&u64| {
            self.slots.get(id).is_some_and(|entry| entry.created_at.is_some() && entry.slot.is_for_tool(tool))
        };
        // The newest registration of the tool comes last.
        let id = self.threads.get(owner)?.iter().rev().find(is_live).copied()?;
        Some((id, self.add_user(id)))
    }

    fn add_user(&mut self, id: u64) -> Arc<InstanceSlot> {
        let entry = self.slots.get_mut(&id).expect("a thread lists only slots of this pool");
        entry.users += 1;
        if let Some(lru_key) = entry.lru_key.take() {
            self.idle_lru.remove(&lru_key);
        }
        entry.slot.clone()
    }

    fn add(
        &mut self,
        owner: &ThreadKey,
        (tool, from_offer): (&Registration, bool),
        cell: Arc<dyn AnyInstance>,
        now: Instant,
    ) -> u64 {
        self.next_id += 1;
        let (owner, tool, group) = (owner.clone(), tool.tool().clone(), tool.instances().clone());
        self.threads.entry(owner.clone()).or_default().push(self.next_id);
        // A call that waited while its tool was removed may still create an instance; it is evicted when the call ends.
        let evict_reason = (group.is_empty() && !from_offer).then_some("the tool was removed");
        let (connections, closed) = (Mutex::default(), CancellationToken::new());
        let slot = Arc::new(InstanceSlot { owner, tool, group, cell, connections, closed });
        let entry = SlotEntry { slot, users: 0, created_at: None, last_used: now, lru_key: None, evict_reason };
        self.slots.insert(self.next_id, entry);
        if evict_reason.is_some() {
            self.unlist(self.next_id);
        }
        self.next_id
    }

    /// Records that the slot has an instance now. Returns the slots evicted to stay within the limits.
    pub(super) fn instance_created(&mut self, id: u64, at: Timestamp) -> Vec<EvictedSlot> {
        let Some(entry) = self.slots.get_mut(&id) else { return Vec::new() };
        if entry.created_at.replace(at).is_none() {
            self.live_count += 1;
        }
        let owner = entry.slot.owner.clone();
        self.evict_over_limits(&owner)
    }

    /// Records that the slot has no instance any more.
    pub(super) fn instance_lost(&mut self, id: u64) {
        if self.slots.get_mut(&id).and_then(|entry| entry.created_at.take()).is_some() {
            self.live_count -= 1;
        }
    }

    /// Releases a slot. Returns the evicted slots: this one if its eviction was requested, or idle ones over the
    /// limits.
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
                let slot = self.remove(id);
                slot.into_iter().for_each(|slot| slot.closed.cancel());
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

    /// Evicts the selected slots: unused ones immediately, the others when their last user releases them. Returns both.
    pub(super) fn evict(
        &mut self,
        selector: SlotSelector<'_>,
        reason: &'static str,
    ) -> (Vec<EvictedSlot>, Vec<Arc<InstanceSlot>>) {
        let ids: Vec<u64> = match selector {
            SlotSelector::Thread(owner, tool) => {
                let is_selected = |id: &&u64| {
                    self.slots.get(id).is_some_and(|entry| tool.is_none_or(|tool| entry.slot.is_for_tool(tool)))
                };
                self.threads.get(owner).into_iter().flatten().filter(is_selected).copied().collect()
            }
            SlotSelector::Tool(registration) => {
                registration.retire();
                let group = registration.instances();
                if group.is_empty() { self.find_slots(|slot| slot.group == *group) } else { Vec::new() }
            }
            SlotSelector::All => self.find_slots(|_| true),
        };
        let (mut evicted, mut in_use) = (Vec::new(), Vec::new());
        for id in ids {
            if self.slots.get(&id).is_some_and(|entry| entry.users == 0) {
                evicted.extend(self.evict_one(id, reason));
            } else if let Some(entry) = self.slots.get_mut(&id) {
                entry.evict_reason = Some(reason);
                in_use.push(entry.slot.clone());
                self.unlist(id);
            }
        }
        (evicted, in_use)
    }

    /// Evicts slots that have been idle for `timeout`. Also returns when the next one will be due.
    pub(super) fn evict_idle(&mut self, timeout: Duration, now: Instant) -> (Vec<EvictedSlot>, Option<Instant>) {
        let mut evicted = Vec::new();
        while let Some((_, id)) = self.idle_lru.first_key_value() {
            let id = *id;
            let due = self.slots.get(&id).map_or(now, |entry| clock::deadline_after(entry.last_used, timeout));
            if due > now {
                return (evicted, Some(due));
            }
            evicted.extend(self.evict_one(id, "it was idle"));
        }
        (evicted, None)
    }

    /// Summary of the thread's instance of this tool, if there is one.
    pub(super) fn instance_info(&self, owner: &ThreadKey, tool: &str) -> Option<InstanceInfo> {
        let mut entries = self.threads.get(owner)?.iter().rev().filter_map(|id| self.slots.get(id));
        entries.find(|entry| entry.slot.is_for_tool(tool) && entry.created_at.is_some()).and_then(SlotEntry::info)
    }

    /// Summaries of the thread's instances, the oldest first.
    pub(super) fn instance_infos(&self, owner: &ThreadKey) -> Vec<InstanceInfo> {
        let ids = self.threads.get(owner).map_or(&[][..], Vec::as_slice);
        ids.iter().filter_map(|id| self.slots.get(id)?.info()).collect()
    }

    /// Whether a call uses one of the thread's slots.
    pub(super) fn is_in_use(&self, owner: &ThreadKey) -> bool {
        let ids = self.threads.get(owner).map_or(&[][..], Vec::as_slice);
        ids.iter().any(|id| self.slots.get(id).is_some_and(|entry| entry.users > 0))
    }

    /// Whether the thread has slots.
    pub(super) fn has_instances(&self, owner: &ThreadKey) -> bool {
        self.threads.get(owner).is_some_and(|ids| !ids.is_empty())
    }

    /// The number of live instances.
    pub(super) fn live_count(&self) -> usize {
        self.live_count
    }

    /// The slots that match and whose eviction was not requested yet.
    fn find_slots(&self, matches: impl Fn(&InstanceSlot) -> bool) -> Vec<u64> {
        let is_selected = |(_, entry): &(&u64, &SlotEntry)| entry.evict_reason.is_none() && matches(&entry.slot);
        self.slots.iter().filter(is_selected).map(|(id, _)| *id).collect()
    }

    /// Evicts idle slots beyond the limits, least recently used first. Slots in use may exceed the limits.
    fn evict_over_limits(&mut self, owner: &ThreadKey) -> Vec<EvictedSlot> {
        let mut evicted = Vec::new();
        let ids = self.threads.get(owner).map_or(&[][..], Vec::as_slice);
        let live = ids.iter().filter_map(|id| self.slots.get(id)).filter(|entry| entry.created_at.is_some()).count();
        if live > self.limits.per_thread {
            let lru_key = |id: &u64| self.slots.get(id).and_then(|entry| entry.lru_key).map(|key| (key, *id));
            let mut idle: Vec<(u64, u64)> = ids.iter().filter_map(lru_key).collect();
            idle.sort_unstable();
            for (_, id) in idle.into_iter().take(live - self.limits.per_thread) {
                evicted.extend(self.evict_one(id, "the thread has too many instances"));
            }
        }
        while self.live_count > self.limits.total
            && let Some((_, id)) = self.idle_lru.first_key_value()
        {
            evicted.extend(self.evict_one(*id, "there are too many instances"));
        }
        evicted
    }

    fn evict_one(&mut self, id: u64, reason: &'static str) -> Option<EvictedSlot> {
        self.instance_lost(id);
        self.remove(id).map(|slot| EvictedSlot { slot, reason })
    }

    fn remove(&mut self, id: u64) -> Option<Arc<InstanceSlot>> {
        self.unlist(id);
        let entry = self.slots.remove(&id)?;
        if let Some(lru_key) = entry.lru_key {
            self.idle_lru.remove(&lru_key);
        }
        Some(entry.slot)
    }

    /// Hides the slot from its thread, so that new calls do not find it.
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

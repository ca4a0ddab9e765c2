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
    room::{Room, Seat},
};
use crate::registration::{RegisteredTool, Registration};
use toolhub_storage::clock::{self, Instant};
use toolhub_types::{ids::ThreadKey, timestamp::Timestamp};

/// How many instances are kept while no call uses them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caps {
    pub(crate) per_thread: usize,
    pub(crate) in_all: usize,
}

/// Which rooms.
#[derive(Clone, Copy)]
pub(super) enum Which<'a> {
    /// Those of a thread; of one tool, or of all.
    Thread(&'a ThreadKey, Option<&'a str>),
    /// Those of one registration of a tool, in every thread.
    Tool(&'a Registration),
    /// All.
    All,
}

/// A room that is given up. It has left the book, and no call is in it.
pub(super) struct Leaving {
    pub(super) room: Arc<Room>,
    pub(super) reason: &'static str,
}

pub(super) struct Directory {
    caps: Caps,
    threads: HashMap<ThreadKey, Vec<u64>>,
    rooms: HashMap<u64, Entry>,
    /// The rooms that are kept although nobody is in them, the one that was left first ahead.
    kept: BTreeMap<u64, u64>,
    live: usize,
    next: u64,
}

struct Entry {
    room: Arc<Room>,
    /// Calls in the room, those included that wait for their turn.
    users: usize,
    /// When its instance was made, if it has one.
    made: Option<Timestamp>,
    last_used: Instant,
    /// Its place among the kept ones.
    turn: Option<u64>,
    /// Why it is given up as soon as nobody is in it. Nobody finds it any more.
    gone: Option<&'static str>,
}

impl Directory {
    pub(super) fn new(caps: Caps) -> Self {
        let (threads, rooms, kept) = Default::default();
        Self { caps, threads, rooms, kept, live: 0, next: 0 }
    }

    /// A call enters the room of its tool in its thread; made where there is none.
    pub(super) fn enter(
        &mut self,
        owner: &ThreadKey,
        (tool, among): (RegisteredTool<'_>, bool),
        now: Instant,
        seat: impl FnOnce() -> Arc<dyn Seat>,
    ) -> (u64, Arc<Room>) {
        let found = self.threads.get(owner).and_then(|ids| {
            let this = |id: &&u64| self.rooms.get(id).is_some_and(|entry| entry.room.by == *tool.registration);
            ids.iter().find(this).copied()
        });
        let id = found.unwrap_or_else(|| self.add(owner, (tool, among), seat(), now));
        let entry = self.rooms.get_mut(&id).expect("a thread lists only rooms of this book");
        entry.users += 1;
        if let Some(turn) = entry.turn.take() {
            self.kept.remove(&turn);
        }
        (id, entry.room.clone())
    }

    fn add(
        &mut self,
        owner: &ThreadKey,
        (tool, among): (RegisteredTool<'_>, bool),
        seat: Arc<dyn Seat>,
        now: Instant,
    ) -> u64 {
        self.next += 1;
        let (owner, name) = (owner.clone(), tool.name.clone());
        self.threads.entry(owner.clone()).or_default().push(self.next);
        let by = tool.registration.clone();
        // A call that waited while its tool was taken away may still make an instance; it goes with the call.
        let gone = (by.is_retired() && !among).then_some("the tool was removed");
        let room = Arc::new(Room { owner, tool: name, by, seat, closed: CancellationToken::new() });
        let entry = Entry { room, users: 0, made: None, last_used: now, turn: None, gone };
        self.rooms.insert(self.next, entry);
        if gone.is_some() {
            self.unlist(self.next);
        }
        self.next
    }

    /// The room has an instance now. Answers what must go to make room for it.
    pub(super) fn made(&mut self, id: u64, at: Timestamp) -> Vec<Leaving> {
        let Some(entry) = self.rooms.get_mut(&id) else { return Vec::new() };
        if entry.made.replace(at).is_none() {
            self.live += 1;
        }
        let owner = entry.room.owner.clone();
        self.trim(&owner)
    }

    /// The room's instance is lost.
    pub(super) fn lost(&mut self, id: u64) {
        if self.rooms.get_mut(&id).and_then(|entry| entry.made.take()).is_some() {
            self.live -= 1;
        }
    }

    /// A call leaves. Answers what must go: the room itself if it was given up, or one that was kept for too many.
    pub(super) fn leave(&mut self, id: u64, now: Instant) -> Vec<Leaving> {
        let Some(entry) = self.rooms.get_mut(&id) else { return Vec::new() };
        entry.users -= 1;
        entry.last_used = now;
        if entry.users > 0 {
            return Vec::new();
        }
        match (entry.gone, entry.made) {
            (Some(reason), Some(_)) => self.give_up(id, reason).into_iter().collect(),
            (_, None) => {
                let room = self.remove(id);
                room.into_iter().for_each(|room| room.closed.cancel());
                Vec::new()
            }
            (None, Some(_)) => {
                self.next += 1;
                entry.turn = Some(self.next);
                let owner = entry.room.owner.clone();
                self.kept.insert(self.next, id);
                self.trim(&owner)
            }
        }
    }

    /// Gives up the chosen rooms: those nobody is in at once, the others when the last call has left. Answers both.
    pub(super) fn clear(&mut self, which: Which<'_>, reason: &'static str) -> (Vec<Leaving>, Vec<Arc<Room>>) {
        let ids: Vec<u64> = match which {
            Which::Thread(owner, tool) => {
                let of = |id: &&u64| self.rooms.get(id).is_some_and(|entry| tool.is_none_or(|it| entry.room.is_of(it)));
                self.threads.get(owner).into_iter().flatten().filter(of).copied().collect()
            }
            Which::Tool(registration) => {
                registration.retire();
                self.listed(|room| room.by == *registration)
            }
            Which::All => self.listed(|_| true),
        };
        let (mut free, mut busy) = (Vec::new(), Vec::new());
        for id in ids {
            if self.rooms.get(&id).is_some_and(|entry| entry.users == 0) {
                free.extend(self.give_up(id, reason));
            } else if let Some(entry) = self.rooms.get_mut(&id) {
                entry.gone = Some(reason);
                busy.push(entry.room.clone());
                self.unlist(id);
            }
        }
        (free, busy)
    }

    /// Gives up what nobody has used for so long. Answers also when to look again.
    pub(super) fn idle(&mut self, idle: Duration, now: Instant) -> (Vec<Leaving>, Option<Instant>) {
        let mut leaving = Vec::new();
        while let Some((_, id)) = self.kept.first_key_value() {
            let id = *id;
            let due = self.rooms.get(&id).map_or(now, |entry| clock::after(entry.last_used, idle));
            if due > now {
                return (leaving, Some(due));
            }
            leaving.extend(self.give_up(id, "it was idle"));
        }
        (leaving, None)
    }

    /// What is known about the thread's instance of this tool, if there is one.
    pub(super) fn look(&self, owner: &ThreadKey, tool: &str) -> Option<InstanceInfo> {
        let mut rooms = self.threads.get(owner)?.iter().rev().filter_map(|id| self.rooms.get(id));
        let entry = rooms.find(|entry| entry.room.is_of(tool) && entry.made.is_some())?;
        Some(InstanceInfo { tool: entry.room.tool.clone(), made: entry.made?, in_use: entry.users > 0 })
    }

    /// Whether a call is in one of the thread's rooms.
    pub(super) fn in_use(&self, owner: &ThreadKey) -> bool {
        let ids = self.threads.get(owner).map_or(&[][..], Vec::as_slice);
        ids.iter().any(|id| self.rooms.get(id).is_some_and(|entry| entry.users > 0))
    }

    /// How many instances there are.
    pub(super) fn live(&self) -> usize {
        self.live
    }

    /// The rooms that can still be found and are wanted.
    fn listed(&self, wanted: impl Fn(&Room) -> bool) -> Vec<u64> {
        let chosen = |(_, entry): &(&u64, &Entry)| entry.gone.is_none() && wanted(&entry.room);
        self.rooms.iter().filter(chosen).map(|(id, _)| *id).collect()
    }

    /// What is kept beyond the caps, the least recently used first. More than the caps may be in use at once.
    fn trim(&mut self, owner: &ThreadKey) -> Vec<Leaving> {
        let mut leaving = Vec::new();
        let ids = self.threads.get(owner).map_or(&[][..], Vec::as_slice);
        let live = ids.iter().filter_map(|id| self.rooms.get(id)).filter(|entry| entry.made.is_some()).count();
        if live > self.caps.per_thread {
            let turn = |id: &u64| self.rooms.get(id).and_then(|entry| entry.turn).map(|turn| (turn, *id));
            let mut kept: Vec<(u64, u64)> = ids.iter().filter_map(turn).collect();
            kept.sort_unstable();
            for (_, id) in kept.into_iter().take(live - self.caps.per_thread) {
                leaving.extend(self.give_up(id, "the thread has too many instances"));
            }
        }
        while self.live > self.caps.in_all
            && let Some((_, id)) = self.kept.first_key_value()
        {
            leaving.extend(self.give_up(*id, "there are too many instances"));
        }
        leaving
    }

    fn give_up(&mut self, id: u64, reason: &'static str) -> Option<Leaving> {
        self.lost(id);
        self.remove(id).map(|room| Leaving { room, reason })
    }

    fn remove(&mut self, id: u64) -> Option<Arc<Room>> {
        self.unlist(id);
        let entry = self.rooms.remove(&id)?;
        if let Some(turn) = entry.turn {
            self.kept.remove(&turn);
        }
        Some(entry.room)
    }

    /// Nobody finds the room any more.
    fn unlist(&mut self, id: u64) {
        let Some(owner) = self.rooms.get(&id).map(|entry| &entry.room.owner) else { return };
        if let Some(ids) = self.threads.get_mut(owner) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.threads.remove(owner);
            }
        }
    }
}

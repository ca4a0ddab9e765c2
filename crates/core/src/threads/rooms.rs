//! The rooms of all threads, and the goodbyes of their instances.
//!
//! In: a call's thread and tool. Out: the right to use the tool's room, until it is dropped. Whatever makes an instance go,
//! its goodbye runs on a task of its own, within a bound, and listeners are told. Which one goes is decided by
//! `directory.rs`.

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use futures_util::FutureExt;
use tokio::{runtime::Handle, sync::Notify};
use tokio_util::task::TaskTracker;

use super::{
    Caps, InstanceInfo,
    directory::{Directory, Leaving, Which},
    room::{Chair, Room},
};
use crate::{
    events::Events,
    held,
    registration::{RegisteredTool, Registration},
};
use toolhub_storage::clock::Clock;
use toolhub_types::{error::ToolError, event_kind::News, ids::ThreadKey, tool::ToolName};

/// How long an instance may take to say goodbye; and how long somebody who cleans up waits for the call that uses one. If
/// the call takes longer, its instance is closed when it ends.
const CLOSE_WITHIN: Duration = Duration::from_secs(10);

/// Every room, of all threads.
pub(crate) struct Rooms {
    directory: Mutex<Directory>,
    idle: Duration,
    /// Told when the first room is kept, so that somebody looks when it has been idle for too long.
    kept: Notify,
    goodbyes: TaskTracker,
    events: Events,
    clock: Arc<dyn Clock>,
    runtime: Handle,
}

impl Rooms {
    pub(crate) fn new(caps: Caps, idle: Duration, events: Events, clock: Arc<dyn Clock>, runtime: Handle) -> Self {
        let (directory, kept, goodbyes) = (Mutex::new(Directory::new(caps)), Notify::new(), TaskTracker::new());
        Self { directory, idle, kept, goodbyes, events, clock, runtime }
    }

    /// Enters the room of a tool in a thread. A call among a list of tools that is held may be followed by others: what it needs
    /// is kept although its tool was taken away.
    pub(crate) fn enter<T: Send + 'static>(
        self: &Arc<Self>,
        owner: &ThreadKey,
        (tool, among): (RegisteredTool<'_>, bool),
        chair: impl FnOnce() -> Chair<T>,
    ) -> Use {
        let (id, room) = self.lock().enter(owner, (tool, among), self.clock.instant(), || Arc::new(chair()));
        Use { id, room, rooms: self.clone() }
    }

    pub(crate) fn look(&self, owner: &ThreadKey, tool: &str) -> Option<InstanceInfo> {
        self.lock().look(owner, tool)
    }

    pub(crate) fn in_use(&self, owner: &ThreadKey) -> bool {
        self.lock().in_use(owner)
    }

    /// How many instances there are.
    pub(crate) fn live(&self) -> usize {
        self.lock().live()
    }

    /// Closes the instances of a thread; of one tool, or of all. Names the tools they belonged to.
    pub(crate) async fn clear(&self, owner: &ThreadKey, tool: Option<&str>, reason: &'static str) -> Vec<ToolName> {
        self.give_up(Which::Thread(owner, tool), reason).await
    }

    /// Closes the instances this registration of a tool has made, in every thread.
    pub(crate) async fn clear_tool(&self, tool: &Registration, reason: &'static str) {
        self.give_up(Which::Tool(tool), reason).await;
    }

    /// Closes all instances, and waits for every goodbye.
    pub(crate) async fn shut(&self) {
        self.give_up(Which::All, "the hub was shut down").await;
        self.goodbyes.close();
        let _ = tokio::time::timeout(CLOSE_WITHIN, self.goodbyes.wait()).await;
    }

    async fn give_up(&self, which: Which<'_>, reason: &'static str) -> Vec<ToolName> {
        let (free, mut rooms) = self.lock().clear(which, reason);
        rooms.extend(free.iter().map(|leaving| leaving.room.clone()));
        // On tasks of their own: somebody who stops waiting for the cleaning must not cut a goodbye short.
        self.part(free);
        let closed = futures_util::future::join_all(rooms.iter().map(|room| room.closed.cancelled()));
        let _ = tokio::time::timeout(2 * CLOSE_WITHIN, closed).await;
        rooms.iter().map(|room| room.tool.clone()).collect()
    }

    /// Lets these say goodbye.
    fn part(&self, leaving: Vec<Leaving>) {
        for Leaving { room, reason } in leaving {
            let (events, clock) = (self.events.clone(), self.clock.clone());
            self.goodbyes.spawn_on(goodbye(room, reason, events, clock), &self.runtime);
        }
    }

    fn tell(&self, room: &Room, reason: &'static str) {
        cleaned(room, reason, &self.events, &*self.clock);
    }

    /// Drops what was idle for too long.
    fn sweep(&self) -> Option<tokio::time::Instant> {
        let (leaving, next) = self.lock().idle(self.idle, self.clock.instant());
        self.part(leaving);
        next
    }

    fn lock(&self) -> MutexGuard<'_, Directory> {
        self.directory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn goodbye(room: Arc<Room>, reason: &'static str, events: Events, clock: Arc<dyn Clock>) {
    let _closed = room.closed.clone().drop_guard();
    if let Some(goodbye) = room.seat.vacate() {
        // One that panics or hangs while it says goodbye harms nobody, not even when it is dropped for it.
        let bounded = async { tokio::time::timeout(CLOSE_WITHIN, goodbye).await.is_ok() };
        if !matches!(AssertUnwindSafe(bounded).catch_unwind().await, Ok(true)) {
            tracing::warn!(tool = %room.tool, "an instance did not close in an orderly way");
        }
        cleaned(&room, reason, &events, &*clock);
    }
}

fn cleaned(room: &Room, reason: &'static str, events: &Events, clock: &dyn Clock) {
    let ThreadKey { tenant, thread } = &room.owner;
    let news = News::ExecutorCleaned { tool_name: room.tool.clone(), reason };
    events.tell_tenant(clock.now(), tenant, Some(thread), news);
}

/// Drops instances that nobody has used for long, for as long as the hub lives.
pub(crate) async fn drop_idle(rooms: Weak<Rooms>) {
    loop {
        let Some(here) = rooms.upgrade() else { return };
        match here.sweep() {
            Some(next) => {
                drop(here);
                tokio::time::sleep_until(next).await;
            }
            // Kept alive by this wait; the hub's end cuts the whole task off.
            None => here.kept.notified().await,
        }
    }
}

/// The right to be in a room. While it is held, the room is not given up.
pub(crate) struct Use {
    id: u64,
    room: Arc<Room>,
    rooms: Arc<Rooms>,
}

impl Use {
    /// The room's chair; of the type that the tool of this room sits on.
    pub(crate) fn chair<T: Send + 'static>(&self) -> Option<Arc<Chair<T>>> {
        let any: Arc<dyn std::any::Any + Send + Sync> = self.room.seat.clone();
        any.downcast().ok()
    }

    /// An instance was made here. Others may have to go for it.
    pub(crate) fn made(&self) {
        let leaving = self.rooms.lock().made(self.id, self.rooms.clock.now());
        self.rooms.part(leaving);
    }

    /// The instance is gone without a goodbye.
    pub(crate) fn lost(&self, why: &'static str) {
        self.rooms.lock().lost(self.id);
        self.rooms.tell(&self.room, why);
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        let leaving = self.rooms.lock().leave(self.id, self.rooms.clock.instant());
        self.rooms.part(leaving);
        self.rooms.kept.notify_one();
    }
}

/// Runs work that is alone in a room.
///
/// # Errors
/// When the work around this is in the room already: the two would wait for each other.
pub(crate) async fn alone_in<T>(place: &Use, work: impl Future<Output = T>) -> Result<T, ToolError> {
    let room: Weak<Room> = Arc::downgrade(&place.room);
    held::holding(vec![room], work).await.map_err(|held::Nested| {
        let text = "this tool is at work in this thread and has, directly or through other tools, called itself; \
                    the two calls would wait for each other";
        ToolError::refused(text).uncounted()
    })
}

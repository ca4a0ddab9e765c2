//! Notices a call that would wait for itself.
//!
//! In: the room an execution works alone in. Out: whether a call that is made from inside it asks for the same room. Calls
//! know where they were made because the chain of held rooms is handed from task to task with them; a task that a tool
//! spawns itself is not followed, and a call made there waits like any other, until its time is up.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use super::room::Room;
use crate::error::ToolError;

tokio::task_local! {
    static HELD: Arc<Hold>;
}

/// A room somebody works alone in, and the rooms that are held around it.
pub(crate) struct Hold {
    room: Arc<Room>,
    over: AtomicBool,
    outer: Option<Arc<Hold>>,
}

/// The call asks for an instance that works for the call around it.
pub(crate) struct Nested;

impl From<Nested> for ToolError {
    fn from(_: Nested) -> Self {
        let text = "this tool is at work in this thread and has, directly or through other tools, called itself; \
                    the two calls would wait for each other";
        Self::refused(text).uncounted()
    }
}

impl Hold {
    /// Runs work as part of the execution that holds all this.
    pub(crate) fn around<F: Future>(self: Arc<Self>, work: F) -> impl Future<Output = F::Output> {
        HELD.scope(self, work)
    }
}

/// The rooms that are held around the current work.
pub(crate) fn current() -> Option<Arc<Hold>> {
    let mut hold = HELD.try_with(Arc::clone).ok();
    // What is over is forgotten, so that a chain of calls that outlive each other does not grow for ever.
    while let Some(over) = hold.take_if(|hold| hold.over.load(Ordering::Acquire)) {
        hold = over.outer.clone();
    }
    hold
}

/// Holds a room while the work goes on.
///
/// # Errors
/// When the room is held by the work around this.
pub(crate) async fn holding<T>(room: &Arc<Room>, work: impl Future<Output = T>) -> Result<T, Nested> {
    let outer = current();
    let mut next = outer.as_ref();
    while let Some(hold) = next {
        if Arc::ptr_eq(&hold.room, room) && !hold.over.load(Ordering::Acquire) {
            return Err(Nested);
        }
        next = hold.outer.as_ref();
    }
    let hold = Arc::new(Hold { room: room.clone(), over: AtomicBool::new(false), outer });
    let _over = Over(hold.clone());
    Ok(hold.around(work).await)
}

/// However the work ends, the room is held no longer.
struct Over(Arc<Hold>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Release);
    }
}

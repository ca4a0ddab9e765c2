//! The states a call has taken out, waiting to be put back.
//!
//! In: values parked here when the tool lets go of them, and the turns to write them. Out: drafts of what is to be
//! committed. `manager/draft.rs` makes writes of them.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use super::{ContextId, sessions::Session, write_locks::WriteLock};
use toolhub_storage::backend::Row;
use toolhub_types::error::{ErrorKind, ToolError};

/// The states one call has taken out.
#[derive(Default)]
pub(crate) struct StateCheckouts {
    /// Whether anything ever lay here. Most calls take no state out, and need not ask further.
    used: AtomicBool,
    inner: Mutex<CheckoutsInner>,
}

#[derive(Default)]
struct CheckoutsInner {
    checkouts: Vec<Checkout>,
    write_locks: Vec<WriteLock>,
}

/// One state that was taken out.
pub(crate) struct Checkout {
    pub(crate) context: ContextId,
    pub(crate) loaded: LoadedContext,
    pub(crate) pending: Arc<dyn PendingState>,
}

/// What a context held when a call took it out.
#[derive(Clone)]
pub(crate) struct LoadedContext {
    pub(crate) business: Option<Row>,
    pub(crate) session: Option<Row>,
    /// The session of its thread.
    pub(crate) thread_session: Session,
}

/// A state the tool has let go of.
pub(crate) trait PendingState: Send + Sync {
    /// The bytes to store; `None` when nothing was changed.
    fn encode_changes(&self) -> Result<Option<Vec<u8>>, ToolError>;

    /// The version of their layout.
    fn layout(&self) -> u32;

    /// The same changes made to what is there now; `None` when nobody knows how.
    fn reapply(&self, now: Option<&Row>) -> Result<Option<Vec<u8>>, ToolError>;

    /// Both changes together; or why they do not go together.
    fn merge(&self, base: Option<&Row>, mine: &[u8], theirs: &Row) -> Result<Vec<u8>, String>;
}

/// What becomes of one state.
pub(crate) struct Draft {
    pub(crate) context: ContextId,
    pub(crate) loaded: LoadedContext,
    /// What is to be stored; `None` when nothing was changed.
    pub(crate) text: Option<Arc<[u8]>>,
    pub(crate) pending: Arc<dyn PendingState>,
}

/// What becomes of the states of a call. They stay the call's own while this is held.
#[derive(Default)]
pub(crate) struct Drafts {
    pub(crate) list: Vec<Draft>,
    write_locks: Vec<WriteLock>,
}

impl Drafts {
    /// Lets others write before this is committed, or instead of it.
    pub(crate) fn release_locks(&mut self) {
        self.write_locks.clear();
    }
}

impl StateCheckouts {
    /// Whether no state was ever taken out.
    pub(crate) fn is_untouched(&self) -> bool {
        !self.used.load(Ordering::Acquire)
    }

    /// Notes that a state was taken out.
    pub(crate) fn put(&self, sheet: Checkout) -> Result<(), ToolError> {
        let mut desk = self.lock();
        if desk.checkouts.iter().any(|other| other.context == sheet.context) {
            let text = format!("the state `{}` was asked for twice in one call", sheet.context);
            return Err(ToolError::operator_only(ErrorKind::Internal, text));
        }
        desk.checkouts.push(sheet);
        self.used.store(true, Ordering::Release);
        Ok(())
    }

    /// Keeps a turn until the call is committed.
    pub(crate) fn hold_lock(&self, turn: WriteLock) {
        self.lock().write_locks.push(turn);
        self.used.store(true, Ordering::Release);
    }

    /// Lets others write: this attempt commits nothing.
    pub(crate) fn release_locks(&self) {
        let turns = std::mem::take(&mut self.lock().write_locks);
        drop(turns);
    }

    /// The states as they were: the tool failed.
    pub(crate) fn take_unchanged_drafts(&self) -> Drafts {
        self.take_drafts(|_| None)
    }

    /// The states, each with what is to be stored of it.
    pub(crate) fn take_drafts(&self, mut changed: impl FnMut(&dyn PendingState) -> Option<Vec<u8>>) -> Drafts {
        let CheckoutsInner { checkouts: sheets, write_locks: turns } = std::mem::take(&mut *self.lock());
        let drafted = |Checkout { context, loaded: found, pending: parked }| {
            let text = changed(&*parked).map(Into::into);
            Draft { context, loaded: found, text, pending: parked }
        };
        Drafts { list: sheets.into_iter().map(drafted).collect(), write_locks: turns }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, CheckoutsInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

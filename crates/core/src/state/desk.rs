//! The states a call has taken out, waiting to be put back.
//!
//! In: values parked here when the tool lets go of them, and the turns to write them. Out: drafts of what is to be
//! committed. `manager/draft.rs` makes writes of them.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use super::{ContextId, sessions::Session, turns::Turn};
use toolhub_storage::backend::Row;
use toolhub_types::error::{ErrorKind, ToolError};

/// The states one call has taken out.
#[derive(Default)]
pub(crate) struct Desk {
    /// Whether anything ever lay here. Most calls take no state out, and need not ask further.
    used: AtomicBool,
    on_desk: Mutex<OnDesk>,
}

#[derive(Default)]
struct OnDesk {
    sheets: Vec<Sheet>,
    turns: Vec<Turn>,
}

/// One state that was taken out.
pub(crate) struct Sheet {
    pub(crate) context: ContextId,
    pub(crate) found: Found,
    pub(crate) parked: Arc<dyn Parked>,
}

/// What a context held when a call took it out.
#[derive(Clone)]
pub(crate) struct Found {
    pub(crate) business: Option<Row>,
    pub(crate) session: Option<Row>,
    /// The session of its thread.
    pub(crate) sitting: Session,
}

/// A state the tool has let go of.
pub(crate) trait Parked: Send + Sync {
    /// The bytes to store; `None` when nothing was changed.
    fn changed(&self) -> Result<Option<Vec<u8>>, ToolError>;

    /// The version of their layout.
    fn layout(&self) -> u32;

    /// The same changes made to what is there now; `None` when nobody knows how.
    fn again(&self, now: Option<&Row>) -> Result<Option<Vec<u8>>, ToolError>;

    /// Both changes together; or why they do not go together.
    fn merged(&self, base: Option<&Row>, mine: &[u8], theirs: &Row) -> Result<Vec<u8>, String>;
}

/// What becomes of one state.
pub(crate) struct Draft {
    pub(crate) context: ContextId,
    pub(crate) found: Found,
    /// What is to be stored; `None` when nothing was changed.
    pub(crate) text: Option<Arc<[u8]>>,
    pub(crate) parked: Arc<dyn Parked>,
}

/// What becomes of the states of a call. They stay the call's own while this is held.
#[derive(Default)]
pub(crate) struct Drafts {
    pub(crate) list: Vec<Draft>,
    turns: Vec<Turn>,
}

impl Drafts {
    /// Lets others write before this is committed, or instead of it.
    pub(crate) fn release(&mut self) {
        self.turns.clear();
    }
}

impl Desk {
    /// Whether no state was ever taken out.
    pub(crate) fn is_untouched(&self) -> bool {
        !self.used.load(Ordering::Acquire)
    }

    /// Notes that a state was taken out.
    pub(crate) fn put(&self, sheet: Sheet) -> Result<(), ToolError> {
        let mut desk = self.lock();
        if desk.sheets.iter().any(|other| other.context == sheet.context) {
            let text = format!("the state `{}` was asked for twice in one call", sheet.context);
            return Err(ToolError::hidden(ErrorKind::Internal, text));
        }
        desk.sheets.push(sheet);
        self.used.store(true, Ordering::Release);
        Ok(())
    }

    /// Keeps a turn until the call is committed.
    pub(crate) fn keep(&self, turn: Turn) {
        self.lock().turns.push(turn);
        self.used.store(true, Ordering::Release);
    }

    /// Lets others write: this attempt commits nothing.
    pub(crate) fn release(&self) {
        let turns = std::mem::take(&mut self.lock().turns);
        drop(turns);
    }

    /// The states as they were: the tool failed.
    pub(crate) fn unchanged(&self) -> Drafts {
        self.cleared(|_| None)
    }

    /// The states, each with what is to be stored of it.
    pub(crate) fn cleared(&self, mut changed: impl FnMut(&dyn Parked) -> Option<Vec<u8>>) -> Drafts {
        let OnDesk { sheets, turns } = std::mem::take(&mut *self.lock());
        let drafted = |Sheet { context, found, parked }| {
            let text = changed(&*parked).map(Into::into);
            Draft { context, found, text, parked }
        };
        Drafts { list: sheets.into_iter().map(drafted).collect(), turns }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, OnDesk> {
        self.on_desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! The states one call has checked out, with the write locks it holds on them.
//!
//! In: values the tool released, and their write locks. Out: drafts to commit. `manager/draft.rs` turns the drafts into
//! writes.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use super::{ContextId, sessions::Session, write_locks::WriteLock};
use toolhub_storage::backend::Row;
use toolhub_types::error::{ErrorKind, ToolError};

/// The states one call has checked out.
#[derive(Default)]
pub struct StateCheckouts {
    /// Whether a checkout or a lock was ever added. Most calls check out no state and can skip the mutex.
    used: AtomicBool,
    inner: Mutex<CheckoutsInner>,
}
toolhub_storage::brief_debug!("StateCheckouts" StateCheckouts);

#[derive(Default)]
struct CheckoutsInner {
    checkouts: Vec<Checkout>,
    write_locks: Vec<WriteLock>,
}

/// One state that was checked out.
pub struct Checkout {
    /// Which state.
    pub context: ContextId,
    /// Its rows at that time.
    pub loaded: LoadedContext,
    /// The tool's copy of it.
    pub pending: Arc<dyn PendingState>,
}
toolhub_storage::brief_debug!("Checkout" Checkout);

/// The rows of a context when the call checked it out.
#[derive(Clone)]
pub struct LoadedContext {
    /// The state's data.
    pub business: Option<Row>,
    /// When the tool used the state.
    pub session: Option<Row>,
    /// The session of its thread.
    pub thread_session: Session,
}
toolhub_storage::brief_debug!("LoadedContext" LoadedContext);

/// A checked-out state that the tool has released and that is not committed yet.
pub trait PendingState: Send + Sync {
    /// The bytes to store; `None` when the tool changed nothing.
    fn encode_changes(&self) -> Result<Option<Vec<u8>>, ToolError>;

    /// The layout version of these bytes.
    fn layout(&self) -> u32;

    /// Applies the same changes to the current row; `None` when the changes cannot be replayed.
    fn reapply(&self, now: Option<&Row>) -> Result<Option<Vec<u8>>, ToolError>;

    /// Merges this change with a concurrent one; or returns the reason why they conflict.
    fn merge(&self, base: Option<&Row>, mine: &[u8], theirs: &Row) -> Result<Vec<u8>, String>;
}

/// One state at the end of a call, ready to be turned into writes.
pub struct Draft {
    /// Which state.
    pub context: ContextId,
    /// Its rows when the call checked it out.
    pub loaded: LoadedContext,
    /// The text to store; `None` when the tool changed nothing.
    pub text: Option<Arc<[u8]>>,
    /// The tool's copy of it.
    pub pending: Arc<dyn PendingState>,
}
toolhub_storage::brief_debug!("Draft" Draft);

/// All drafts of a call, with the write locks it holds. Other calls cannot write these states until this is dropped.
#[derive(Default)]
pub struct Drafts {
    /// One draft per state.
    pub list: Vec<Draft>,
    write_locks: Vec<WriteLock>,
}
toolhub_storage::brief_debug!("Drafts" Drafts);

impl Drafts {
    /// Lets other calls write these states before these drafts are committed, or instead of them.
    pub fn release_locks(&mut self) {
        self.write_locks.clear();
    }
}

impl StateCheckouts {
    /// Whether no state was ever checked out.
    pub fn is_untouched(&self) -> bool {
        !self.used.load(Ordering::Acquire)
    }

    /// Registers a checked-out state. Refuses a second checkout of the same context.
    pub fn put(&self, checkout: Checkout) -> Result<(), ToolError> {
        let mut inner = self.lock();
        if inner.checkouts.iter().any(|other| other.context == checkout.context) {
            let text = format!("the state `{}` was checked out twice in one call", checkout.context);
            return Err(ToolError::operator_only(ErrorKind::Internal, text));
        }
        inner.checkouts.push(checkout);
        self.used.store(true, Ordering::Release);
        Ok(())
    }

    /// Holds a write lock until the call is committed.
    pub fn hold_lock(&self, lock: WriteLock) {
        self.lock().write_locks.push(lock);
        self.used.store(true, Ordering::Release);
    }

    /// Releases the write locks, because this attempt commits nothing.
    pub fn release_locks(&self) {
        let write_locks = std::mem::take(&mut self.lock().write_locks);
        drop(write_locks);
    }

    /// Takes the states without their changes, because the tool failed.
    pub fn take_unchanged_drafts(&self) -> Drafts {
        self.take_drafts(|_| None)
    }

    /// Takes the states as drafts; `encode` returns the text to store for each.
    pub fn take_drafts(&self, mut encode: impl FnMut(&dyn PendingState) -> Option<Vec<u8>>) -> Drafts {
        let CheckoutsInner { checkouts, write_locks } = std::mem::take(&mut *self.lock());
        let to_draft = |Checkout { context, loaded, pending }| {
            let text = encode(&*pending).map(Into::into);
            Draft { context, loaded, text, pending }
        };
        Drafts { list: checkouts.into_iter().map(to_draft).collect(), write_locks }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, CheckoutsInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

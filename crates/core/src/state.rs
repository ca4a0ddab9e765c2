//! What tools remember: typed state, loaded before a tool runs and committed with the call's end; and the same state as
//! JSON, for everybody else.
//!
//! In: a thread and a type. Out: the value, and at the end of the call the writes that join its closing batch.
//! Whether the writes are made is decided by `pipeline/close.rs`; a failed call leaves the state as it was. `manager` is
//! the way to it from outside a call.

mod checkouts;
mod connection_states;
mod context_id;
mod context_state;
pub(crate) mod data;
pub(crate) mod entry;
mod error;
mod export_line;
mod history;
mod manager;
pub(crate) mod merge;
mod patch;
mod rules;
mod sessions;
mod store_router;
mod versions;
mod write_locks;

pub(crate) use checkouts::{Checkout, Draft, Drafts, LoadedContext, PendingState, StateCheckouts};
pub use context_id::ContextId;
pub use context_state::ContextState;
pub use data::{ConnectionState, SessionState};
pub use entry::{ContextInfo, ContextPage, KindInfo, StateEntry, StateKind, StateStats};
pub use error::StateError;
pub use history::{HistoryEntry, HistoryEvent};
pub(crate) use manager::{ConflictOutcome, ExecutionHistory};
pub use manager::{ContextFilter, StateChange, StateChanges, StateCondition, StateManager};
pub use rules::StateCleanup;
pub(crate) use rules::StateRules;
pub(crate) use store_router::{OpenStore, StoreRouter};
pub use versions::StateVersion;
pub(crate) use write_locks::{WriteLockEntry as WritePlace, WriteLocks};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

/// A type that a tool keeps between calls, one value per thread.
///
/// Two tools that name the same state share it.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use toolhub_core::ToolState;
///
/// #[derive(Default, Serialize, Deserialize)]
/// struct Cart { lines: Vec<(String, u32)> }
/// impl ToolState for Cart { const NAME: &'static str = "cart"; }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be kept as the state of a tool",
    label = "not a tool state",
    note = "derive `Default`, `Serialize` and `Deserialize` for it and write `impl ToolState for {Self} {{ const NAME: &'static str = \"…\"; }}`"
)]
pub trait ToolState: Default + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// What the state is called in the store. Must stay the same for as long as stored values matter.
    const NAME: &'static str;
    /// The version of the type's layout. A stored value of another version is migrated or refused, never dropped.
    const VERSION: u32 = 1;

    /// Reads a value that was stored with another layout. It is stored with the present one when it is next changed.
    ///
    /// # Errors
    /// Why it cannot be read; the call fails as `state_unreadable`, and what is stored stays.
    fn migrate(from: u32, data: Value) -> Result<Self, String> {
        let _ = data;
        Err(format!("it has layout {from}, this tool knows {}", Self::VERSION))
    }

    /// Puts two changes of one value together, where conflicts are resolved by `merge`: `base` is what both began with.
    /// Without one of its own a type is merged as JSON: what only one of them changed is taken over, member by member.
    ///
    /// # Errors
    /// Why they do not go together; the call fails as `state_conflict`, and what is stored stays.
    fn merge(base: Self, mine: Self, theirs: Self) -> Result<Self, String> {
        let json = |value: Self| serde_json::to_value(value).map_err(|error| error.to_string());
        let merged =
            merge::three_way(&json(base)?, &json(mine)?, &json(theirs)?).map_err(|at| merge::describe_conflict(&at))?;
        serde_json::from_value(merged).map_err(|error| error.to_string())
    }
}

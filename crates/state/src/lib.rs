//! Tool state: typed values loaded before a tool runs and committed in the call's closing batch, and JSON access to the
//! same rows for operators, adapters and the API.
//!
//! In: a thread and a type. Out: the value, and at the end of the call the writes that join its closing batch. The
//! pipeline of `toolhub-core` decides whether the writes are committed; a failed call leaves the state unchanged.
//! `manager` is the access from outside a call.
#![forbid(unsafe_code)]

mod checkouts;
mod connection_states;
mod context_id;
mod context_state;
pub mod data;
pub mod entry;
mod error;
mod export_line;
mod history;
mod kind;
mod manager;
pub mod merge;
mod patch;
mod sessions;
mod settings;
mod store_router;
mod tag;
mod versions;
mod write_locks;

pub use checkouts::{Checkout, Draft, Drafts, LoadedContext, PendingState, StateCheckouts};
pub use context_id::{COOKIE_STATE_PREFIX, ContextId};
pub use context_state::ContextState;
pub use data::{ConnectionState, SessionState};
pub use entry::{ContextInfo, ContextPage, KindInfo, StateEntry, StateStats};
pub use error::StateError;
pub use history::{HistoryCursor, HistoryEntry, HistoryEvent};
pub use kind::StateKind;
pub use manager::{ConflictOutcome, ConnectionHold, ExecutionHistory};
pub use manager::{ContextFilter, StateChange, StateChanges, StateCondition, StateManager};
pub use settings::StateCleanup;
pub use settings::{SharedStateSettings, StateLimits, StateSettings};
pub use store_router::{OpenStore, StoreRouter, ThreadRows};
pub use tag::StateTag;
pub use versions::StateVersion;
pub use write_locks::{WriteLockEntry, WriteLocks};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

/// A type that a tool stores between calls, one value per thread.
///
/// Two tools that use the same state name share the value.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use toolhub_state::ToolState;
///
/// #[derive(Default, Serialize, Deserialize)]
/// struct Cart { lines: Vec<(String, u32)> }
/// impl ToolState for Cart { const NAME: &'static str = "cart"; }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be used as the state of a tool",
    label = "not a tool state",
    note = "derive `Default`, `Serialize` and `Deserialize` for it and write `impl ToolState for {Self} {{ const NAME: &'static str = \"…\"; }}`"
)]
pub trait ToolState: Default + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// The name of the state in the store. It must not change for as long as stored values matter.
    const NAME: &'static str;
    /// The version of the type's layout. A stored value of another version is migrated or refused, never dropped.
    const VERSION: u32 = 1;

    /// Converts a value that was stored with another layout. The next change stores it with the current layout.
    ///
    /// # Errors
    /// The reason why the value cannot be read; the call fails with `state_unreadable`, and the stored value stays.
    fn migrate(from: u32, data: Value) -> Result<Self, String> {
        let _ = data;
        Err(format!("it has layout {from}, this tool knows layout {}", Self::VERSION))
    }

    /// Three-way merge of two concurrent changes, used when `conflict_resolution` is `merge`; `base` is their common
    /// ancestor. The default merges the values as JSON, member by member.
    ///
    /// # Errors
    /// The reason why the changes conflict; the call fails with `state_conflict`, and the stored value stays.
    fn merge(base: Self, mine: Self, theirs: Self) -> Result<Self, String> {
        let json = |value: Self| serde_json::to_value(value).map_err(|error| error.to_string());
        let merged =
            merge::three_way(&json(base)?, &json(mine)?, &json(theirs)?).map_err(|at| merge::describe_conflict(&at))?;
        serde_json::from_value(merged).map_err(|error| error.to_string())
    }
}

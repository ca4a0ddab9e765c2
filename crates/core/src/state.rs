//! What tools remember: typed state, loaded before a tool runs and committed with the call's end; and the same state as
//! JSON, for everybody else.
//!
//! In: a thread and a type. Out: the value, and at the end of the call the writes that join its closing batch.
//! Whether the writes are made is decided by `pipeline/close.rs`; a failed call leaves the state as it was. `manager` is
//! the way to it from outside a call.

mod bound;
mod config;
mod connection_config;
mod context_id;
mod data;
mod desk;
mod entry;
mod error;
mod history;
mod live;
mod manager;
mod manager_config;
mod patch;
mod redact;
mod saved;
mod sessions;
mod typed;
mod versions;

pub use bound::ContextState;
pub use config::{BusinessStateConfig, ConflictResolution};
pub use connection_config::ConnectionStateConfig;
pub use context_id::ContextId;
pub use data::{ConnectionState, SessionState};
pub(crate) use desk::Desk;
pub use entry::{ContextInfo, ContextPage, KindInfo, StateEntry, StateKind, StateStats};
pub use error::StateError;
pub use history::{Happened, HistoryEntry};
pub use manager::{ContextFilter, StateChange, StateChanges, StateManager};
pub use manager_config::{FormatError, ManagerType, PersistenceFormat, StateManagerConfig};
pub use typed::State;
pub use versions::StateVersion;

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    backend::{Key, Partition, Seen, StoreError, Table},
    ids::{Tenant, ThreadId},
    services::Services,
};

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
    /// The version of the type's layout. A stored value of another version is refused, never dropped.
    const VERSION: u32 = 1;
}

/// Where a tool's own state lies in its thread.
fn place(tenant: &Tenant, thread: &ThreadId, name: &str) -> Key {
    let partition = Partition::of_thread(tenant.clone(), thread.clone());
    Key { partition, table: Table::State, id: smol_str::format_smolstr!("{name}/business") }
}

/// Which writing of each of these states a thread has now.
pub(crate) async fn seen(
    services: &Services,
    tenant: &Tenant,
    thread: &ThreadId,
    names: &[&'static str],
) -> Result<Vec<(&'static str, Option<Seen>)>, StoreError> {
    let keys: Vec<Key> = names.iter().map(|name| place(tenant, thread, name)).collect();
    let rows = services.store.load(&keys, services.clock.now()).await?;
    Ok(names.iter().copied().zip(rows.into_iter().map(|row| row.map(|row| row.seen))).collect())
}

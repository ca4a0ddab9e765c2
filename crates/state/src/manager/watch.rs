//! Change stream of one context, across all nodes.
//!
//! In: the change events of the store. Out: those of one context. Omits connection states, which are local to a node,
//! and expiry, which no store reports.

use std::{future::ready, pin::Pin};

use futures_core::Stream;
use futures_util::StreamExt;

use super::StateManager;
use crate::{ContextId, StateKind, entry};
use toolhub_storage::backend::{Table, WatchEvent};
use toolhub_types::ids::Tenant;

/// A change to one kind of a context's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StateChange {
    /// It was written.
    Written {
        /// The kind.
        kind: StateKind,
        /// The version it has now; 0 for kind `cache`.
        version: u64,
    },
    /// It was deleted.
    Deleted {
        /// The kind.
        kind: StateKind,
    },
    /// Some changes were dropped because the consumer lagged behind. Read the state again.
    Lagged,
}

/// A stream of changes.
pub type StateChanges = Pin<Box<dyn Stream<Item = StateChange> + Send>>;

impl StateManager {
    /// Subscribes to the changes of a context from now on.
    #[must_use]
    pub fn watch(&self, tenant: &Tenant, context: &ContextId) -> StateChanges {
        let (partition, prefix) = (context.partition(tenant), context.prefix());
        let to_change = move |event| match event {
            WatchEvent::Lagged => Some(StateChange::Lagged),
            WatchEvent::Row(key, version) if key.partition == partition => {
                let kind = key.id.strip_prefix(&prefix)?.parse().ok()?;
                Some(match version {
                    Some(version) => StateChange::Written { kind, version: entry::reported_version(kind, version) },
                    None => StateChange::Deleted { kind },
                })
            }
            WatchEvent::Row(..) => None,
        };
        let store = self.0.store.store_for(context.state().as_str());
        Box::pin(store.watch(Table::State).filter_map(move |event| ready(to_change(event))))
    }
}

//! Tells of the changes to a context as they happen, on whatever node.
//!
//! In: the store's news. Out: those that concern one context. Live connections are not told: they are of one node only.
//! Neither is expiry, which no store tells.

use std::{future::ready, pin::Pin};

use futures_core::Stream;
use futures_util::StreamExt;

use super::StateManager;
use crate::state::{ContextId, StateKind, entry};
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
    /// Some changes were not told, because the listener was too slow. Read again what matters.
    Lagged,
}

/// Changes as they happen.
pub type StateChanges = Pin<Box<dyn Stream<Item = StateChange> + Send>>;

impl StateManager {
    /// Listens to the changes of a context from here on.
    #[must_use]
    pub fn watch(&self, tenant: &Tenant, context: &ContextId) -> StateChanges {
        let (partition, prefix) = (context.partition(tenant), context.prefix());
        let concerns = move |change| match change {
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
        Box::pin(store.watch(Table::State).filter_map(move |change| ready(concerns(change))))
    }
}

//! Handle to one context's state for a running tool.
//!
//! In: a call and the name of a state. Out: the state of that name in the call's thread, as JSON, and methods to change
//! it. Delegates to the manager; it only fills in the tenant and the context.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    ConnectionState, ContextId, HistoryEvent, SessionState, StateEntry, StateError, StateKind, StateManager,
    entry::state_id,
};
use toolhub_types::ids::{StateName, Tenant, ThreadId};

/// The state of one name in the thread of a call.
///
/// Every change is committed immediately, independently of the call: it stays when the call fails. A change that must
/// be committed together with the end of the call belongs in a `State`. A call that changes the same
/// state in both ways conflicts with itself and ends with `state_conflict`.
#[derive(Clone)]
pub struct ContextState {
    manager: StateManager,
    tenant: Tenant,
    context: ContextId,
}
toolhub_storage::brief_debug!("ContextState" ContextState);

impl ContextState {
    /// The state of this name in a thread; `None` without a thread, unless all threads share their states.
    #[doc(hidden)]
    pub fn new(manager: &StateManager, tenant: &Tenant, thread: Option<&ThreadId>, name: &StateName) -> Option<Self> {
        let context = manager.context_for(name, thread)?;
        Some(Self { manager: manager.clone(), tenant: tenant.clone(), context })
    }

    /// The id of the context.
    #[must_use]
    pub fn id(&self) -> &ContextId {
        &self.context
    }

    /// The stored state; `None` when there is none or it has expired.
    ///
    /// # Errors
    /// As [`StateManager::get_state`].
    pub async fn get(&self, kind: StateKind) -> Result<Option<StateEntry>, StateError> {
        self.manager.get_state(&self.tenant, &self.context, kind).await
    }

    /// The state of the connection. It is not active after a restart and by default.
    ///
    /// # Errors
    /// As [`StateManager::get_state`].
    pub async fn connection(&self) -> Result<ConnectionState, StateError> {
        Ok(self.read(StateKind::Connection).await?.unwrap_or_default())
    }

    /// When the context was created and used; `None` when it never was.
    ///
    /// # Errors
    /// As [`StateManager::get_state`].
    pub async fn session(&self) -> Result<Option<SessionState>, StateError> {
        self.read(StateKind::Session).await
    }

    /// Replaces the state; returns the new version.
    ///
    /// # Errors
    /// As [`StateManager::set_state`].
    pub async fn set(&self, kind: StateKind, data: Value, ttl: Option<Duration>) -> Result<u64, StateError> {
        self.manager.set_state(&self.tenant, &self.context, kind, data, ttl).await
    }

    /// Applies a JSON merge patch to the state; returns the new version.
    ///
    /// # Errors
    /// As [`StateManager::update_state`]: also when there is no state to patch.
    pub async fn update(&self, kind: StateKind, patch: Value) -> Result<u64, StateError> {
        self.manager.update_state(&self.tenant, &self.context, kind, patch).await
    }

    /// Adds a note to the history, with secrets redacted.
    ///
    /// # Errors
    /// As [`StateManager::add_history`].
    pub async fn note(&self, what: impl Into<Value>) -> Result<(), StateError> {
        let note = HistoryEvent::Note { what: what.into() };
        self.manager.add_history(&self.tenant, &self.context, note).await
    }

    /// Deletes all kinds of state, the snapshots and the history. Returns whether there was any state.
    ///
    /// # Errors
    /// As [`StateManager::cleanup_context`].
    pub async fn clear(&self) -> Result<bool, StateError> {
        self.manager.cleanup_context(&self.tenant, &self.context).await
    }

    async fn read<T: DeserializeOwned>(&self, kind: StateKind) -> Result<Option<T>, StateError> {
        let Some(entry) = self.get(kind).await? else { return Ok(None) };
        let unreadable = |error: serde_json::Error| StateError::Unreadable {
            state: state_id(&self.context, kind),
            reason: error.to_string(),
        };
        serde_json::from_value(entry.data).map(Some).map_err(unreadable)
    }
}

//! The state of a context in the hands of a running tool.
//!
//! In: a call and the name of a state. Out: what is remembered under that name in the call's thread, as JSON, and ways to
//! change it. The manager does the work; here only the tenant and the context are filled in.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    ConnectionState, ContextId, HistoryEvent, SessionState, StateEntry, StateError, StateKind, StateManager,
    entry::state_id,
};
use toolhub_types::ids::{StateName, Tenant, ThreadId};

/// What is remembered under one name in the thread of a call.
///
/// Every change is committed at once, apart from the call: it stays when the call fails. What must become true together
/// with the end of the call belongs into a [`State`](crate::State). Whoever changes the same state in both ways meets
/// himself: the call then ends with `state_conflict`.
///
/// ```
/// use serde_json::{Value, json};
/// use toolhub_core::{CallContext, NoArguments, StateKind, ToolError, ids::StateName};
///
/// async fn connect(_: NoArguments, cx: CallContext) -> Result<u64, ToolError> {
///     let state = cx.state(&StateName::new("mailbox")?)?;
///     state.set(StateKind::Connection, json!({"active": true, "lastUsed": cx.now()}), None).await?;
///     state.note(json!({"connected": "imap"})).await?;
///     Ok(state.connection().await?.error_count)
/// }
/// ```
#[derive(Clone)]
pub struct ContextState {
    manager: StateManager,
    tenant: Tenant,
    context: ContextId,
}

impl ContextState {
    /// What is remembered under this name in a thread; `None` without a thread, unless all threads share their states.
    pub(crate) fn new(
        state: &StateManager,
        tenant: &Tenant,
        thread: Option<&ThreadId>,
        name: &StateName,
    ) -> Option<Self> {
        let context = state.context_for(name, thread)?;
        Some(Self { manager: state.clone(), tenant: tenant.clone(), context })
    }

    /// The context.
    #[must_use]
    pub fn id(&self) -> &ContextId {
        &self.context
    }

    /// What is remembered; `None` where there is nothing, or it has expired.
    ///
    /// # Errors
    /// As [`StateManager::get_state`].
    pub async fn get(&self, kind: StateKind) -> Result<Option<StateEntry>, StateError> {
        self.manager.get_state(&self.tenant, &self.context, kind).await
    }

    /// What is known of the connection. After a restart, and where nobody has said anything, it is not active.
    ///
    /// # Errors
    /// As [`StateManager::get_state`].
    pub async fn connection(&self) -> Result<ConnectionState, StateError> {
        Ok(self.read(StateKind::Connection).await?.unwrap_or_default())
    }

    /// When the context was made and used; `None` where that was never.
    ///
    /// # Errors
    /// As [`StateManager::get_state`].
    pub async fn session(&self) -> Result<Option<SessionState>, StateError> {
        self.read(StateKind::Session).await
    }

    /// Replaces what is remembered; answers the new version.
    ///
    /// # Errors
    /// As [`StateManager::set_state`].
    pub async fn set(&self, kind: StateKind, data: Value, ttl: Option<Duration>) -> Result<u64, StateError> {
        self.manager.set_state(&self.tenant, &self.context, kind, data, ttl).await
    }

    /// Lays a JSON merge patch over what is remembered; answers the new version.
    ///
    /// # Errors
    /// As [`StateManager::update_state`]: also when there is nothing to lay it over.
    pub async fn update(&self, kind: StateKind, patch: Value) -> Result<u64, StateError> {
        self.manager.update_state(&self.tenant, &self.context, kind, patch).await
    }

    /// Adds something to the history, without the secrets in it.
    ///
    /// # Errors
    /// As [`StateManager::add_history`].
    pub async fn note(&self, what: impl Into<Value>) -> Result<(), StateError> {
        let note = HistoryEvent::Note { what: what.into() };
        self.manager.add_history(&self.tenant, &self.context, note).await
    }

    /// Forgets everything: all kinds of state, snapshots and history. Says whether there was any state.
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

//! Marks the connection of a context as active while an execution or an instance uses it.

use super::StateManager;
use crate::{ContextId, connection_states::EntryId};
use toolhub_types::ids::Tenant;

/// Maximum length of a recorded error, in characters.
const MAX_ERROR_CHARS: usize = 500;

/// The connection of a context is active until this is dropped.
pub struct ConnectionHold {
    manager: StateManager,
    tenant: Tenant,
    context: ContextId,
    entry: EntryId,
    by_instance: bool,
    error: Option<String>,
}
toolhub_storage::brief_debug!("ConnectionHold" ConnectionHold);

impl StateManager {
    /// Holds the connection of a context for one execution.
    #[doc(hidden)]
    pub fn hold_connection(&self, tenant: &Tenant, context: ContextId) -> ConnectionHold {
        self.hold(tenant, context, false)
    }

    /// Holds the connection of a context, and a session on it, for as long as an instance lives.
    #[doc(hidden)]
    pub fn hold_session(&self, tenant: &Tenant, context: ContextId) -> ConnectionHold {
        self.hold(tenant, context, true)
    }

    /// Records whether a session is open on the connection of a context.
    #[doc(hidden)]
    pub fn set_session_active(&self, tenant: &Tenant, context: &ContextId, active: bool) {
        self.0.connections.set_session_active(tenant, context, active, self.now());
    }

    fn hold(&self, tenant: &Tenant, context: ContextId, by_instance: bool) -> ConnectionHold {
        let entry = self.0.connections.hold(tenant, &context, by_instance, self.now());
        ConnectionHold { manager: self.clone(), tenant: tenant.clone(), context, entry, by_instance, error: None }
    }
}

impl ConnectionHold {
    /// Records the error with which the execution ended.
    pub fn fail(&mut self, error: &str) {
        self.error = Some(error.chars().take(MAX_ERROR_CHARS).collect());
    }
}

impl Drop for ConnectionHold {
    fn drop(&mut self) {
        let (connections, now) = (&self.manager.0.connections, self.manager.now());
        let held = (&self.tenant, &self.context, self.entry);
        connections.release(held, self.by_instance, self.error.take(), now);
    }
}

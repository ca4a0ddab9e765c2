//! Writes on a condition, and what they have written.
//!
//! In: what shall be, and what must be there for it. Out: the entry as this write left it, which another write may have
//! followed already. The condition is part of the write: nobody can come between the look and the deed.

use std::time::Duration;

use serde_json::Value;

use super::StateManager;
use crate::state::{ContextId, StateEntry, StateError, StateKind, entry::state_id};
use toolhub_storage::backend::Row;
use toolhub_types::ids::Tenant;

/// What must be there for a write to be made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StateCondition {
    /// Whatever it is.
    #[default]
    Any,
    /// Nothing.
    Absent,
    /// Something.
    Present,
    /// This version. Kind `cache` counts none, and such a write is refused.
    Version(u64),
}

impl StateCondition {
    /// Lets a write pass that finds this.
    pub(super) fn check(self, context: &ContextId, kind: StateKind, row: Option<&Row>) -> Result<(), StateError> {
        if kind == StateKind::Cache && matches!(self, Self::Version(_)) {
            return Err(StateError::Refused("a state of kind `cache` has no versions to compare".into()));
        }
        let holds = match (self, row) {
            (Self::Any, _) | (Self::Absent, None) | (Self::Present, Some(_)) => true,
            (Self::Version(version), Some(row)) => row.version.number == version,
            (Self::Absent, Some(_)) | (Self::Present | Self::Version(_), None) => false,
        };
        let found = row.map_or(0, |row| row.version.number);
        if holds { Ok(()) } else { Err(StateError::Conflict { state: state_id(context, kind), found }) }
    }
}

impl StateManager {
    /// [`set_state`](Self::set_state) on a condition. Says also whether there was nothing before.
    ///
    /// # Errors
    /// As there; [`Conflict`](StateError::Conflict) when the condition does not hold.
    pub async fn set_state_if(
        &self,
        tenant: &Tenant,
        context: &ContextId,
        kind: StateKind,
        (data, ttl): (Value, Option<Duration>),
        condition: StateCondition,
    ) -> Result<(StateEntry, bool), StateError> {
        let wrote = self.set(tenant, context, kind, (data, ttl), condition).await?;
        Ok((StateEntry::from_row(context, kind, &wrote.row)?, wrote.is_new))
    }

    /// [`update_state`](Self::update_state) on a condition.
    ///
    /// # Errors
    /// As there; [`Conflict`](StateError::Conflict) when the condition does not hold.
    pub async fn update_state_if(
        &self,
        tenant: &Tenant,
        context: &ContextId,
        kind: StateKind,
        patch: Value,
        condition: StateCondition,
    ) -> Result<StateEntry, StateError> {
        StateEntry::from_row(context, kind, &self.update(tenant, context, kind, patch, condition).await?.row)
    }

    /// [`rollback`](Self::rollback) on a condition.
    ///
    /// # Errors
    /// As there; [`Conflict`](StateError::Conflict) when the condition does not hold.
    pub async fn rollback_if(
        &self,
        tenant: &Tenant,
        context: &ContextId,
        version: u64,
        condition: StateCondition,
    ) -> Result<StateEntry, StateError> {
        StateEntry::from_row(
            context,
            StateKind::Business,
            &self.restore_snapshot(tenant, context, version, condition).await?.row,
        )
    }
}

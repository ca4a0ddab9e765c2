//! Conditional writes, which return the written entry.
//!
//! In: the change and its precondition. Out: the entry as this write left it, which a later write may have replaced
//! already. Condition and write are atomic: no other write can come between them.

use std::time::Duration;

use serde_json::Value;

use super::StateManager;
use crate::{ContextId, StateEntry, StateError, StateKind, StateTag, entry::state_id};
use toolhub_storage::backend::Row;
use toolhub_types::ids::Tenant;

/// The precondition of a write.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StateCondition {
    /// No condition.
    #[default]
    Any,
    /// The state must not exist.
    Absent,
    /// The state must exist.
    Present,
    /// The state must have this version. Refused for kind `cache`, which has no versions. A state that is deleted and created
    /// again counts from 1 again; use the tag where that can happen.
    Version(u64),
    /// The state must be as this write left it. Refused for kind `cache`.
    Tag(StateTag),
}

impl StateCondition {
    /// Checks the condition against the current row.
    pub(super) fn check(self, context: &ContextId, kind: StateKind, row: Option<&Row>) -> Result<(), StateError> {
        if kind == StateKind::Cache && matches!(self, Self::Version(_) | Self::Tag(_)) {
            return Err(StateError::Refused("a state of kind `cache` has no versions to compare".into()));
        }
        let holds = match (self, row) {
            (Self::Any, _) | (Self::Absent, None) | (Self::Present, Some(_)) => true,
            (Self::Version(version), Some(row)) => row.version.number == version,
            (Self::Tag(tag), Some(row)) => StateTag::from(row.version) == tag,
            (Self::Absent, Some(_)) | (Self::Present | Self::Version(_) | Self::Tag(_), None) => false,
        };
        let found = row.map_or(0, |row| row.version.number);
        let expected = self.expected_version();
        if holds { Ok(()) } else { Err(StateError::Conflict { state: state_id(context, kind), found, expected }) }
    }

    /// The version that the condition names; 0 when the state must not exist.
    pub(super) fn expected_version(self) -> Option<u64> {
        match self {
            Self::Any | Self::Present => None,
            Self::Absent => Some(0),
            Self::Version(version) => Some(version),
            Self::Tag(tag) => Some(tag.version()),
        }
    }
}

impl StateManager {
    /// [`set_state`](Self::set_state) on a condition. Also returns whether the state is new.
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
        let written = self.set(tenant, context, kind, (data, ttl), condition).await?;
        Ok((StateEntry::from_row(context, kind, &written.row)?, written.is_new))
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

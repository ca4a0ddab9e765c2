//! The limits of each state: those its tools set, or else the hub's.

use std::{collections::HashMap, time::Duration};

use super::StateManager;
use crate::{ContextId, SharedStateSettings, StateError, StateLimits};
use toolhub_types::{ids::StateName, state_config::ManagerType, timestamp::Timestamp};

/// The limits that apply to one state.
pub(super) struct AppliedLimits {
    /// How long it lives after each write; for ever if there is none.
    pub(super) ttl: Option<Duration>,
    pub(super) max_state_size: usize,
    /// Maximum number of snapshots; 0 when versioning is off.
    pub(super) max_snapshots: usize,
    pub(super) max_history_size: usize,
}

impl StateManager {
    /// Applies the settings that tools have for these states. A state that no tool uses any more keeps its settings.
    #[doc(hidden)]
    pub fn apply_settings(&self, settings: &HashMap<StateName, SharedStateSettings>) {
        let managers: HashMap<StateName, Option<ManagerType>> =
            settings.iter().map(|(name, settings)| (name.clone(), settings.manager)).collect();
        self.0.store.assign_stores(&managers);
        let mut next = HashMap::clone(&self.0.limits.load());
        for (name, settings) in settings {
            if settings.limits == StateLimits::default() {
                next.remove(name);
            } else {
                next.insert(name.clone(), settings.limits);
            }
        }
        self.0.limits.store(next.into());
    }

    /// Whether a changed state is committed without an explicit save, unless the tool has its own setting.
    #[doc(hidden)]
    pub fn auto_save(&self) -> bool {
        self.0.business.auto_save
    }

    pub(super) fn limits(&self, context: &ContextId) -> AppliedLimits {
        let own = self.0.limits.load().get(context.state()).copied().unwrap_or_default();
        let business = &self.0.business;
        let max_versions = own.max_versions.unwrap_or(business.max_versions);
        AppliedLimits {
            ttl: own.ttl.or(self.0.config.ttl),
            max_state_size: own.max_state_size.unwrap_or(business.max_state_size),
            max_snapshots: if business.versioning { max_versions } else { 0 },
            max_history_size: own.max_history_size.unwrap_or(business.max_history_size),
        }
    }
}

impl AppliedLimits {
    /// When a value written now expires. `ttl` takes precedence over the state's own.
    pub(super) fn expiry(&self, ttl: Option<Duration>, now: Timestamp) -> Result<Option<Timestamp>, StateError> {
        /// Longer times are cut to this, which every store can represent.
        const MAX_TTL: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
        match ttl.or(self.ttl) {
            Some(ttl) if ttl.as_millis() == 0 => {
                Err(StateError::Refused("a time to live must be at least one millisecond".into()))
            }
            ttl => Ok(ttl.map(|ttl| now + ttl.min(MAX_TTL))),
        }
    }
}

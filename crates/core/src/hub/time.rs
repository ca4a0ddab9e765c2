//! Public API of time: the clock that a hub goes by.
//!
//! In: nothing. Out: the clock of the hub, which all times in its store are of.

use std::sync::Arc;

use super::ToolHub;
use toolhub_storage::clock::Clock;
use toolhub_types::timestamp::Timestamp;

impl ToolHub {
    /// The current time by the hub's clock, which a test may control.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.engine.services.clock.now()
    }

    /// The clock of the hub, for what outlives a request.
    #[must_use]
    pub fn clock(&self) -> Arc<dyn Clock> {
        self.engine.services.clock.clone()
    }
}

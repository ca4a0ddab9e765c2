//! What every handler may reach.

use std::sync::Arc;

use toolhub_core::{CancellationToken, ToolHub, backend::Backend};

use crate::{settings::Settings, steward::Steward};

/// Cheap to clone; all clones are the same server.
#[derive(Clone)]
pub(crate) struct App(Arc<Parts>);

struct Parts {
    hub: ToolHub,
    store: Arc<dyn Backend>,
    steward: Option<Arc<dyn Steward>>,
    settings: Settings,
    stopping: CancellationToken,
}

impl App {
    pub(crate) fn new(
        hub: ToolHub,
        store: Arc<dyn Backend>,
        steward: Option<Arc<dyn Steward>>,
        settings: Settings,
    ) -> Self {
        Self(Arc::new(Parts { hub, store, steward, settings, stopping: CancellationToken::new() }))
    }

    /// The hub behind the doors.
    pub(crate) fn hub(&self) -> &ToolHub {
        &self.0.hub
    }

    /// Where keys and the audit are kept.
    pub(crate) fn store(&self) -> &Arc<dyn Backend> {
        &self.0.store
    }

    /// The program around the server, if there is one that takes requests.
    pub(crate) fn steward(&self) -> Option<&Arc<dyn Steward>> {
        self.0.steward.as_ref()
    }

    /// What the owner said.
    pub(crate) fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// Given when the server begins to go away: streams that would go on for ever end then.
    pub(crate) fn stopping(&self) -> &CancellationToken {
        &self.0.stopping
    }
}

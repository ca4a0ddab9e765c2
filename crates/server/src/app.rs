//! What every handler may reach.

use std::sync::{Arc, OnceLock};

use tokio::time::Instant;
use toolhub_agent::AgentService;
use toolhub_core::{
    CancellationToken, ToolHub,
    backend::Backend,
    clock::{Clock, SystemClock, Timestamp},
};

use crate::{
    audit::Audit, host_control::HostControl, keys::Keys, metrics::Meters, origin_check::OriginCheck, settings::Settings,
};

/// Cheap to clone; all clones are the same server.
#[derive(Clone)]
pub(crate) struct App(Arc<Inner>);

struct Inner {
    hub: ToolHub,
    store: Arc<dyn Backend>,
    host_control: Option<Arc<dyn HostControl>>,
    /// Given after the rest, or never.
    agents: OnceLock<AgentService>,
    settings: Settings,
    origin_check: OriginCheck,
    keys: Arc<Keys>,
    audit: Audit,
    meters: Meters,
    started: Instant,
    stopping: CancellationToken,
}

impl App {
    pub(crate) fn new(
        hub: ToolHub,
        store: Arc<dyn Backend>,
        steward: Option<Arc<dyn HostControl>>,
        settings: Settings,
    ) -> Self {
        let (origin_check, keys) = (OriginCheck::new(&settings), Arc::new(Keys::new(&settings, store.clone())));
        let audit = Audit::new(store.clone(), settings.audit_retention);
        let (meters, begun, stopping) = (Meters::default(), Instant::now(), CancellationToken::new());
        let agents = OnceLock::new();
        Self(Arc::new(Inner {
            hub,
            store,
            host_control: steward,
            agents,
            settings,
            origin_check,
            keys,
            audit,
            meters,
            started: begun,
            stopping,
        }))
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
    pub(crate) fn host_control(&self) -> Option<&Arc<dyn HostControl>> {
        self.0.host_control.as_ref()
    }

    /// Takes the agents in; only the first time.
    pub(crate) fn set_agents(&self, agents: AgentService) {
        let _ = self.0.agents.set(agents);
    }

    /// The agents; some that are none where nobody gave any.
    pub(crate) fn agents(&self) -> &AgentService {
        self.0.agents.get_or_init(|| AgentService::new(&self.0.hub))
    }

    /// What the owner said.
    pub(crate) fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// What every request is looked at by first.
    pub(crate) fn origin_check(&self) -> &OriginCheck {
        &self.0.origin_check
    }

    /// Who has a key.
    pub(crate) fn keys(&self) -> &Arc<Keys> {
        &self.0.keys
    }

    /// Who did what.
    pub(crate) fn audit(&self) -> &Audit {
        &self.0.audit
    }

    /// What the server counts.
    pub(crate) fn meters(&self) -> &Meters {
        &self.0.meters
    }

    /// When the server began.
    pub(crate) fn started(&self) -> Instant {
        self.0.started
    }

    /// Cancelled as soon as the server was asked to stop: it is not ready any more, and streams without an end must end.
    pub(crate) fn stopping(&self) -> &CancellationToken {
        &self.0.stopping
    }

    /// What time it is.
    #[expect(clippy::unused_self, reason = "the clock may become the owner's one day, and callers should not notice")]
    pub(crate) fn now(&self) -> Timestamp {
        SystemClock.now()
    }
}

//! The state that all handlers share: hub, store, settings, keys, audit log, metrics.

use std::sync::{Arc, OnceLock};

use tokio::time::Instant;
use toolhub_agent::AgentService;
use toolhub_core::{CancellationToken, ToolHub, backend::Backend, clock::Timestamp};

use crate::{
    admission::Admission, audit::Audit, host_control::HostControl, keys::Keys, login_attempts::LoginAttempts,
    login_cookie::LoginCookie, mcp::McpEndpoint, metrics::Metrics, origin_check::OriginCheck, series::CallSeries,
    settings::Settings,
};

/// Cheap to clone; all clones share one server.
#[derive(Clone)]
pub(crate) struct App(Arc<Inner>);

struct Inner {
    hub: ToolHub,
    store: Arc<dyn Backend>,
    host_control: Option<Arc<dyn HostControl>>,
    /// Set once after construction, or initialized without any agents on first use.
    agents: OnceLock<AgentService>,
    settings: Settings,
    origin_check: OriginCheck,
    keys: Arc<Keys>,
    login_cookie: LoginCookie,
    login_attempts: LoginAttempts,
    audit: Arc<Audit>,
    meters: Metrics,
    started: Instant,
    stopping: CancellationToken,
    admission: Arc<Admission>,
    mcp: McpEndpoint,
    series: Arc<CallSeries>,
}

impl App {
    pub(crate) fn new(
        hub: ToolHub,
        store: Arc<dyn Backend>,
        host_control: Option<Arc<dyn HostControl>>,
        settings: Settings,
    ) -> Self {
        let keys = Arc::new(Keys::new(&settings, store.clone(), hub.clock()));
        let origin_check = OriginCheck::new(&settings);
        let (login_cookie, login_attempts) = (LoginCookie::new(&settings), LoginAttempts::default());
        let audit = Arc::new(Audit::new(store.clone(), hub.clock(), settings.audit_retention));
        let (meters, started, stopping) = (Metrics::default(), Instant::now(), CancellationToken::new());
        let (agents, admission) = (OnceLock::new(), Admission::new(settings.limits.connections.max(1)));
        let mcp = McpEndpoint::new(&hub, &store, &audit, &settings, &stopping);
        Self(Arc::new(Inner {
            hub,
            store,
            host_control,
            agents,
            settings,
            origin_check,
            keys,
            login_cookie,
            login_attempts,
            audit,
            meters,
            started,
            stopping,
            admission,
            mcp,
            series: Arc::default(),
        }))
    }

    /// The hub that the server exposes.
    pub(crate) fn hub(&self) -> &ToolHub {
        &self.0.hub
    }

    /// Which records are damaged, in this store and those of the hub.
    pub(crate) fn store_damage(&self) -> Vec<String> {
        let mut damage: Vec<_> = self.store().damage().into_iter().chain(self.hub().store_damage()).collect();
        // The server's store is usually the hub's.
        damage.dedup();
        damage
    }

    /// What an operator should know about this store and those of the hub.
    pub(crate) fn store_warnings(&self) -> Vec<String> {
        let mut warnings = self.hub().store_warnings();
        for warning in self.store().warnings() {
            // The server's store is usually the hub's.
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        }
        warnings
    }

    /// The store of the keys and the audit log.
    pub(crate) fn store(&self) -> &Arc<dyn Backend> {
        &self.0.store
    }

    /// The host program around the server, if it takes requests.
    pub(crate) fn host_control(&self) -> Option<&Arc<dyn HostControl>> {
        self.0.host_control.as_ref()
    }

    /// Sets the agents; only the first call has an effect.
    pub(crate) fn set_agents(&self, agents: AgentService) {
        let _ = self.0.agents.set(agents);
    }

    /// The agents; without any agents if none were set.
    pub(crate) fn agents(&self) -> &AgentService {
        self.0.agents.get_or_init(|| AgentService::new(&self.0.hub))
    }

    /// The settings of the server.
    pub(crate) fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// The Host, Origin and Sec-Fetch-Site check that every request passes first.
    pub(crate) fn origin_check(&self) -> &OriginCheck {
        &self.0.origin_check
    }

    /// The API keys.
    pub(crate) fn keys(&self) -> &Arc<Keys> {
        &self.0.keys
    }

    /// The cookie of logins.
    pub(crate) fn login_cookie(&self) -> &LoginCookie {
        &self.0.login_cookie
    }

    /// The failed logins.
    pub(crate) fn login_attempts(&self) -> &LoginAttempts {
        &self.0.login_attempts
    }

    /// The audit log.
    pub(crate) fn audit(&self) -> &Audit {
        &self.0.audit
    }

    /// The server's own metrics.
    pub(crate) fn meters(&self) -> &Metrics {
        &self.0.meters
    }

    /// The requests that are executed at the moment.
    pub(crate) fn admission(&self) -> &Arc<Admission> {
        &self.0.admission
    }

    /// The MCP endpoint.
    pub(crate) fn mcp(&self) -> &McpEndpoint {
        &self.0.mcp
    }

    /// Takes samples for the time series of calls from now on.
    pub(crate) fn start_series(&self) {
        self.0.series.start(self.0.hub.clone(), self.0.stopping.clone());
    }

    /// Time series of calls.
    pub(crate) fn series(&self) -> &Arc<CallSeries> {
        &self.0.series
    }

    /// When the server started.
    pub(crate) fn started(&self) -> Instant {
        self.0.started
    }

    /// Cancelled when shutdown is requested: `/readyz` fails from then on, and endless streams end.
    pub(crate) fn stopping(&self) -> &CancellationToken {
        &self.0.stopping
    }

    /// The current time by the hub's clock, which all nodes of a store share.
    pub(crate) fn now(&self) -> Timestamp {
        self.0.hub.now()
    }
}

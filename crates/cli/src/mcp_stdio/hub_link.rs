//! The connection to the hub: finds the server of the config, or becomes it.
//!
//! In: the config. Out: a server that answers at its address. If none does, this process starts one; of several processes that try at
//! the same time, the one that gets the store and the address succeeds, and the others use its server. The same happens again when the
//! server is gone.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::json;
use tokio::{sync::Mutex, time::Instant};
use toolhub_net::Method;

use super::responsiveness::{MAX_UNANSWERED, Responsiveness, silent_failure};
use crate::{
    client::{self, Occupant, Remote, Request},
    failure::Failure,
    local_hub::LocalHub,
    serve::{BackgroundServer, StartError},
};

/// How long the first connection may take: another process may be opening the store. Clients give up after ten seconds, and then show
/// no reason.
const FIRST_CONNECT_TIMEOUT: Duration = Duration::from_secs(8);
/// How long a later one may take: `toolhub serve` keeps its store until running calls have ended.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(40);
/// The delay between two attempts.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// How long the MCP servers of the config may take to connect before the server answers.
const CONNECTING: Duration = Duration::from_secs(3);
/// How often a process looks whether the server of another one is still there.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);
/// How long the other one may take to answer; it answers also while tools block its runtime.
const LIVENESS_TIMEOUT: Duration = Duration::from_secs(2);

/// The connection to the hub.
pub(super) struct HubLink {
    remote: Remote,
    /// The config whose server this process may become; `None` for a server that others run.
    local: Option<LocalHub>,
    own: Mutex<OwnServer>,
    /// Counts connections, so that of several tasks that lost the same one only the first reconnects.
    epoch: AtomicU64,
    /// Whether a connection was lost since the server was looked for.
    is_doubtful: AtomicBool,
    responsiveness: Responsiveness,
}

/// The server in this process.
#[derive(Default)]
struct OwnServer {
    server: Option<BackgroundServer>,
    /// Why the last attempt to connect failed.
    last_failure: Option<Failure>,
}

impl OwnServer {
    fn is_running(&self) -> bool {
        self.server.as_ref().is_some_and(BackgroundServer::is_running)
    }
}

impl HubLink {
    /// The server that the user named.
    ///
    /// # Errors
    /// When the URL is invalid.
    pub(super) fn named(url: &str, token: Option<String>) -> Result<Self, Failure> {
        Ok(Self::new(Remote::new(url, token, true)?, None))
    }

    /// The server of a config, which this process may become.
    ///
    /// # Errors
    /// When the config cannot be served this way, or its key is missing.
    pub(super) fn of_config(local: LocalHub, token: Option<String>) -> Result<Self, Failure> {
        let config = &local.loaded.config;
        if !config.mcp_endpoint.enabled {
            let failure = Failure::new("config_invalid", "the MCP endpoint is switched off");
            return Err(failure.help("set `mcp_endpoint.enabled = true`"));
        }
        local.require_fixed_port()?;
        if local.requires_keys() && token.is_none() {
            let failure =
                Failure::new("unauthenticated", "this hub requires a key, and TOOLHUB_TOKEN is not set or empty");
            return Err(failure
                .help("set TOOLHUB_TOKEN in the environment of the MCP client's server")
                .help("toolhub keys create NAME --scope tools:read --scope tools:call"));
        }
        let remote = Remote::new(&local.url(), token, false)?;
        Ok(Self::new(remote, Some(local)))
    }

    /// The running server of a config that cannot be loaded; `None` if it does not run.
    ///
    /// # Errors
    /// When the server refuses the key.
    pub(super) async fn of_running_server(local: &LocalHub, token: Option<String>) -> Result<Option<Self>, Failure> {
        let remote = Remote::new(&local.url(), token, false)?;
        let is_running = matches!(client::probe(&remote, local).await?, Occupant::Server);
        Ok(is_running.then(|| Self::new(remote, None)))
    }

    fn new(remote: Remote, local: Option<LocalHub>) -> Self {
        Self {
            remote,
            local,
            own: Mutex::default(),
            epoch: AtomicU64::new(0),
            is_doubtful: AtomicBool::new(false),
            responsiveness: Responsiveness::default(),
        }
    }

    /// The URL of the server.
    pub(super) fn url(&self) -> &str {
        self.remote.url()
    }

    /// The number of the current connection.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Connects for the first time.
    ///
    /// # Errors
    /// When no server answers, and this process cannot become it.
    pub(super) async fn connect(&self) -> Result<(), Failure> {
        if self.local.is_none() {
            return self.remote.send(Request::livez()).await.map(|_| ());
        }
        let mut own = self.own.lock().await;
        self.establish(&mut own, FIRST_CONNECT_TIMEOUT).await
    }

    /// Whether the server answers and does not stop.
    pub(super) async fn is_staying(&self) -> bool {
        let look = self.remote.send(Request::at_root(Method::GET, ["readyz"]));
        let answered = tokio::time::timeout(LIVENESS_TIMEOUT, look).await;
        matches!(answered, Ok(Ok(response)) if response.status == 200)
    }

    /// Why the server cannot be used now, although it accepts connections.
    pub(super) fn unresponsiveness(&self) -> Option<Failure> {
        self.responsiveness.failure()
    }

    /// Waits until the server has not answered for so long that waiting for it is useless.
    pub(super) async fn unresponsive(&self) -> Failure {
        self.responsiveness.lost().await
    }

    /// Reports that a connection was lost.
    pub(super) fn report_lost(&self) {
        self.is_doubtful.store(true, Ordering::Release);
    }

    /// Waits until the server answers, if a connection was lost: the address of a process that is being killed accepts connections for
    /// a moment, and a call that is sent on one may or may not have run.
    ///
    /// # Errors
    /// When no server answers, and this process cannot become it.
    pub(super) async fn ready(&self) -> Result<(), Failure> {
        match self.is_doubtful.load(Ordering::Acquire) {
            true => self.reconnect(self.epoch()).await,
            false => Ok(()),
        }
    }

    /// Connects again, unless another task did since `epoch`.
    ///
    /// # Errors
    /// When no server answers, and this process cannot become it.
    pub(super) async fn reconnect(&self, epoch: u64) -> Result<(), Failure> {
        let mut own = self.own.lock().await;
        if self.epoch() != epoch {
            // Also a failure: the tasks that waited for that attempt need not wait for one each.
            return own.last_failure.clone().map_or(Ok(()), Err);
        }
        let connected = self.establish(&mut own, RECONNECT_TIMEOUT).await;
        if let Err(failure) = &connected {
            tracing::error!(error = failure.message, "cannot connect to the hub again");
        }
        own.last_failure = connected.clone().err();
        self.is_doubtful.store(connected.is_err(), Ordering::Release);
        self.epoch.fetch_add(1, Ordering::AcqRel);
        connected
    }

    async fn establish(&self, own: &mut OwnServer, timeout: Duration) -> Result<(), Failure> {
        let (end, mut unanswered) = (Instant::now() + timeout, 0);
        loop {
            let Some(local) = &self.local else {
                match self.remote.send(Request::livez()).await {
                    Err(failure) if Instant::now() >= end => return Err(failure),
                    Err(_) => tokio::time::sleep(RETRY_INTERVAL).await,
                    Ok(_) => return Ok(()),
                }
                continue;
            };
            let failure = match client::probe(&self.remote, local).await? {
                Occupant::Server => return Ok(()),
                Occupant::Other(what) => return Err(address_taken(self.url(), &what)),
                Occupant::Silent if own.is_running() => {
                    Failure::new("unreachable", "the server in this process does not answer")
                }
                Occupant::Silent => {
                    unanswered += 1;
                    if unanswered >= MAX_UNANSWERED || Instant::now() >= end {
                        return Err(silent_failure(local));
                    }
                    continue;
                }
                Occupant::Unknown(reason) if own.is_running() => {
                    Failure::new("unreachable", format!("the server in this process does not answer: {reason}"))
                }
                Occupant::Unknown(reason) => match start(local).await {
                    Ok(server) => {
                        own.server = Some(server);
                        // Another look, because the server may refuse the key.
                        continue;
                    }
                    Err(StartError::Failed(failure)) => return Err(failure),
                    Err(StartError::Taken(failure)) if failure.code == "store_in_use" => {
                        failure.help("if a server with another address uses it, name that one with `--server URL`")
                    }
                    Err(StartError::Taken(_)) => address_taken(
                        self.url(),
                        &format!("a program that is not the server of this config ({reason})"),
                    ),
                },
            };
            if Instant::now() >= end {
                return Err(failure);
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    /// Creates a thread, if it does not exist.
    ///
    /// # Errors
    /// When the server does not answer or refuses it.
    pub(super) async fn create_thread(&self, thread: &str) -> Result<(), Failure> {
        let request = Request::post(["threads"]).body(json!({"id": thread}));
        self.remote.send(request).await?.error_for_status().map(|_| ())
    }

    /// Replaces the server of another process as soon as it is gone, also while no message is passed on; and notices when it does not
    /// answer any more.
    pub(super) async fn watch(self: Arc<Self>) {
        let Some(local) = &self.local else { return };
        let mut unanswered = 0;
        loop {
            tokio::time::sleep(WATCH_INTERVAL).await;
            let epoch = self.epoch();
            let is_own = self.own.lock().await.is_running();
            let look = tokio::time::timeout(LIVENESS_TIMEOUT, self.remote.send(Request::livez()));
            let answered = if is_own { None } else { Some(look.await) };
            match answered {
                Some(Err(_)) if unanswered + 1 < MAX_UNANSWERED => unanswered += 1,
                Some(Err(_)) => {
                    if self.unresponsiveness().is_none() {
                        let failure = silent_failure(local);
                        tracing::error!(error = failure.message, "the hub does not answer");
                        self.responsiveness.set(Some(failure));
                    }
                }
                Some(Ok(_)) | None => {
                    unanswered = 0;
                    self.responsiveness.set(None);
                }
            }
            if let Some(Ok(Err(_))) = answered {
                // It logs why it fails, and is tried again.
                let _ = self.reconnect(epoch).await;
            }
        }
    }

    /// Stops the server, if it is in this process.
    pub(super) async fn stop(&self) {
        let server = self.own.lock().await.server.take();
        if let Some(server) = server {
            server.stop().await;
        }
    }
}

/// Starts the server in this process.
async fn start(local: &LocalHub) -> Result<BackgroundServer, StartError> {
    let server = &local.loaded.config.server;
    local.require_config().map_err(StartError::Failed)?;
    if !server.host.is_loopback() {
        let message = format!(
            "no server runs at {}, and an address that other machines can reach is not served from here",
            local.url()
        );
        return Err(StartError::Failed(Failure::new("unreachable", message).help("toolhub serve")));
    }
    // The server that is gone may have read a newer version of the config.
    let current = LocalHub::load(local.options.clone()).ok().filter(|current| current.url() == local.url());
    let started = BackgroundServer::start(current.as_ref().unwrap_or(local), CONNECTING).await?;
    tracing::info!(url = local.url(), "serving the hub");
    Ok(started)
}

fn address_taken(url: &str, what: &str) -> Failure {
    Failure::new("unreachable", format!("{url} is in use by {what}"))
        .help("stop it, or set another `server.port` in the config")
        .help("or name the server to use with `--server URL`")
}

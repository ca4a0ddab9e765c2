//! The connections to one server: the supervisor's own, and one for each other tenant or for each thread.
//!
//! In: the context of a call. Out: a live connection that no other tenant uses, or no other thread. The supervisor's connection, which
//! also lists the tools, serves the default tenant; the others are made on first use and closed when idle. What one tenant leaves
//! behind in a session is never seen by another. The connection of a thread is an instance: the hub closes it.

use std::{
    collections::HashMap,
    ops::Deref,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use serde_json::Value;
use tokio::{runtime::Handle, sync::watch, time::Instant};
use toolhub_core::{CallContext, CancellationToken, InstanceGroup, SharedInstanceGuard, ToolError, ids::Tenant};

use super::{
    accepted_input::AcceptedInput,
    connect_error::ConnectError,
    connection::{Connection, ConnectionOptions, Endpoint},
    era::Era,
    error,
    log_ring::LogRing,
    operation_meters::OperationMeters,
    probe::{self, LastProbe},
    server::McpServer,
    wire::RequestError,
};

/// How long a connection of a tenant may be idle.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10 * 60);
/// Maximum number of tenants with a connection of their own.
const MAX_TENANTS: usize = 200;
/// How long a call waits for the next connection after a loss.
const RECONNECT_WAIT: Duration = Duration::from_secs(2);
/// How long a write may take that the server does not accept.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// The clean-up reason of an instance.
const CONNECTION_LOST: &str = "its connection was lost";

pub(super) struct Connections {
    endpoint: Endpoint,
    options: ConnectionOptions,
    pub(super) meters: OperationMeters,
    own: watch::Sender<Own>,
    tenants: Mutex<HashMap<Tenant, Arc<TenantConnection>>>,
    /// The instances that the tools share, if each thread has a connection of its own.
    pub(super) instances: Option<InstanceGroup>,
    /// The connections of threads.
    threads: Mutex<Vec<Weak<Connection>>>,
    /// The result of the last probe, which serves all tools of the server.
    last_probe: tokio::sync::Mutex<LastProbe>,
}

/// The supervisor's connection, or why there is none.
#[derive(Default)]
struct Own {
    connection: Option<Arc<Connection>>,
    era: Option<Era>,
}

impl Own {
    fn live(&self) -> Option<Arc<Connection>> {
        self.connection.clone().filter(|connection| !connection.has_ended())
    }
}

/// The connection of one tenant.
struct TenantConnection {
    /// Held while it connects, so that concurrent calls make one connection.
    connection: tokio::sync::Mutex<Option<Arc<Connection>>>,
    last_used: Mutex<Instant>,
    /// Cancelled when the connection is not wanted any more.
    closed: CancellationToken,
}

impl Connections {
    pub(super) fn new(server: &McpServer, logs: Arc<LogRing>) -> Self {
        let options = ConnectionOptions {
            startup_timeout: server.startup_timeout,
            write_timeout: WRITE_TIMEOUT,
            max_message: server.max_message,
            // The legacy era declares them when it connects. A caller that cannot answer declines.
            input: AcceptedInput { form: true, url: true, sampling: server.sampling, roots: !server.roots.is_empty() },
            roots: server.roots.clone(),
            logs,
        };
        Self {
            endpoint: server.endpoint.clone(),
            options,
            meters: OperationMeters::default(),
            own: watch::Sender::default(),
            tenants: Mutex::default(),
            instances: server.per_thread.then(InstanceGroup::new),
            threads: Mutex::default(),
            last_probe: tokio::sync::Mutex::default(),
        }
    }

    /// The input requests that the caller of a call answers, or the config does.
    pub(super) fn accepted_input(&self, context: &CallContext) -> AcceptedInput {
        let caller = AcceptedInput::of_caller(context);
        AcceptedInput {
            sampling: caller.sampling && self.options.input.sampling,
            roots: caller.roots || self.options.input.roots,
            ..caller
        }
    }

    /// Whether the server is an address: calls then have headers.
    pub(super) fn is_http(&self) -> bool {
        matches!(self.endpoint, Endpoint::Http(_))
    }

    /// The roots of the config, as in the protocol.
    pub(super) fn roots(&self) -> Vec<Value> {
        self.options.roots()
    }

    /// A new connection.
    pub(super) async fn open(&self, era: Era) -> Result<Connection, ConnectError> {
        let started = Instant::now();
        // Boxed, because the futures of calls contain this one, which few of them poll.
        let connection = Box::pin(Connection::open(&self.endpoint, era, &self.options)).await;
        self.meters.record_handshake(era, started.elapsed());
        connection
    }

    /// Sets the supervisor's connection.
    pub(super) fn set_own(&self, connection: Arc<Connection>) {
        self.own.send_replace(Own { era: Some(connection.facts().era), connection: Some(connection) });
    }

    /// Takes the supervisor's connection, to close it.
    pub(super) fn take_own(&self) -> Option<Arc<Connection>> {
        let mut taken = None;
        self.own.send_modify(|own| taken = own.connection.take());
        taken
    }

    /// The supervisor's connection.
    pub(super) fn current(&self) -> Option<Arc<Connection>> {
        self.own.borrow().live()
    }

    /// Whether the server answers. Concurrent questions share one probe.
    pub(super) async fn is_healthy(&self) -> bool {
        let mut last = self.last_probe.lock().await;
        if let Some(is_healthy) = last.current() {
            return is_healthy;
        }
        match self.current() {
            Some(connection) => last.check(&connection).await,
            None => false,
        }
    }

    /// The connection for a call.
    pub(super) async fn for_call(&self, context: &CallContext) -> Result<CallConnection, ToolError> {
        if self.instances.is_none()
            && *context.tenant() == Tenant::default()
            && let Some(connection) = self.current()
        {
            return Ok(CallConnection { connection, instance: None, owner: ConnectionOwner::Supervisor });
        }
        Box::pin(self.wait_for_call(context)).await
    }

    /// The connection for a call that may have to connect first. A call that is aborted meanwhile has sent nothing.
    async fn wait_for_call(&self, context: &CallContext) -> Result<CallConnection, ToolError> {
        let connecting = async {
            if self.instances.is_some() {
                return self.for_thread(context).await;
            }
            let (connection, owner) = match context.tenant() {
                tenant if *tenant == Tenant::default() => (self.reconnected().await?, ConnectionOwner::Supervisor),
                tenant => (self.for_other_tenant(tenant).await?, ConnectionOwner::Tenant),
            };
            Ok(CallConnection { connection, instance: None, owner })
        };
        context.wait_before_start(connecting).await?
    }

    /// The connection of the thread. One that has ended is replaced.
    async fn for_thread(&self, context: &CallContext) -> Result<CallConnection, ToolError> {
        let get_or_open = || {
            let open = || self.open_for_thread();
            context.shared_instance(open, |live: Arc<Arc<Connection>>| Box::pin(async move { live.close().await }))
        };
        let mut instance = get_or_open().await?;
        if instance.has_ended() {
            instance.discard(CONNECTION_LOST);
            instance = get_or_open().await?;
        }
        Ok(CallConnection { connection: instance.clone(), instance: Some(instance), owner: ConnectionOwner::Thread })
    }

    async fn open_for_thread(&self) -> Result<Arc<Connection>, ToolError> {
        let era = self.own.borrow().era.ok_or_else(error::not_connected)?;
        // Other threads are not concerned.
        let new = Arc::new(self.open(era).await.map_err(|error| error::connect_error(&error).of_thread())?);
        let mut threads = self.threads();
        threads.retain(|connection| connection.strong_count() > 0);
        threads.push(Arc::downgrade(&new));
        Ok(new)
    }

    /// The connection of a tenant that does not share the supervisor's.
    async fn for_other_tenant(&self, tenant: &Tenant) -> Result<Arc<Connection>, ToolError> {
        let era = self.own.borrow().era.ok_or_else(error::not_connected)?;
        let slot = self.slot(tenant)?;
        let connecting = slot.closed.run_until_cancelled(slot.connection.lock());
        let mut connection = connecting.await.ok_or_else(error::not_connected)?;
        *slot.last_used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        if let Some(live) = connection.as_ref().filter(|connection| !connection.has_ended()) {
            return Ok(live.clone());
        }
        *connection = None;
        // Other tenants are not concerned.
        let failed = |error| error::connect_error(&error).uncounted();
        let new =
            slot.closed.run_until_cancelled(self.open(era)).await.ok_or_else(error::not_connected)?.map_err(failed)?;
        Ok(connection.insert(Arc::new(new)).clone())
    }

    /// The supervisor's connection, or the next one: a call may be admitted just before the loss of a connection is noticed.
    async fn reconnected(&self) -> Result<Arc<Connection>, ToolError> {
        if let Some(connection) = self.current() {
            return Ok(connection);
        }
        let mut own = self.own.subscribe();
        let connected = tokio::time::timeout(RECONNECT_WAIT, own.wait_for(|own| own.live().is_some())).await;
        connected.ok().and_then(Result::ok).and_then(|own| own.live()).ok_or_else(error::not_connected)
    }

    fn slot(&self, tenant: &Tenant) -> Result<Arc<TenantConnection>, ToolError> {
        let mut tenants = self.tenants();
        if let Some(slot) = tenants.get(tenant) {
            return Ok(slot.clone());
        }
        if tenants.len() >= MAX_TENANTS {
            return Err(error::too_many_tenants(MAX_TENANTS));
        }
        let slot = TenantConnection {
            connection: tokio::sync::Mutex::new(None),
            last_used: Mutex::new(Instant::now()),
            closed: CancellationToken::new(),
        };
        Ok(tenants.entry(tenant.clone()).or_insert(Arc::new(slot)).clone())
    }

    /// Closes the connections of tenants that have not used them for a while.
    pub(super) fn close_idle(&self) {
        self.tenants().retain(|_, slot| {
            let last_used = *slot.last_used.lock().unwrap_or_else(PoisonError::into_inner);
            let is_used = match slot.connection.try_lock() {
                Ok(connection) => connection.as_ref().is_some_and(|connection| connection.in_flight() > 0),
                Err(_) => true,
            };
            is_used || last_used.elapsed() < IDLE_TIMEOUT
        });
    }

    /// Takes all connections, to close them.
    pub(super) async fn take_all(&self) -> Vec<Arc<Connection>> {
        let slots: Vec<_> = self.tenants().drain().map(|(_, slot)| slot).collect();
        let mut all: Vec<_> = self.take_own().into_iter().collect();
        all.extend(self.threads().drain(..).filter_map(|connection| connection.upgrade()));
        for slot in slots {
            // One that is connecting gives up.
            slot.closed.cancel();
            all.extend(slot.connection.lock().await.take());
        }
        all
    }

    fn threads(&self) -> MutexGuard<'_, Vec<Weak<Connection>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tenants(&self) -> MutexGuard<'_, HashMap<Tenant, Arc<TenantConnection>>> {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The connection that a call uses. That of a thread is not closed while this exists.
pub(super) struct CallConnection {
    connection: Arc<Connection>,
    instance: Option<SharedInstanceGuard<Arc<Connection>>>,
    owner: ConnectionOwner,
}

/// Who uses a connection, and is concerned by its loss.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ConnectionOwner {
    /// The supervisor and the default tenant.
    Supervisor,
    Tenant,
    Thread,
}

impl CallConnection {
    /// The error of a call that was sent on this connection.
    pub(super) fn request_error(&self, error: RequestError, read_only: bool) -> ToolError {
        self.own_error(self.secrets().all.error(error::request_error(error, read_only)))
    }

    /// An error of a call on this connection. One that is not the supervisor's says nothing about those of others: a thread whose calls
    /// break its session again and again does not keep the tool from other threads.
    pub(super) fn own_error(&self, error: ToolError) -> ToolError {
        match self.owner {
            ConnectionOwner::Supervisor => error,
            ConnectionOwner::Tenant => error.uncounted(),
            ConnectionOwner::Thread => error.of_thread(),
        }
    }

    /// Notices whether a call has ended. One that was given up, as after a timeout, may mean that the server does not answer any more,
    /// which the supervisor checks on its own connection only. On the connection of a tenant that counts for that tenant only.
    pub(super) fn watch_call(&self, context: &CallContext) -> CallWatch {
        if self.owner == ConnectionOwner::Tenant {
            context.leave_timeouts_uncounted();
        }
        let connection = (self.owner != ConnectionOwner::Supervisor).then(|| self.connection.clone());
        CallWatch { connection, sent: Instant::now(), runtime: Handle::current() }
    }

    /// Records in the connection state of the tool whether the session goes on after a call.
    pub(super) fn record_session(&self, context: &CallContext) {
        let has_ended = self.connection.has_ended();
        match &self.instance {
            Some(instance) if has_ended => instance.discard(CONNECTION_LOST),
            // The instance is a session.
            Some(_) => {}
            None => context.set_session_active(!has_ended),
        }
    }
}

impl Deref for CallConnection {
    type Target = Connection;
    fn deref(&self) -> &Connection {
        &self.connection
    }
}

/// A running call on a connection that the supervisor does not check. If it is dropped before its end, the connection is checked.
pub(super) struct CallWatch {
    connection: Option<Arc<Connection>>,
    /// It is sent now or later.
    sent: Instant,
    runtime: Handle,
}

impl CallWatch {
    /// The call has an answer, or an error.
    pub(super) fn ended(mut self) {
        self.connection = None;
    }
}

impl Drop for CallWatch {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            let sent = self.sent;
            // Bounded by the timeouts of the probes.
            self.runtime.spawn(async move { probe::check_abandoned(&connection, sent).await });
        }
    }
}

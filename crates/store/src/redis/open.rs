//! Opens a store in Redis: checks, description of the store, connections, background tasks.
//!
//! Nothing is written before all checks of the server have passed.

use std::sync::Arc;

use redis::{Cmd, ErrorKind, RedisError, Value};
use tokio::time::{Instant, timeout_at};
use toolhub_storage::backend::StoreServer;

use super::{
    Options,
    acknowledged::Acknowledged,
    clock::StoreClock,
    error::OpenError,
    keys::{CLUSTER_BUCKETS, Keys, MAX_BUCKETS},
    link::{Connector, Link},
    loss_check::{LossCheck, check_call},
    notifications::{NotificationState, Notifications},
    permissions,
    replication::Replication,
    requests::Requests,
    server_info,
    server_monitor::{ServerMonitor, ServerState},
    server_run::ServerRun,
    supervisor::{Purpose, Supervisor, describe},
};
use crate::change_feed::ChangeFeed;

/// The version of the layout of keys and values.
const SCHEMA: u32 = 1;

/// What the handle of a store needs.
pub(super) struct Opened {
    pub(super) keys: Keys,
    pub(super) requests: Arc<Requests>,
    pub(super) replication: Option<Replication>,
    pub(super) change_feed: ChangeFeed,
    pub(super) acknowledged: Arc<Acknowledged>,
    pub(super) servers: Arc<ServerState>,
    pub(super) notifications: Arc<NotificationState>,
    pub(super) clock: Arc<StoreClock>,
}

/// What was found where a store is, or would be created.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Inspection {
    /// Whether there is a store.
    pub exists: bool,
    /// Its servers.
    pub servers: Vec<StoreServer>,
    /// What is worth a warning.
    pub warnings: Vec<String>,
}

/// The background tasks of an open store. Dropping it ends them.
pub(super) struct Tasks {
    _notifications: Notifications,
    _loss_check: LossCheck,
    _monitor: ServerMonitor,
}

/// What a server says that has passed the checks.
struct CheckedServer {
    connector: Connector,
    link: Link,
    /// Those of the store that was found; of the one that would be created if there is none.
    keys: Keys,
    /// Whether there is a store.
    exists: bool,
}

/// Connects and checks everything that a store needs. Writes nothing.
async fn check_server(options: &Options) -> Result<CheckedServer, OpenError> {
    if options.prefix.is_empty() || options.prefix.contains(['{', '}']) {
        return Err(OpenError::Prefix(options.prefix.clone()));
    }
    if let Some(buckets) = options.buckets.filter(|buckets| !(1..=MAX_BUCKETS).contains(buckets)) {
        return Err(OpenError::Buckets(buckets));
    }
    let connector = Connector::new(options);
    let deadline = Instant::now() + options.operation_timeout;
    let mut link = match timeout_at(deadline, connector.connect()).await {
        Ok(Ok(link)) => link,
        Ok(Err(error)) => return Err(connect_error(options, &connector, &error).await),
        Err(_) => return Err(unreachable(options, format!("no answer within {:?}", options.operation_timeout))),
    };
    server_info::check(&mut link, options).await?;
    let stored_buckets = read_description(&mut link, &options.prefix).await?;
    let default = if options.address.is_cluster() { CLUSTER_BUCKETS } else { 1 };
    let keys = Keys::new(&options.prefix, stored_buckets.or(options.buckets).unwrap_or(default));
    let keys = keys.in_database(options.address.database);
    permissions::check(&mut link, &keys, options.replicas > 0).await?;
    Ok(CheckedServer { connector, link, keys, exists: stored_buckets.is_some() })
}

/// Checks whether the store can be opened, without opening or creating it.
pub(super) async fn inspect(options: &Options) -> Result<Inspection, OpenError> {
    let mut checked = check_server(options).await?;
    let failed = |error: RedisError| unreachable(options, describe(&error));
    let servers = server_info::read(&mut checked.link).await.map_err(failed)?;
    // A user may be denied to read settings.
    let settings = checked.link.send(&server_info::settings_command()).await;
    let settings = settings.ok().and_then(server_info::parse_settings);
    let mut warnings = server_info::warnings(&servers, settings.as_ref(), options);
    warnings.extend(options.bucket_warning(&checked.keys));
    let address = options.address.to_string();
    let servers = servers.iter().map(|server| server.describe(&address, settings.as_ref())).collect();
    Ok(Inspection { exists: checked.exists, servers, warnings })
}

/// Opens the store. The tasks belong to the caller's runtime.
pub(super) async fn open(options: &Options) -> Result<(Opened, Tasks), OpenError> {
    let CheckedServer { connector, mut link, mut keys, exists } = check_server(options).await?;
    let failed = |error: RedisError| unreachable(options, describe(&error));
    if !exists {
        keys = create_store(&mut link, keys).await?;
    }
    let server = server_info::primary_run(&mut link).await.map_err(failed)?;
    let run = ServerRun::new(server.clone());
    let runs = run.watcher();
    let replication = if options.replicas > 0 {
        let purpose = Purpose::Reads(runs.clone());
        let supervisor = Supervisor::connect(connector.clone(), purpose).await.map_err(failed)?;
        Some(Replication::new(options.replicas, keys.clone(), supervisor, options.address.is_cluster()))
    } else {
        None
    };
    let reads = Supervisor::connect(connector.clone(), Purpose::Reads(runs.clone())).await.map_err(failed)?;
    let writes = Supervisor::spawn(connector.clone(), link, server, Purpose::Writes(run));
    let requests = Arc::new(Requests::new(reads, writes, options.operation_timeout, options.address.is_cluster()));
    let clock = StoreClock::open(&requests, &keys).await.map_err(|error| OpenError::Failed(error.to_string()))?;
    let clock = Arc::new(clock);
    let change_feed = ChangeFeed::new();
    let notifications = Arc::new(NotificationState::default());
    let receiving = (change_feed.clone(), notifications.clone());
    let subscribed = Notifications::subscribe(connector, keys.clone(), receiving, runs).await;
    let subscription = subscribed.map_err(failed)?;
    let acknowledged = Arc::new(Acknowledged::new(keys.buckets().count(), clock.clone()));
    let loss_check = LossCheck::spawn(requests.clone(), keys.clone(), acknowledged.clone());
    let (monitor, servers) = ServerMonitor::start(requests.clone(), keys.clone(), options.clone(), clock.clone()).await;
    let tasks = Tasks { _notifications: subscription, _loss_check: loss_check, _monitor: monitor };
    Ok((Opened { keys, requests, replication, change_feed, acknowledged, servers, notifications, clock }, tasks))
}

fn unreachable(options: &Options, reason: String) -> OpenError {
    OpenError::Unreachable { address: options.address.to_string(), reason }
}

/// Why no connection could be opened.
async fn connect_error(options: &Options, connector: &Connector, error: &RedisError) -> OpenError {
    let address = || options.address.to_string();
    if error.kind() == ErrorKind::AuthenticationFailed {
        return OpenError::Password { address: address() };
    }
    // A server outside a Cluster refuses the commands that a Cluster's client begins with.
    if options.address.is_cluster()
        && let Ok(mut link) = connector.connect_to_one_host().await
        && let Ok(servers) = server_info::read(&mut link).await
        && servers.iter().all(|server| !server.is_in_cluster())
    {
        return OpenError::NoCluster { address: address() };
    }
    // A server that answers and lets this user in can only lack the database.
    let database = options.address.database;
    if database != 0
        && matches!(error.kind(), ErrorKind::Server(_))
        && connector.connect_to_first_database().await.is_ok()
    {
        let setting = options.setting_names.database;
        return OpenError::Database { address: address(), database, setting };
    }
    unreachable(options, describe(error))
}

/// Reads the number of buckets of the store; `None` if there is no store yet.
async fn read_description(link: &mut Link, prefix: &str) -> Result<Option<u16>, OpenError> {
    let key = Keys::description(prefix);
    let foreign = || OpenError::Foreign(key.clone());
    let answer = link.send(Cmd::new().arg("HMGET").arg(&key).arg("schema").arg("buckets")).await;
    let answer = answer.map_err(|error| match error.code() {
        Some("WRONGTYPE") => foreign(),
        _ => permissions::denied_or_failed(&error),
    })?;
    if matches!(&answer, Value::Array(values) if values.contains(&Value::Nil)) {
        return Ok(None);
    }
    let (schema, buckets): (u32, u16) = redis::from_redis_value(answer).map_err(|_| foreign())?;
    if schema > SCHEMA {
        return Err(OpenError::Newer { found: schema, known: SCHEMA });
    }
    if !(1..=MAX_BUCKETS).contains(&buckets) {
        return Err(foreign());
    }
    Ok(Some(buckets))
}

/// Writes the description of a new store. Returns its keys: those of another node if it was faster.
async fn create_store(link: &mut Link, mut keys: Keys) -> Result<Keys, OpenError> {
    let (prefix, buckets) = (keys.prefix().to_owned(), keys.buckets().count());
    let (key, failed) = (Keys::description(&prefix), |error: RedisError| permissions::denied_or_failed(&error));
    link.send(Cmd::new().arg("HSETNX").arg(&key).arg("buckets").arg(buckets)).await.map_err(failed)?;
    let stored = link.send(Cmd::new().arg("HGET").arg(&key).arg("buckets")).await.map_err(failed)?;
    let stored: u16 = redis::from_redis_value(stored).map_err(|_| OpenError::Foreign(key.clone()))?;
    if usize::from(stored) != buckets {
        keys = keys.with_buckets(stored);
    }
    // A bucket without epoch counts as one that lost everything. So all get one before the store has a description.
    let creations: Vec<Cmd> =
        keys.buckets().map(|bucket| check_call(&keys, bucket, None, true).command(true)).collect();
    link.send_all(&creations).await.map_err(failed)?;
    link.send(Cmd::new().arg("HSETNX").arg(&key).arg("schema").arg(SCHEMA)).await.map_err(failed)?;
    match read_description(link, &prefix).await? {
        Some(_) => Ok(keys),
        None => Err(OpenError::Foreign(key)),
    }
}

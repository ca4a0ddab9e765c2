//! Keeps one server connected: connects, lists its tools, notices the end, and connects again.
//!
//! In: the settings of a server. Out: registered tools with a link that says whether the server is connected. The order is always:
//! connect, list, listen for changes, serve calls. Nothing here waits for a server when the hub starts.

mod approvals;
mod backoff;
mod listing;
mod watched_resources;

use std::{pin::pin, sync::Arc, time::Duration};

use tokio::time::Instant;
use toolhub_core::SourceConnection;
use toolhub_core::{SourceHandle, clock::Clock as _, clock::SystemClock};

use super::{
    connect_error::ConnectError,
    connection::{Connection, ListSubscription, ReportedChanges},
    era::Era,
    pins::ServerMemory,
    server::Protocol,
    source::McpSource,
    wire::End,
};
use backoff::{Backoff, busy_wait};
use listing::{ListFailure, MIN_RELIST, OtherLists, list, list_others};
use watched_resources::WatchedResources;

/// Changes of the list within this time are one.
const DEBOUNCE: Duration = Duration::from_millis(300);
/// The longest wait after a change, if a server reports one after the other.
const MAX_DEBOUNCE: Duration = Duration::from_secs(10);
/// How often the lists are read again if changes are not reported.
const DEFAULT_RELIST: Duration = Duration::from_secs(600);
/// How often a server that is too busy for its first list is asked again before it gets a new connection.
const MAX_BUSY_LISTS: u32 = 5;
/// How often idle connections of tenants are closed.
const IDLE_CHECK: Duration = Duration::from_secs(60);

/// Why a connection is given up.
enum Exit {
    Stopped,
    Restarted,
    Lost(Loss),
}

/// How a connection was lost, or why there is none.
struct Loss {
    cause: String,
    needs_credentials: bool,
    /// How long the server asks to wait.
    retry_after: Option<Duration>,
    /// The last line that its program wrote to stderr, which others than administrators must not see.
    stderr: Option<String>,
}

impl From<&ConnectError> for Loss {
    fn from(error: &ConnectError) -> Self {
        let (needs_credentials, retry_after) = (error.needs_credentials(), error.retry_after());
        Self { cause: error.to_string(), needs_credentials, retry_after, stderr: error.stderr_line().map(String::from) }
    }
}

impl From<&End> for Loss {
    fn from(end: &End) -> Self {
        let stderr = end.stderr_line().map(String::from);
        Self { cause: end.to_string(), needs_credentials: false, retry_after: None, stderr }
    }
}

impl From<ListFailure> for Loss {
    fn from(failure: ListFailure) -> Self {
        Self { cause: failure.cause, needs_credentials: false, retry_after: failure.busy_for, stderr: None }
    }
}

/// Runs until the stop signal.
pub(super) async fn run(source: Arc<McpSource>, handle: SourceHandle) {
    if !source.server.enabled {
        handle.stop_signal().cancelled().await;
        return;
    }
    tokio::select! {
        () = keep_connected(&source, &handle) => {}
        () = approvals::follow(&source, &handle) => {}
    }
}

async fn keep_connected(source: &McpSource, handle: &SourceHandle) {
    let stop = handle.stop_signal().clone();
    let mut backoff = Backoff::new();
    loop {
        let mut connected_at: Option<Instant> = None;
        {
            let mut status = source.status();
            status.set_connection(SourceConnection::Connecting, SystemClock.now());
            status.next_attempt = None;
        }
        let exit = tokio::select! {
            biased;
            () = stop.cancelled() => Exit::Stopped,
            () = source.restart.notified() => Exit::Restarted,
            exit = connect_and_serve(source, handle, &mut connected_at) => exit,
        };
        close_all(source, handle, &exit).await;
        let Loss { cause, needs_credentials, retry_after, stderr } = match exit {
            Exit::Stopped => return,
            Exit::Restarted => {
                backoff = Backoff::new();
                continue;
            }
            Exit::Lost(loss) => loss,
        };
        if let Some(at) = connected_at {
            backoff.connected_for(at.elapsed());
        }
        let wait = backoff.next_wait(needs_credentials, retry_after, fastrand::f64());
        if let Some(stderr) = &stderr {
            tracing::warn!(server = source.server.name, cause, stderr, "the program of an MCP server has ended");
        }
        {
            let mut status = source.status();
            (status.last_error, status.next_attempt) = (Some(cause), Some(SystemClock.now() + wait));
            status.last_stderr = stderr;
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = source.restart.notified() => backoff = Backoff::new(),
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Withholds the tools and closes all connections.
async fn close_all(source: &McpSource, handle: &SourceHandle, exit: &Exit) {
    let cause = match exit {
        Exit::Stopped => "the server was removed or the hub stops",
        Exit::Restarted => "the server is being restarted",
        Exit::Lost(loss) => &loss.cause,
    };
    handle.disconnected(cause);
    source.status().set_connection(SourceConnection::Disconnected, SystemClock.now());
    let connections = match exit {
        // Those of other tenants go on: nothing is wrong with them.
        Exit::Lost(_) => source.connections.take_own().into_iter().collect(),
        Exit::Stopped | Exit::Restarted => source.connections.take_all().await,
    };
    futures_util::future::join_all(connections.iter().map(|connection| connection.close())).await;
}

async fn connect_and_serve(source: &McpSource, handle: &SourceHandle, connected_at: &mut Option<Instant>) -> Exit {
    let connection = match connect(source, handle).await {
        Ok(connection) => Arc::new(connection),
        Err(error) => return Exit::Lost(Loss::from(&error)),
    };
    source.connections.set_own(connection.clone());
    source.status().facts = Some(connection.facts().clone());
    // Before the list, so that a change while it is read is not missed.
    let mut changes = connection.list_changes();
    let mut seen = *changes.borrow_and_update();
    let mut watched = WatchedResources::new(source);
    let mut relist_after = match first_list(source, handle, &connection).await {
        Ok(time) => time,
        Err(loss) => return Exit::Lost(loss),
    };
    let mut subscription = listen(source, &connection, watched.take_changed()).await;
    handle.connected().await;
    *connected_at = Some(Instant::now());
    {
        let mut status = source.status();
        status.set_connection(SourceConnection::Connected, SystemClock.now());
        (status.last_error, status.next_attempt, status.last_stderr) = (None, None, None);
    }
    // Tools do not wait for the other lists.
    list_others(source, handle, &connection, OtherLists::all(source, &connection)).await;
    let mut listed_at = Instant::now();
    let mut pause = DEBOUNCE;
    let mut idle_check = tokio::time::interval_at(Instant::now() + IDLE_CHECK, IDLE_CHECK);
    loop {
        if subscription.is_none() && connection.facts().era == Era::Modern {
            relist_after = relist_after.min(DEFAULT_RELIST);
        }
        watched.subscribe(source, &connection).await;
        let mut others = OtherLists::all(source, &connection);
        let mut has_new_tools = true;
        tokio::select! {
            biased;
            end = connection.ended() => return Exit::Lost(Loss::from(&*end)),
            _ = idle_check.tick() => {
                source.connections.close_idle();
                // Ends the connection if there is no answer.
                source.connections.is_healthy().await;
                continue;
            }
            uris = watched.changed() => {
                if connection.facts().era == Era::Modern {
                    subscription = listen(source, &connection, uris).await;
                }
                continue;
            }
            Ok(()) = changes.changed() => {
                // A burst of changes is one.
                pause = next_pause(pause, listed_at);
                let _ = tokio::time::timeout(pause, connection.ended()).await;
                let now = *changes.borrow_and_update();
                others.prompts &= now.prompts != seen.prompts;
                others.resources &= now.resources != seen.resources;
                has_new_tools = now.tools != seen.tools;
                seen = now;
            }
            () = ended(&mut subscription) => {
                // Changes may have been missed.
                pause = next_pause(pause, listed_at);
                let _ = tokio::time::timeout(pause, connection.ended()).await;
                subscription = listen(source, &connection, watched.current()).await;
            }
            updated = connection.updated_resources().take() => {
                updated.iter().for_each(|uri| handle.resource_updated(uri));
                continue;
            }
            () = source.refresh.notified() => (others.prompts, others.resources) = (false, false),
            () = tokio::time::sleep_until(listed_at + relist_after) => {}
        }
        list_others(source, handle, &connection, others).await;
        if !has_new_tools {
            continue;
        }
        match list(source, handle, &connection).await {
            Ok(time) => {
                relist_after = time;
                source.status().last_error = None;
            }
            // The tools of the last list stay.
            Err(_) if connection.has_ended() => continue,
            Err(ListFailure { cause, busy_for }) => {
                tracing::warn!(server = source.server.name, cause, "the tools of an MCP server cannot be listed");
                source.status().last_error = Some(cause);
                relist_after = busy_for.map_or(relist_after, |wait| relist_after.min(wait.max(MIN_RELIST)));
            }
        }
        listed_at = Instant::now();
    }
}

/// Reads the first list of a connection. A server that is too busy keeps its session and is asked again when it says, a few times.
async fn first_list(source: &McpSource, handle: &SourceHandle, connection: &Connection) -> Result<Duration, Loss> {
    let mut attempts = 0;
    loop {
        let failure = match list(source, handle, connection).await {
            Ok(time) => return Ok(time),
            Err(failure) => failure,
        };
        attempts += 1;
        let Some(wait) = failure.busy_for.filter(|_| attempts < MAX_BUSY_LISTS) else { return Err(failure.into()) };
        let wait = busy_wait(wait);
        {
            let mut status = source.status();
            (status.last_error, status.next_attempt) = (Some(failure.cause), Some(SystemClock.now() + wait));
        }
        if let Ok(end) = tokio::time::timeout(wait, connection.ended()).await {
            return Err(Loss::from(&*end));
        }
    }
}

/// How long to wait before a changed list is read: twice as long each time for a server that reports one change after the other.
fn next_pause(pause: Duration, listed_at: Instant) -> Duration {
    if listed_at.elapsed() < 2 * pause { (2 * pause).min(MAX_DEBOUNCE) } else { DEBOUNCE }
}

/// Connects in the era that the settings name, that is remembered, or that the server turns out to speak.
async fn connect(source: &McpSource, handle: &SourceHandle) -> Result<Connection, ConnectError> {
    let now = || handle.hub().map(|hub| hub.now());
    let memory = handle.hub().map(|hub| ServerMemory::new(hub.store(), &source.server.name));
    // Without an answer of the store the era is found out again, and what the store knows stays.
    let stored = match (&memory, now()) {
        (Some(memory), Some(now)) => memory.load(now).await.ok(),
        _ => None,
    };
    let may_save = stored.is_some();
    let remembered = stored.unwrap_or_default();
    let connection = match source.server.protocol {
        Protocol::Legacy => source.connections.open(Era::Legacy).await?,
        Protocol::Modern => source.connections.open(Era::Modern).await?,
        Protocol::Auto => {
            let first = remembered.era.unwrap_or(Era::Modern);
            match source.connections.open(first).await {
                Ok(connection) => connection,
                // A server that was updated speaks the other one by now.
                Err(error) if first == Era::Legacy && error.suggests_modern() => {
                    source.connections.open(Era::Modern).await?
                }
                Err(error) if first == Era::Modern && error.suggests_legacy() => {
                    source.connections.open(Era::Legacy).await?
                }
                Err(error) => return Err(error),
            }
        }
    };
    let era = connection.facts().era;
    if let (Some(memory), Some(now)) = (memory.filter(|_| may_save && remembered.era != Some(era)), now()) {
        // Only a hint for the next start.
        let _ = memory.save_era(era, &remembered, now).await;
    }
    Ok(connection)
}

/// Asks the server to report changes of its lists and of watched resources, as far as it does that.
async fn listen(source: &McpSource, connection: &Connection, uris: Vec<String>) -> Option<ListSubscription> {
    let (facts, others) = (connection.facts(), OtherLists::all(source, connection));
    let reported = ReportedChanges {
        tools: facts.tools.reports_changes,
        prompts: others.prompts && facts.prompts.reports_changes,
        resources: others.resources && facts.resources.reports_changes,
        uris: if facts.watches_resources { uris } else { Vec::new() },
    };
    if reported == ReportedChanges::default() {
        return None;
    }
    let listening = pin!(connection.listen(&reported));
    match tokio::time::timeout(source.server.startup_timeout, listening).await {
        Ok(Ok(subscription)) => Some(subscription),
        _ => {
            tracing::debug!(server = source.server.name, "an MCP server does not report changes of its list");
            None
        }
    }
}

async fn ended(subscription: &mut Option<ListSubscription>) {
    match subscription {
        Some(subscription) => subscription.ended().await,
        None => std::future::pending().await,
    }
}

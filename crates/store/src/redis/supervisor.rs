//! Keeps one connection open: connects again whenever it is reported broken.
//!
//! In: a connector. Out: the current connection, or the reason why there is none. Callers report a connection that failed them; they never
//! connect themselves, so that many of them do not flood a server that comes back. Waits 50 ms to 2 s between attempts, with jitter.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use redis::RedisResult;
use tokio::{
    sync::{Notify, watch},
    task::JoinHandle,
    time::{Instant, timeout_at},
};

pub(super) use super::error::describe;
use super::{
    link::{Connector, Link},
    server_info,
    server_run::{RunWatcher, ServerRun},
};

const FIRST_DELAY: Duration = Duration::from_millis(50);
const MAX_DELAY: Duration = Duration::from_secs(2);
/// How long after the loss of a connection an operation that was not sent yet waits for the next one. Time for a reconnect; if the server is
/// away, each operation would only wait for its deadline.
const CLOSED_WAIT: Duration = Duration::from_secs(1);

/// Delays between attempts to connect: doubling, and each somewhere between its half and its whole.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    attempts: u32,
}

impl Backoff {
    pub(super) fn next_delay(&mut self) -> Duration {
        let full = FIRST_DELAY.saturating_mul(1 << self.attempts.min(10)).min(MAX_DELAY);
        self.attempts += 1;
        full.mul_f64(fastrand::f64().mul_add(0.5, 0.5))
    }
}

/// A connection with the number of its opening.
#[derive(Clone)]
pub(super) struct NumberedLink {
    pub(super) link: Link,
    number: u64,
}

/// What a connection is for.
pub(super) enum Purpose {
    /// Reads, from the server that the connection for writes has found.
    Reads(RunWatcher),
    /// Writes: the other connections follow to each later server.
    Writes(ServerRun),
}

#[derive(Clone)]
enum LinkState {
    Open(NumberedLink),
    Closed {
        since: Instant,
        /// Why the last attempt failed.
        reason: Option<String>,
    },
}

/// Handle of a supervised connection. Dropping it closes the connection.
pub(super) struct Supervisor {
    state: watch::Receiver<LinkState>,
    reported: Arc<Reported>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Reported {
    /// The highest number of a connection that was reported broken.
    number: AtomicU64,
    notify: Notify,
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Supervisor {
    /// Opens a connection and supervises it. Must be called inside a runtime.
    ///
    /// # Errors
    /// When the first connection fails.
    pub(super) async fn connect(connector: Connector, mut purpose: Purpose) -> RedisResult<Self> {
        let (link, run) = purpose.connect(&connector).await?;
        Ok(Self::spawn(connector, link, run, purpose))
    }

    /// Supervises a connection that is open already, to this run of a server. Must be called inside a runtime.
    pub(super) fn spawn(connector: Connector, link: Link, run: String, purpose: Purpose) -> Self {
        let (sender, state) = watch::channel(LinkState::Open(NumberedLink { link, number: 1 }));
        let reported = Arc::new(Reported::default());
        let task = tokio::spawn(supervise(connector, run, purpose, sender, reported.clone()));
        Self { state, reported, task }
    }

    /// The current connection. Waits for it: an operation that was sent before until the deadline, to learn its outcome, and any other until
    /// the last connection has been lost for a second.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) async fn link(&self, deadline: Instant, was_sent: bool) -> Result<NumberedLink, String> {
        let mut state = self.state.clone();
        loop {
            let (until, reason) = match &*state.borrow_and_update() {
                LinkState::Open(link) => return Ok(link.clone()),
                LinkState::Closed { since, reason } => {
                    (if was_sent { deadline } else { deadline.min(*since + CLOSED_WAIT) }, reason.clone())
                }
            };
            if !matches!(timeout_at(until, state.changed()).await, Ok(Ok(()))) {
                return Err(reason.unwrap_or_else(|| "the connection to Redis was lost".into()));
            }
        }
    }

    /// Reports that this connection failed; the next one is opened.
    pub(super) fn report_broken(&self, link: &NumberedLink) {
        self.reported.number.fetch_max(link.number, Ordering::AcqRel);
        self.reported.notify.notify_one();
    }
}

async fn supervise(
    connector: Connector,
    mut run: String,
    mut purpose: Purpose,
    state: watch::Sender<LinkState>,
    reported: Arc<Reported>,
) {
    for number in 1.. {
        purpose.wait_until_broken(&run, number, &reported).await;
        let since = Instant::now();
        state.send_replace(LinkState::Closed { since, reason: None });
        let mut backoff = Backoff::default();
        let link = loop {
            match purpose.connect(&connector).await {
                Ok((link, of)) => {
                    run = of;
                    break link;
                }
                Err(error) => {
                    let reason = describe(&error);
                    tracing::warn!(error = %reason, "connecting to Redis failed; trying again");
                    state.send_replace(LinkState::Closed { since, reason: Some(reason) });
                    tokio::time::sleep(backoff.next_delay()).await;
                }
            }
        };
        tracing::info!("connected to Redis again");
        state.send_replace(LinkState::Open(NumberedLink { link, number: number + 1 }));
    }
}

impl Purpose {
    /// Returns when this connection was reported broken, or when its server was replaced.
    async fn wait_until_broken(&mut self, run: &str, number: u64, reported: &Reported) {
        let is_reported = async {
            while reported.number.load(Ordering::Acquire) < number {
                reported.notify.notified().await;
            }
        };
        match self {
            Self::Writes(_) => is_reported.await,
            Self::Reads(runs) => tokio::select! {
                () = is_reported => {}
                () = runs.replaced(run) => tracing::info!("the server of the connection for reads was replaced; connecting again"),
            },
        }
    }

    /// Connects to the primary. Returns its run, too.
    async fn connect(&mut self, connector: &Connector) -> RedisResult<(Link, String)> {
        if let Self::Reads(runs) = self {
            runs.mark_seen();
        }
        let mut link = connector.connect().await?;
        let found = server_info::primary_run(&mut link).await;
        if let Self::Writes(server) = self {
            match &found {
                Ok(run) => server.set(run),
                Err(error) if server_info::is_replica(error) => server.set_demoted(),
                Err(_) => {}
            }
        }
        Ok((link, found?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_from_50_ms_to_2_s() {
        let mut backoff = Backoff::default();
        for full in [50, 100, 200, 400, 800, 1600, 2000, 2000] {
            let (delay, full) = (backoff.next_delay(), Duration::from_millis(full));
            assert!(delay >= full / 2 && delay <= full, "{delay:?} of {full:?}");
        }
    }
}

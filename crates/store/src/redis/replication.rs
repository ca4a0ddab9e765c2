//! Waits until replicas have a commit, before the commit is acknowledged.
//!
//! In: the bucket of a commit that a server has executed. Out: nothing; what too few replicas have is counted and logged. Commits that wait at
//! the same time share one `WAIT`. It blocks its connection, so it has one of its own; a small write there puts it behind the commits.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use redis::{
    Cmd, RedisResult, Value,
    cluster_routing::{Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr},
};
use tokio::{
    sync::oneshot,
    time::{Instant, timeout_at},
};

use super::{
    keys::{Bucket, Keys},
    link::Link,
    supervisor::{Supervisor, describe},
};

/// How long a commit waits for replicas.
const TIMEOUT: Duration = Duration::from_secs(1);
/// For a connection, and for the answer after the wait.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Minimum time between two log lines, and how long the state of the store mentions what too few replicas had.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
const REPORTED: Duration = Duration::from_secs(600);
/// How many batches that too few replicas had are remembered; those who committed them ask at once.
const REMEMBERED: usize = 4096;

/// The wait for replicas of an open store.
pub(super) struct Replication {
    replicas: u16,
    keys: Keys,
    supervisor: Supervisor,
    /// One for each bucket on a Cluster, where buckets are on different servers; otherwise one.
    groups: Box<[Group]>,
    shortfall: Mutex<Shortfall>,
}

/// Commits that wait for the same server.
#[derive(Default)]
struct Group {
    waiting: Mutex<VecDeque<oneshot::Sender<bool>>>,
    /// Held by the commit that waits for the others.
    leader: tokio::sync::Mutex<()>,
}

/// Commits that were acknowledged although too few replicas had them.
#[derive(Default)]
struct Shortfall {
    commits: u64,
    last: Option<Instant>,
    logged: Option<Instant>,
    /// The stamps of the last ones.
    stamps: VecDeque<u64>,
}

impl Replication {
    pub(super) fn new(replicas: u16, keys: Keys, supervisor: Supervisor, is_cluster: bool) -> Self {
        let groups = if is_cluster { keys.buckets().count() } else { 1 };
        let groups = (0..groups).map(|_| Group::default()).collect();
        Self { replicas, keys, supervisor, groups, shortfall: Mutex::default() }
    }

    /// Waits until enough replicas have all commits that the bucket's server has executed so far, or until the time is over. The stamp is that
    /// of the batch that waits.
    pub(super) async fn wait(&self, bucket: Bucket, stamp: u64) {
        let group = &self.groups[bucket.0 % self.groups.len()];
        let (sender, mut done) = oneshot::channel();
        group.waiting.lock().unwrap_or_else(PoisonError::into_inner).push_back(sender);
        let lead = group.leader.lock().await;
        let is_replicated = match done.try_recv() {
            Ok(is_replicated) => is_replicated,
            // No task waited for this commit, or it was dropped.
            Err(_) => {
                let others = std::mem::take(&mut *group.waiting.lock().unwrap_or_else(PoisonError::into_inner));
                let is_replicated = self.wait_once(bucket).await;
                for other in others {
                    // An error means that its commit was dropped.
                    let _ = other.send(is_replicated);
                }
                is_replicated
            }
        };
        drop(lead);
        if !is_replicated {
            self.report(stamp);
        }
    }

    async fn wait_once(&self, bucket: Bucket) -> bool {
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        let Ok(mut link) = self.supervisor.link(deadline, false).await else { return false };
        match timeout_at(deadline, self.send(&mut link.link, bucket)).await {
            Ok(Ok(replicas)) => replicas >= i64::from(self.replicas),
            Ok(Err(error)) => {
                tracing::debug!(error = %describe(&error), "waiting for replicas of Redis failed");
                self.supervisor.report_broken(&link);
                false
            }
            Err(_) => {
                self.supervisor.report_broken(&link);
                false
            }
        }
    }

    /// How many replicas have what the server has executed so far.
    async fn send(&self, link: &mut Link, bucket: Bucket) -> RedisResult<i64> {
        let (mut write, mut wait) = (Cmd::new(), Cmd::new());
        write.arg("SET").arg(self.keys.replication(bucket)).arg("");
        wait.arg("WAIT").arg(self.replicas).arg(u64::try_from(TIMEOUT.as_millis()).unwrap_or(u64::MAX));
        let replicas = match link {
            Link::Single(_) => link.send_all(&[write, wait]).await?.pop().unwrap_or(Value::Nil),
            Link::Cluster(connection) => {
                write.query_async::<()>(connection).await?;
                let route = Route::new(self.keys.slot(bucket), SlotAddr::Master);
                let server = RoutingInfo::SingleNode(SingleNodeRoutingInfo::SpecificNode(route));
                connection.route_command(wait, server).await?
            }
        };
        Ok(redis::from_redis_value(replicas)?)
    }

    /// Whether fewer replicas had the batch with this stamp in time.
    pub(super) fn is_short(&self, stamp: u64) -> bool {
        self.shortfall.lock().unwrap_or_else(PoisonError::into_inner).stamps.contains(&stamp)
    }

    fn report(&self, stamp: u64) {
        let now = Instant::now();
        let mut shortfall = self.shortfall.lock().unwrap_or_else(PoisonError::into_inner);
        shortfall.commits += 1;
        shortfall.stamps.push_back(stamp);
        if shortfall.stamps.len() > REMEMBERED {
            shortfall.stamps.pop_front();
        }
        shortfall.last = Some(now);
        if shortfall.logged.is_none_or(|logged| now >= logged + LOG_INTERVAL) {
            shortfall.logged = Some(now);
            tracing::warn!(
                replicas = self.replicas,
                commits = shortfall.commits,
                "commits were acknowledged although fewer replicas of Redis have them than `store.redis.replicas`"
            );
        }
    }

    /// What too few replicas had in the last minutes.
    pub(super) fn problem(&self) -> Option<String> {
        let shortfall = self.shortfall.lock().unwrap_or_else(PoisonError::into_inner);
        let last = shortfall.last.filter(|last| last.elapsed() < REPORTED)?;
        Some(format!(
            "{} commits were acknowledged although fewer than {} replicas of Redis had them within {TIMEOUT:?}, the last one {} s ago",
            shortfall.commits,
            self.replicas,
            last.elapsed().as_secs()
        ))
    }
}

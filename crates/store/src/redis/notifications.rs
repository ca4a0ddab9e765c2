//! Receives the changes that commits publish, and emits them to the watchers of this process.
//!
//! Connects, subscribes to one channel for each bucket, and does so from scratch whenever the subscription may be incomplete: a lost
//! connection, a hash slot that moved to another server, messages that did not arrive. Watchers are told `Lagged` then. `receiver.rs` reads
//! the messages.

mod receiver;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use redis::{Cmd, RedisError, RedisResult, Value};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use self::receiver::Receiver;
use super::{
    keys::{Bucket, Keys},
    link::{Connector, Link, RESPONSE_TIMEOUT},
    server_info,
    server_run::RunWatcher,
    supervisor::{Backoff, describe},
};
use crate::change_feed::ChangeFeed;

/// How often the numbers of messages are compared with those that the server has given out.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// How complete the notifications are that were received.
#[derive(Default)]
pub(super) struct NotificationState {
    lag: AtomicU64,
    gaps: AtomicU64,
}

impl NotificationState {
    /// How many had been published at the last check and had not arrived.
    pub(super) fn lag(&self) -> u64 {
        self.lag.load(Ordering::Relaxed)
    }

    /// How often some were lost.
    pub(super) fn gaps(&self) -> u64 {
        self.gaps.load(Ordering::Relaxed)
    }

    fn set_lag(&self, lag: u64) {
        self.lag.store(lag, Ordering::Relaxed);
    }

    fn count_gap(&self) {
        self.gaps.fetch_add(1, Ordering::Relaxed);
    }
}

/// Handle of the subscription. Dropping it ends it.
pub(super) struct Notifications(JoinHandle<()>);

impl Drop for Notifications {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Notifications {
    /// Subscribes to all buckets; returns as soon as no later change can be missed. Must be called inside a runtime.
    ///
    /// # Errors
    /// When the first subscription fails.
    pub(super) async fn subscribe(
        connector: Connector,
        keys: Keys,
        (feed, state): (ChangeFeed, Arc<NotificationState>),
        runs: RunWatcher,
    ) -> Result<Self, RedisError> {
        let mut subscriber = Subscriber { connector, keys, feed, state, runs };
        let first = subscriber.subscribe_once().await?;
        first.receiver.activate();
        Ok(Self(tokio::spawn(subscriber.run(first))))
    }
}

struct Subscriber {
    connector: Connector,
    keys: Keys,
    feed: ChangeFeed,
    state: Arc<NotificationState>,
    runs: RunWatcher,
}

/// A connection that is subscribed to all buckets.
struct Subscription {
    link: Link,
    receiver: Arc<Receiver>,
    /// The run of its server.
    run: String,
}

impl Subscriber {
    async fn run(mut self, mut current: Subscription) {
        let mut backoff = Backoff::default();
        loop {
            let opened = Instant::now();
            current.wait_until_incomplete(&self.keys, &mut self.runs).await;
            tracing::warn!("the subscription to notifications of Redis is incomplete; subscribing again");
            self.state.count_gap();
            if opened.elapsed() > CHECK_INTERVAL {
                backoff = Backoff::default();
            }
            let next = loop {
                sleep(backoff.next_delay()).await;
                match self.subscribe_once().await {
                    Ok(next) => break next,
                    Err(error) => {
                        tracing::warn!(error = %describe(&error), "subscribing to notifications of Redis failed; trying again");
                    }
                }
            };
            // Until here, the earlier subscription delivered what it still had, such as the changes of other servers of a Cluster.
            current.receiver.deactivate();
            next.receiver.activate();
            // Only now: what watchers read from here on, no later change can be missing from.
            self.feed.emit_lagged();
            current = next;
        }
    }

    async fn subscribe_once(&mut self) -> RedisResult<Subscription> {
        self.runs.mark_seen();
        let receiver = Arc::new(Receiver::new(self.keys.clone(), self.feed.clone(), self.state.clone()));
        let handler = receiver.clone();
        let mut link = self.connector.connect_for_pushes(Arc::new(move |push| handler.receive(&push))).await?;
        let run = server_info::primary_run(&mut link).await?;
        let channels: Vec<String> = self.keys.buckets().map(|bucket| self.keys.channel(bucket)).collect();
        link.subscribe(&channels).await?;
        receiver.begin(&read_numbers(&mut link, &self.keys).await?);
        Ok(Subscription { link, receiver, run })
    }
}

impl Subscription {
    /// Returns when messages may be missing: the connection ended, the server was replaced or ended a subscription, or a message that was
    /// published is not here yet at the next check.
    async fn wait_until_incomplete(&mut self, keys: &Keys, runs: &mut RunWatcher) {
        let Self { link, receiver, run } = self;
        loop {
            tokio::select! {
                () = receiver.closed() => return,
                () = runs.replaced(run) => return,
                () = sleep(CHECK_INTERVAL) => {
                    match timeout(RESPONSE_TIMEOUT, read_numbers(link, keys)).await {
                        Ok(Ok(numbers)) if receiver.has_received(&numbers) => {}
                        _ => return,
                    }
                }
            }
        }
    }
}

/// The number of the last message of each bucket.
async fn read_numbers(link: &mut Link, keys: &Keys) -> RedisResult<Vec<(Bucket, u64)>> {
    let read = |bucket| {
        let mut command = Cmd::new();
        command.arg("HGET").arg(keys.meta(bucket)).arg("number");
        command
    };
    let answers = link.send_all(&keys.buckets().map(read).collect::<Vec<_>>()).await?;
    let number = |answer: Value| redis::from_redis_value::<Option<u64>>(answer).map(Option::unwrap_or_default);
    keys.buckets().zip(answers).map(|(bucket, answer)| Ok((bucket, number(answer)?))).collect()
}

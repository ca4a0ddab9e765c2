//! Reads the messages of one subscription and emits the changes that they name.
//!
//! In: pushes of the connection; the numbers that the server has given out. Out: change events in order, `Lagged` after a gap in the numbers
//! of a bucket, and whether the subscription has ended.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use redis::{PushInfo, PushKind, Value};
use tokio::sync::Notify;
use toolhub_storage::backend::{Partition, RowKey, Table};

use super::{
    super::keys::{Bucket, Keys},
    NotificationState,
};
use crate::change_feed::ChangeFeed;

/// The receiver of one connection.
pub(super) struct Receiver {
    keys: Keys,
    feed: ChangeFeed,
    state: Arc<NotificationState>,
    channels: Mutex<HashMap<Bucket, Channel>>,
    /// Whether changes are emitted: not before the subscription is complete, nor after another one has replaced it.
    is_active: AtomicBool,
    is_closed: Notify,
}

/// What is known of the messages of a bucket.
#[derive(Debug, Default)]
struct Channel {
    is_subscribed: bool,
    /// The number of the last message before the subscription was complete.
    first: Option<u64>,
    received: Option<u64>,
    /// A number that the server had given out at the last check, and that had not arrived.
    awaited: Option<u64>,
}

impl Channel {
    fn last(&self) -> u64 {
        self.received.or(self.first).unwrap_or(0)
    }

    /// Takes the number of a message; whether one before it is missing.
    fn receive(&mut self, number: u64) -> bool {
        let has_gap = match (self.received, self.first) {
            (Some(last), _) => number != last + 1,
            // Messages that were published before the numbers were read may arrive after that.
            (None, Some(first)) => number > first + 1,
            (None, None) => false,
        };
        self.received = Some(number);
        has_gap
    }

    /// Takes the last number that the server has given out; whether the one of the check before has arrived.
    fn check(&mut self, published: u64) -> bool {
        let has_arrived = self.awaited.is_none_or(|awaited| awaited <= self.last());
        self.awaited = (published > self.last()).then_some(published);
        has_arrived
    }
}

impl Receiver {
    pub(super) fn new(keys: Keys, feed: ChangeFeed, state: Arc<NotificationState>) -> Self {
        let (channels, is_active, is_closed) = (Mutex::default(), AtomicBool::new(false), Notify::new());
        Self { keys, feed, state, channels, is_active, is_closed }
    }

    /// From now on changes are emitted.
    pub(super) fn activate(&self) {
        self.is_active.store(true, Ordering::Release);
    }

    /// From now on changes are ignored.
    pub(super) fn deactivate(&self) {
        self.is_active.store(false, Ordering::Release);
    }

    /// Sets the numbers that were read when all channels were subscribed.
    pub(super) fn begin(&self, published: &[(Bucket, u64)]) {
        let mut channels = self.lock();
        for (bucket, number) in published {
            channels.entry(*bucket).or_default().first = Some(*number);
        }
    }

    /// Whether every message has arrived that had been published at the previous check.
    pub(super) fn has_received(&self, published: &[(Bucket, u64)]) -> bool {
        let mut channels = self.lock();
        let (mut is_complete, mut lag) = (true, 0);
        for (bucket, number) in published {
            let channel = channels.entry(*bucket).or_default();
            lag += number.saturating_sub(channel.last());
            is_complete &= channel.check(*number);
        }
        self.state.set_lag(lag);
        is_complete
    }

    /// Returns when the connection or one of its subscriptions has ended.
    pub(super) async fn closed(&self) {
        self.is_closed.notified().await;
    }

    pub(super) fn receive(&self, push: &PushInfo) {
        match push.kind {
            PushKind::Message | PushKind::SMessage if self.receive_message(&push.data).is_none() => {
                tracing::warn!("a notification of Redis cannot be read; watchers read again");
                self.report_lagged();
            }
            // A server of a Cluster ends a subscription when the hash slot moves to another server. The connection goes on.
            PushKind::Disconnection | PushKind::SUnsubscribe => self.is_closed.notify_one(),
            PushKind::SSubscribe if self.is_repeated(&push.data) => self.is_closed.notify_one(),
            _ => {}
        }
    }

    /// Whether the channel was subscribed before: the client of a Cluster has connected again on its own.
    fn is_repeated(&self, data: &[Value]) -> bool {
        let Some(Value::BulkString(channel)) = data.first() else { return false };
        let Some(bucket) = self.keys.bucket_of_channel(channel) else { return false };
        std::mem::replace(&mut self.lock().entry(bucket).or_default().is_subscribed, true)
    }

    fn report_lagged(&self) {
        if self.is_active.load(Ordering::Acquire) {
            self.feed.emit_lagged();
        }
    }

    fn receive_message(&self, data: &[Value]) -> Option<()> {
        let [Value::BulkString(channel), Value::BulkString(message)] = data else { return None };
        let bucket = self.keys.bucket_of_channel(channel)?;
        let mut reader = MessageReader(message);
        let number = reader.number()?;
        if self.lock().entry(bucket).or_default().receive(number) {
            tracing::warn!(number, "notifications of Redis were lost; watchers read again");
            self.state.count_gap();
            self.report_lagged();
        }
        if !self.is_active.load(Ordering::Acquire) {
            return Some(());
        }
        let partition: Partition = reader.text()?.parse().ok()?;
        while !reader.0.is_empty() {
            let (table, id, version) = (reader.text()?, reader.text()?, reader.number()?);
            // A later version may have further tables; none of them is watched here.
            let Some(table) = Table::ALL.into_iter().find(|known| known.as_str() == table) else { continue };
            if self.feed.has_subscribers(table) {
                let key = RowKey { partition: partition.clone(), table, id: id.into() };
                self.feed.emit(key, (version > 0).then_some(version));
            }
        }
        Some(())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Bucket, Channel>> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads what `script/commit.lua` publishes.
struct MessageReader<'a>(&'a [u8]);

impl<'a> MessageReader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_be_bytes)
    }

    fn text(&mut self) -> Option<&'a str> {
        let length = self.take(4)?.try_into().ok().map(u32::from_be_bytes)?;
        str::from_utf8(self.take(length as usize)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, StreamExt};
    use toolhub_storage::backend::{WatchEvent, Watcher};

    use super::*;

    fn receiver() -> (Receiver, Watcher) {
        let feed = ChangeFeed::new();
        let watcher = feed.watch(Table::State);
        let receiver = Receiver::new(Keys::new("toolhub", 1), feed, Arc::default());
        receiver.activate();
        (receiver, watcher)
    }

    fn message(receiver: &Receiver, number: u64, id: &str) -> PushInfo {
        let text = |text: &str| [&u32::try_from(text.len()).unwrap().to_be_bytes(), text.as_bytes()].concat();
        let parts =
            [number.to_be_bytes().to_vec(), text("main/t/a"), text("state"), text(id), 1_u64.to_be_bytes().to_vec()];
        let channel = receiver.keys.channel(Bucket(0)).into_bytes();
        PushInfo { kind: PushKind::Message, data: vec![Value::BulkString(channel), Value::BulkString(parts.concat())] }
    }

    fn seen(watcher: &mut Watcher) -> Vec<String> {
        let next = || watcher.next().now_or_never().flatten();
        let name = |event| match event {
            WatchEvent::Row(key, _) => key.id.to_string(),
            WatchEvent::Lagged => "lagged".to_owned(),
        };
        std::iter::from_fn(next).map(name).collect()
    }

    #[test]
    fn a_gap_in_the_numbers_is_reported_before_the_next_change() {
        let (receiver, mut watcher) = receiver();
        for (number, id) in [(7, "a"), (8, "b"), (10, "c")] {
            receiver.receive(&message(&receiver, number, id));
        }
        assert_eq!(seen(&mut watcher), ["a", "b", "lagged", "c"]);
        assert_eq!(receiver.state.gaps(), 1);
    }

    #[test]
    fn the_first_message_follows_the_number_that_was_read() {
        for (first, number, expected) in [(7, 8, ["a"].as_slice()), (7, 6, &["a"]), (7, 9, &["lagged", "a"])] {
            let (receiver, mut watcher) = receiver();
            receiver.begin(&[(Bucket(0), first)]);
            receiver.receive(&message(&receiver, number, "a"));
            assert_eq!(seen(&mut watcher), expected, "{number} after {first}");
        }
    }

    #[test]
    fn a_message_that_is_missing_at_two_checks_is_lost() {
        let (receiver, _watcher) = receiver();
        receiver.begin(&[(Bucket(0), 7)]);
        assert!(receiver.has_received(&[(Bucket(0), 7)]));
        assert!(receiver.has_received(&[(Bucket(0), 8)]), "it may be on its way");
        assert_eq!(receiver.state.lag(), 1);
        receiver.receive(&message(&receiver, 8, "a"));
        assert!(receiver.has_received(&[(Bucket(0), 9)]));
        assert!(!receiver.has_received(&[(Bucket(0), 12)]), "9 has not arrived");
    }

    #[test]
    fn a_subscription_that_the_server_ends_or_the_client_repeats_is_closed() {
        let (receiver, mut watcher) = receiver();
        let channel = Value::BulkString(receiver.keys.channel(Bucket(0)).into_bytes());
        let push = |kind| PushInfo { kind, data: vec![channel.clone(), Value::Int(1)] };
        receiver.receive(&push(PushKind::SSubscribe));
        assert!(receiver.closed().now_or_never().is_none());
        for kind in [PushKind::SSubscribe, PushKind::SUnsubscribe, PushKind::Disconnection] {
            receiver.receive(&push(kind));
            assert!(receiver.closed().now_or_never().is_some());
        }
        receiver.deactivate();
        receiver.receive(&message(&receiver, 3, "a"));
        assert_eq!(seen(&mut watcher), [""; 0], "it is not emitted twice");
    }
}

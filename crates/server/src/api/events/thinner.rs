//! Bounds how many events about single calls a client gets per second.
//!
//! In: the names of events that are due. Out: whether to send each; once a second the numbers of those that were not sent. Every other
//! event is sent, so nothing is missed that a client could not read again.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;
use toolhub_core::events::EventClass;

/// The period in which at most so many events are sent, and after which the others are reported.
const PERIOD: Duration = Duration::from_secs(1);

/// The events of one period.
pub(super) struct Thinner {
    rate: u32,
    began: Instant,
    sent: u32,
    skipped: BTreeMap<&'static str, u64>,
}

impl Thinner {
    pub(super) fn new(rate: u32) -> Self {
        Self { rate, began: Instant::now(), sent: 0, skipped: BTreeMap::new() }
    }

    /// Whether to send an event of this name now; if not, it is counted.
    pub(super) fn admit(&mut self, name: &'static str) -> bool {
        if EventClass::of(name) != EventClass::Calls {
            return true;
        }
        // With skipped events the period lasts until they were reported.
        if self.skipped.is_empty() && self.began.elapsed() >= PERIOD {
            self.restart();
        }
        if self.sent < self.rate {
            self.sent += 1;
            return true;
        }
        *self.skipped.entry(name).or_default() += 1;
        false
    }

    /// Begins the next period.
    pub(super) fn restart(&mut self) {
        *self = Self::new(self.rate);
    }
}

/// Resolves at the end of a period in which events were skipped, with their numbers.
pub(super) async fn next_counts(thinner: &Option<Thinner>) -> BTreeMap<&'static str, u64> {
    match thinner.as_ref().filter(|thinner| !thinner.skipped.is_empty()) {
        None => std::future::pending().await,
        Some(thinner) => {
            tokio::time::sleep_until(thinner.began + PERIOD).await;
            thinner.skipped.clone()
        }
    }
}

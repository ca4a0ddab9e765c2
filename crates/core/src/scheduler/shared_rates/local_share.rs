//! The part of a shared limit that this node goes by while the store does not answer.
//!
//! In: the limit, the number of nodes, and since when the store has not answered. Out: whether a call passes; and what to charge to the row of all
//! nodes once the store answers again. The parts of all nodes together are never more than the limit, but for one with a burst
//! smaller than the number of nodes: then each node passes one call at once, and later ones at its part of the rate.

use std::time::Duration;

use super::row::RateRow;
use toolhub_types::{policy::RateLimit, timestamp::Timestamp};

#[derive(Debug, Clone, Copy)]
pub(super) struct LocalShare {
    nodes: u32,
    /// Since when the store has not answered.
    lost_at: Timestamp,
    /// The usage of this node's part.
    usage: RateRow,
    /// Calls that passed and are not charged to the row of all nodes.
    uncharged: u32,
}

impl LocalShare {
    /// A part that begins when the store is lost, or that goes on after it was lost before. `last` is the row of all nodes as it was
    /// read last.
    pub(super) fn begin(
        before: Option<Self>,
        limit: &RateLimit,
        (nodes, lost_at): (u32, Timestamp),
        last: Option<RateRow>,
    ) -> Self {
        let (nodes, part) = (nodes.max(1), part_of(limit, nodes.max(1)));
        let usage = match before {
            Some(before) if before.lost_at == lost_at => return Self { nodes, ..before },
            // Other nodes change the row, so what was left of it when it was read may be used up.
            _ if nodes > 1 => RateRow::default().charged(&part, part.burst_size(), lost_at),
            _ => last.unwrap_or_default(),
        };
        let usage = usage.max(before.map_or(usage, |before| before.usage));
        Self { nodes, lost_at, usage, uncharged: before.map_or(0, |before| before.uncharged) }
    }

    /// Takes a permit, and returns how long to wait before it is valid; or the time after which to retry.
    pub(super) fn take(&mut self, limit: &RateLimit, now: Timestamp) -> Result<Duration, Duration> {
        let part = part_of(limit, self.nodes);
        let (_, wait) = self.usage.available(&part, now)?;
        self.usage = self.usage.charged(&part, 1, now);
        self.uncharged = self.uncharged.saturating_add(1);
        Ok(wait)
    }

    /// Takes back the permit of a call that did not run.
    pub(super) fn refund(&mut self, limit: &RateLimit) {
        self.usage = self.usage.refunded(part_of(limit, self.nodes).interval());
        self.uncharged = self.uncharged.saturating_sub(1);
    }

    /// How many calls would pass now.
    pub(super) fn remaining(&self, limit: &RateLimit, now: Timestamp) -> u32 {
        self.usage.remaining(&part_of(limit, self.nodes), now)
    }

    /// When all calls are paid back.
    pub(super) fn debt(&self, now: Timestamp) -> Duration {
        self.usage.debt(now)
    }

    /// How far the row of all nodes must be advanced for the calls that passed here, and are not paid back by now.
    pub(super) fn uncharged(&self, limit: &RateLimit, now: Timestamp) -> Duration {
        limit.interval().saturating_mul(self.uncharged).min(self.debt(now) / self.nodes)
    }
}

/// The same burst and rate, divided by the nodes.
fn part_of(limit: &RateLimit, nodes: u32) -> RateLimit {
    let burst = Some((limit.burst_size() / nodes).max(1));
    RateLimit { per: limit.per.saturating_mul(nodes), burst, ..limit.clone() }
}

//! Decides which nodes are dead, from repeated looks at their rows.
//!
//! In: the rows of all nodes as they were read at a time of the observer's monotonic clock, and when the observer renewed its own
//! row. Out: which nodes are alive, and which have just died or left. Clocks of different machines are never compared. Holds no store.
//!
//! A row counts as silent only while the observer could renew its own: if the store refuses all writes, no node is dead.

use std::{collections::HashMap, time::Duration};

use smol_str::SmolStr;

use super::record::{NodeRecord, NodeState, NodeStatus};
use toolhub_storage::{backend::RowVersion, clock::Instant};

/// How long a dead node is listed.
const LISTING_TIME: Duration = Duration::from_secs(600);
/// Maximum number of dead nodes that are listed.
const MAX_LISTED_DEAD: usize = 100;

/// The nodes that this node has seen.
pub(super) struct Sightings {
    timeout: Duration,
    interval: Duration,
    nodes: HashMap<SmolStr, Sighting>,
    has_looked: bool,
    /// The time between successful renewals of the observer's own row, since its start.
    watched: Duration,
    /// The end of the last renewal, if it succeeded.
    renewed_at: Option<Instant>,
    /// Nodes that died lately, for listings.
    dead: Vec<(NodeRecord, Instant)>,
}

struct Sighting {
    record: NodeRecord,
    version: RowVersion,
    /// When its row was first seen in this version.
    renewed_at: Instant,
    /// What `watched` will be for the time before that.
    watched_before: Duration,
    /// Whether its death was reported.
    is_reported: bool,
}

/// What a look at the rows has found.
#[derive(Default)]
pub(super) struct Changes {
    /// Nodes whose row must be removed, in the version that was seen: they are dead.
    pub(super) dead: Vec<(NodeRecord, RowVersion)>,
    /// Whether a node has died or left since the last look.
    pub(super) has_departures: bool,
}

impl Sightings {
    /// This node renews its row every `interval`. Others are dead after `timeout` without a renewal, or after their own if that is longer.
    pub(super) fn new(timeout: Duration, interval: Duration) -> Self {
        let (nodes, has_looked, watched, renewed_at, dead) = Default::default();
        Self { timeout, interval, nodes, has_looked, watched, renewed_at, dead }
    }

    /// Takes note of a renewal of the observer's own row: when it began and ended if it succeeded.
    pub(super) fn note_renewal(&mut self, renewed: Option<(Instant, Instant)>) {
        self.watched = renewed.map_or(self.watched, |(began_at, _)| self.watched_until(began_at));
        self.renewed_at = renewed.map(|(_, ended_at)| ended_at);
    }

    /// Whether the last renewal of the observer's own row succeeded.
    pub(super) fn is_renewed(&self) -> bool {
        self.renewed_at.is_some()
    }

    /// What `watched` will be at this time, if the next renewal succeeds.
    fn watched_until(&self, at: Instant) -> Duration {
        let gap = self.renewed_at.map_or(Duration::ZERO, |renewed_at| at.saturating_duration_since(renewed_at));
        // A process that was suspended has not watched: only the time of two renewals counts.
        self.watched + gap.min(2 * self.interval)
    }

    /// Takes note of the rows of all other nodes, which were read after `at`.
    pub(super) fn update(&mut self, rows: Vec<(NodeRecord, RowVersion)>, at: Instant) -> Changes {
        self.has_looked = true;
        let watched_before = self.watched_until(at);
        let mut before = std::mem::take(&mut self.nodes);
        let mut changes = Changes::default();
        for (record, version) in rows {
            let seen = before.remove(&record.id);
            let mut sighting = match seen {
                Some(seen) if seen.version == version => seen,
                _ => Sighting { record, version, renewed_at: at, watched_before, is_reported: false },
            };
            if self.is_dead(&sighting) {
                changes.dead.push((sighting.record.clone(), version));
                changes.has_departures |= !std::mem::replace(&mut sighting.is_reported, true);
            }
            self.nodes.insert(sighting.record.id.clone(), sighting);
        }
        changes.has_departures |= before.values().any(|gone| !gone.is_reported);
        // One that was silent for long has died, and another node was the first to see it; the others have left.
        let died = before.into_values().filter(|gone| self.silence(gone) >= 2 * self.timeout_of(&gone.record) / 3);
        let died: Vec<_> = died.map(|gone| (gone.record, gone.renewed_at)).collect();
        self.dead.extend(died);
        // One that has a row again was only slow.
        let is_listed = |(node, renewed_at): &(NodeRecord, Instant)| {
            !self.nodes.contains_key(&node.id) && at.saturating_duration_since(*renewed_at) < LISTING_TIME
        };
        self.dead.retain(is_listed);
        let excess = self.dead.len().saturating_sub(MAX_LISTED_DEAD);
        self.dead.drain(..excess);
        changes
    }

    /// Whether the rows of other nodes were read at least once.
    pub(super) fn has_looked(&self) -> bool {
        self.has_looked
    }

    /// Whether the node had a row at the last look.
    pub(super) fn knows(&self, id: &str) -> bool {
        self.nodes.contains_key(id)
    }

    /// Whether the node had a row at the last look, and it was renewed in time.
    pub(super) fn is_alive(&self, id: &str) -> bool {
        self.nodes.get(id).is_some_and(|seen| !self.is_dead(seen))
    }

    /// The other nodes that were alive at the last look.
    pub(super) fn alive(&self) -> impl Iterator<Item = &NodeRecord> {
        self.nodes.values().filter(|seen| !self.is_dead(seen)).map(|seen| &seen.record)
    }

    /// All nodes, and those that died lately.
    pub(super) fn list(&self, now: Instant) -> Vec<NodeStatus> {
        let age = |renewed_at: Instant| now.saturating_duration_since(renewed_at);
        let known = self.nodes.values().map(|seen| {
            let state = if self.is_dead(seen) { NodeState::Dead } else { NodeState::Alive };
            seen.record.status(state, age(seen.renewed_at), false)
        });
        known.chain(self.dead.iter().map(|(record, at)| record.status(NodeState::Dead, age(*at), false))).collect()
    }

    /// How long a node may be silent. One that announces no timeout has the same as this one.
    fn timeout_of(&self, record: &NodeRecord) -> Duration {
        record.timeout.map_or(self.timeout, |announced| announced.max(self.timeout))
    }

    /// For how long the row has been watched without a change.
    fn silence(&self, seen: &Sighting) -> Duration {
        self.watched.saturating_sub(seen.watched_before)
    }

    fn is_dead(&self, seen: &Sighting) -> bool {
        self.silence(seen) >= self.timeout_of(&seen.record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolhub_types::timestamp::Timestamp;

    fn rows(version: Option<u64>) -> Vec<(NodeRecord, RowVersion)> {
        let record = |id: &str| NodeRecord {
            id: id.into(),
            name: id.into(),
            address: None,
            version: "1".into(),
            config_digest: None,
            started_at: Timestamp::default(),
            layouts: super::super::record::NodeLayouts::default(),
            timeout: None,
        };
        let version = version.map(|number| (record("n1"), RowVersion { number, stamp: number }));
        version.into_iter().collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_is_dead_when_its_row_was_watched_for_the_timeout_without_a_change() {
        let mut sightings = Sightings::new(Duration::from_secs(15), Duration::from_secs(5));
        let mut look = async |after: u64, version: Option<u64>| {
            tokio::time::advance(Duration::from_secs(after)).await;
            sightings.note_renewal(Some((Instant::now(), Instant::now())));
            let changes = sightings.update(rows(version), Instant::now());
            (sightings.is_alive("n1"), changes.has_departures)
        };
        assert_eq!(look(100, Some(1)).await, (true, false), "seen for the first time");
        assert_eq!(look(9, Some(1)).await, (true, false));
        assert_eq!(look(5, Some(2)).await, (true, false), "it was renewed just now");
        assert_eq!(look(5, Some(2)).await, (true, false));
        assert_eq!(look(3600, Some(2)).await, (false, true), "10 of these seconds count, 15 in all");
        assert_eq!(look(5, Some(2)).await, (false, false), "its death is reported once");
        assert_eq!(look(5, Some(3)).await, (true, false), "it was only slow");
        assert_eq!(look(3600, Some(3)).await, (true, false), "the observer was suspended");
        assert_eq!(look(1, None).await, (false, true), "it has left");
        assert_eq!(look(1, None).await, (false, false));
    }

    #[tokio::test(start_paused = true)]
    async fn silence_counts_only_while_the_observer_can_renew_its_own_row() {
        let mut sightings = Sightings::new(Duration::from_secs(15), Duration::from_secs(5));
        let mut look = async |after: u64, renews: bool| {
            tokio::time::advance(Duration::from_secs(after)).await;
            sightings.note_renewal(renews.then(|| (Instant::now(), Instant::now())));
            sightings.update(rows(Some(1)), Instant::now());
            sightings.is_alive("n1")
        };
        assert!(look(0, true).await && look(5, true).await);
        for _ in 0..100 {
            assert!(look(5, false).await, "the store refuses writes");
        }
        assert!(look(5, true).await && look(5, true).await, "5 of the last 10 seconds count, 10 in all");
        assert!(!look(5, true).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_between_renewals_counts_no_silence_twice() {
        let mut sightings = Sightings::new(Duration::from_secs(15), Duration::from_secs(5));
        let mut look = async |after: u64, version: u64, renews: bool| {
            tokio::time::advance(Duration::from_secs(after)).await;
            if renews {
                sightings.note_renewal(Some((Instant::now(), Instant::now())));
            }
            sightings.update(rows(Some(version)), Instant::now());
            sightings.is_alive("n1")
        };
        assert!(look(0, 1, true).await && look(4, 2, false).await, "renewed 4 seconds after the observer");
        for (after, renews) in [(1, true), (5, true), (5, true), (3, false), (1, false)] {
            assert!(look(after, 2, renews).await);
        }
        assert!(!look(1, 2, true).await, "16 seconds without a renewal");
    }

    #[tokio::test(start_paused = true)]
    async fn a_dead_node_is_listed_for_a_while_and_one_that_left_is_not() {
        let mut sightings = Sightings::new(Duration::from_secs(15), Duration::from_secs(5));
        for silent in [0, 5, 5, 5] {
            tokio::time::advance(Duration::from_secs(silent)).await;
            sightings.note_renewal(Some((Instant::now(), Instant::now())));
            sightings.update(rows(Some(1)), Instant::now());
        }
        sightings.update(rows(None), Instant::now());
        let listed: Vec<_> = sightings.list(Instant::now()).into_iter().map(|node| node.state).collect();
        assert_eq!(listed, [NodeState::Dead]);
        sightings.update(rows(Some(2)), Instant::now());
        sightings.update(rows(None), Instant::now());
        assert!(sightings.list(Instant::now()).is_empty(), "it was only slow, and has left");
        for silent in [0, 5, 5, 5] {
            tokio::time::advance(Duration::from_secs(silent)).await;
            sightings.note_renewal(Some((Instant::now(), Instant::now())));
            sightings.update(rows(Some(1)), Instant::now());
        }
        sightings.update(rows(None), Instant::now());
        assert_eq!(sightings.list(Instant::now()).len(), 1);
        tokio::time::advance(LISTING_TIME).await;
        sightings.update(rows(Some(1)), Instant::now());
        sightings.update(rows(None), Instant::now());
        assert!(sightings.list(Instant::now()).is_empty());
    }
}

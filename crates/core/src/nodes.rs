//! Membership: the nodes that share a store, and which of them are alive.
//!
//! In: this node's description, and the rows of the others. Out: this node's row, renewed from its start to its end; whether
//! another node is alive; and a signal whenever one has died or left, so that its calls and runs are taken over. A node is
//! dead when its row did not change for the node timeout while this node watched it, by this node's monotonic clock, and could renew
//! its own row; a node that announces a longer timeout is given that, because nodes are restarted with another one after each other. A row
//! that was removed is a clean leave: that node is gone at once. On a store with one user nothing is written.

mod compatibility;
mod maintenance;
mod record;
mod sightings;

use std::{
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::StreamExt;
use smol_str::SmolStr;
use tokio::sync::{Mutex as AsyncMutex, watch};
use tokio_util::sync::CancellationToken;

pub(crate) use compatibility::FIRST_GENERATION;
pub use compatibility::NewerNode;
use compatibility::{Reported, generation_to_write, newer_node, older, record_layouts};
use maintenance::{Lease, is_lease};
use record::NodeRecord;
pub use record::{NodeInfo, NodeLayouts, NodeState, NodeStatus, announced_node_timeout};
use sightings::Sightings;

use crate::events::Events;
use toolhub_storage::{
    backend::{
        Backend, Batch, Change, Durability, Expect, Partition, PartitionKind, RowKey, RowVersion, Scan, Scope,
        StoreError, Table, WatchEvent, Watcher, Write, decode, encode, read_all,
    },
    clock::{Clock, Instant},
};
use toolhub_types::{event_kind::EventKind, ids::Tenant, timestamp::Timestamp};

/// How long a node may be silent before it is dead, unless configured.
pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(15);
/// Shortest node timeout; every node writes a row each third of it.
pub(crate) const MIN_TIMEOUT: Duration = Duration::from_millis(300);
/// Time before another try to renew the row of this node.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
const LAYOUT: u32 = 1;

/// The nodes of a store.
pub(crate) struct Nodes {
    store: Arc<dyn Backend>,
    clock: Arc<dyn Clock>,
    events: Events,
    /// This node, as it was at its start.
    own: NodeRecord,
    /// The digest of its current config.
    config_digest: Mutex<Option<SmolStr>>,
    /// Differences to other nodes that were logged.
    reported: Mutex<Reported>,
    /// Whether this hub is the only user of the store: then every other node is dead.
    is_exclusive: bool,
    /// How often a node renews its row.
    interval: Duration,
    own_row: AsyncMutex<OwnRow>,
    sightings: Mutex<Sightings>,
    /// Who does the maintenance, as of the last look.
    lease: Mutex<Option<Lease>>,
    /// Held while the rows are read, so that looks do not overtake each other.
    look_lock: AsyncMutex<()>,
    /// The number of times that nodes were found to have died or left.
    departures: watch::Sender<u64>,
}

/// The state of this node's row.
#[derive(Default)]
struct OwnRow {
    version: Option<RowVersion>,
    /// Whether `node.joined` was emitted for it.
    is_joined: bool,
    /// Whether this node has left; it does not come back.
    has_left: bool,
}

impl Nodes {
    /// The membership of a hub with this id, unique among all that ever used the store.
    pub(crate) fn new(
        (store, is_exclusive): (Arc<dyn Backend>, bool),
        clock: Arc<dyn Clock>,
        events: Events,
        id: SmolStr,
        (info, timeout): (NodeInfo, Duration),
    ) -> Self {
        let timeout = timeout.max(MIN_TIMEOUT);
        let own = NodeRecord {
            name: info.name.unwrap_or_else(|| id.clone()),
            id,
            address: info.address,
            version: SmolStr::new_static(env!("CARGO_PKG_VERSION")),
            config_digest: info.config_digest,
            started_at: clock.now(),
            layouts: NodeLayouts { read: record_layouts(), written: record_layouts() },
            timeout: Some(timeout),
        };
        let config_digest = Mutex::new(own.config_digest.clone());
        let interval = timeout / 3;
        let sightings = Mutex::new(Sightings::new(timeout, interval));
        let (own_row, lease, look_lock, departures, reported) = Default::default();
        Self {
            store,
            clock,
            events,
            own,
            config_digest,
            reported,
            is_exclusive,
            interval,
            own_row,
            sightings,
            lease,
            look_lock,
            departures,
        }
    }

    /// Whether this hub is the only user of the store.
    pub(crate) fn is_exclusive(&self) -> bool {
        self.is_exclusive
    }

    /// The id of this node.
    pub(crate) fn own_id(&self) -> &SmolStr {
        &self.own.id
    }

    /// The name of this node.
    pub(crate) fn own_name(&self) -> &SmolStr {
        &self.own.name
    }

    /// How long a node may be silent before it is dead.
    pub(crate) fn timeout(&self) -> Duration {
        3 * self.interval
    }

    /// How many nodes were alive at the last look, this one included.
    pub(crate) fn alive(&self) -> usize {
        self.lock().alive().count() + 1
    }

    /// This node as it is now.
    fn own_record(&self) -> NodeRecord {
        let config_digest = self.config_digest.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let sightings = self.lock();
        let written = if self.is_exclusive || sightings.has_looked() {
            generation_to_write(record_layouts(), sightings.alive().map(|node| node.layouts.read))
        } else {
            // Other nodes may be alive, of which this one has not heard yet.
            older(record_layouts())
        };
        drop(sightings);
        NodeRecord { config_digest, layouts: NodeLayouts { read: record_layouts(), written }, ..self.own.clone() }
    }

    /// Announces the digest of the current config.
    pub(crate) async fn set_config_digest(&self, digest: SmolStr) -> Result<(), StoreError> {
        *self.config_digest.lock().unwrap_or_else(PoisonError::into_inner) = Some(digest);
        self.renew().await?;
        self.look().await
    }

    /// A living node that writes what this one cannot read, as of the last look.
    pub(crate) fn newer_node(&self) -> Option<NewerNode> {
        self.lock().alive().find_map(newer_node)
    }

    /// Changes whenever a node has died or left.
    pub(crate) fn departures(&self) -> watch::Receiver<u64> {
        self.departures.subscribe()
    }

    /// Writes this node's row, again and again; and emits `node.joined` when there was none.
    pub(crate) async fn renew(&self) -> Result<(), StoreError> {
        let mut row = self.own_row.lock().await;
        if self.is_exclusive || row.has_left {
            return Ok(());
        }
        let began_at = self.clock.instant();
        let written = self.write_own(&mut row).await;
        let renewed = written.is_ok().then(|| (began_at, self.clock.instant()));
        self.lock().note_renewal(renewed);
        written
    }

    async fn write_own(&self, row: &mut OwnRow) -> Result<(), StoreError> {
        let now = self.clock.now();
        let value = encode(Table::Nodes, &self.own.id, &self.own_record())?;
        let put = async |expect| {
            // It never expires: a node's clock may jump, and other nodes remove it when it is dead.
            self.write(expect, Change::Put { value: value.clone(), schema: LAYOUT, expires: None }, now).await
        };
        let mut written = put(row.version.map_or(Expect::Absent, Expect::Same)).await;
        if let Err(StoreError::Conflict { .. }) = written {
            // An answer was lost, or other nodes took this one for dead.
            row.version = self.load_own(now).await?;
            row.is_joined &= row.version.is_some();
            written = put(row.version.map_or(Expect::Absent, Expect::Same)).await;
        }
        row.version = Some(written?);
        if !std::mem::replace(&mut row.is_joined, true) {
            let (node_id, node_name) = (self.own.id.clone(), self.own.name.clone());
            self.events.emit(now, EventKind::NodeJoined { node_id, node_name });
        }
        Ok(())
    }

    /// Removes this node's row, for good. Its calls and runs must have ended, or be ready to be taken over.
    pub(crate) async fn leave(&self) {
        let mut row = self.own_row.lock().await;
        if self.is_exclusive || std::mem::replace(&mut row.has_left, true) || !row.is_joined {
            return;
        }
        let now = self.clock.now();
        self.release_lease(now).await;
        let removed = match row.version {
            Some(version) => self.write(Expect::Same(version), Change::Remove, now).await,
            None => return,
        };
        match removed {
            Ok(_) => self.emit_left(&self.own, "it was shut down"),
            Err(StoreError::Conflict { .. }) => {
                if let Ok(Some(version)) = self.load_own(now).await
                    && self.write(Expect::Same(version), Change::Remove, now).await.is_ok()
                {
                    self.emit_left(&self.own, "it was shut down");
                }
            }
            // The other nodes notice by its silence.
            Err(error) => tracing::debug!(%error, "row of this node not removed"),
        }
    }

    /// Reads the rows of all nodes. Removes those of dead nodes; the one node that does emits `node.left`.
    pub(crate) async fn look(&self) -> Result<(), StoreError> {
        if self.is_exclusive {
            return Ok(());
        }
        let _one_at_a_time = self.look_lock.lock().await;
        // Taken before the rows are read: a renewal meanwhile counts for the next look.
        let (at, now) = (self.clock.instant(), self.clock.now());
        let rows = read_all(&*self.store, Scan::new(Table::Nodes, Scope::Partition(partition())), now).await?;
        let (lease, rows): (Vec<_>, Vec<_>) = rows.into_iter().partition(|(key, _)| is_lease(&key.id));
        let others = rows.into_iter().filter(|(key, _)| key.id != self.own.id).filter_map(|(key, row)| {
            match decode::<NodeRecord>(Table::Nodes, &key.id, LAYOUT, &row) {
                // The id of the row counts.
                Ok((record, version)) => Some((NodeRecord { id: key.id, ..record }, version)),
                // Without it the node would count as gone.
                Err(StoreError::NewerLayout { .. }) => Some((NodeRecord::unreadable(key.id), row.version)),
                Err(error) => {
                    error.log_skipped();
                    None
                }
            }
        });
        let (changes, alive) = {
            let mut sightings = self.lock();
            let changes = sightings.update(others.collect(), at);
            (changes, sightings.alive().cloned().collect::<Vec<_>>())
        };
        let digest = self.config_digest.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.reported.lock().unwrap_or_else(PoisonError::into_inner).report(digest.as_ref(), &alive);
        // While the store refuses writes, removals would only wait.
        let dead = if self.lock().is_renewed() { changes.dead } else { Vec::new() };
        for (record, version) in dead {
            let id = &record.id;
            let write = Write {
                table: Table::Nodes,
                id: id.clone(),
                expect: Expect::Same(version),
                change: Change::Remove,
                durability: Durability::KillSafe,
            };
            match self.store.commit(Batch::new(partition()).with(write), now).await {
                Ok(_) => {
                    tracing::warn!(node = %id, name = %record.name, "node is dead; its calls and runs are taken over");
                    self.emit_left(&record, "it no longer answers");
                }
                // Another node removed the row, or the node was only slow: the next look tells.
                Err(error) => tracing::debug!(%error, node = %id, "row of a dead node not removed"),
            }
        }
        self.update_lease(lease.first().map(|(_, row)| row), now).await;
        if changes.has_departures {
            self.departures.send_modify(|count| *count += 1);
        }
        Ok(())
    }

    /// Whether a node had a row at the last [look](Self::look) and renewed it in time. This node is alive.
    pub(crate) fn was_alive(&self, id: &str) -> bool {
        id == self.own.id || (!self.is_exclusive && self.lock().is_alive(id))
    }

    /// Whether a node is alive now. What it does must have been read before: a node has a row before it does anything.
    pub(crate) async fn is_alive(&self, id: &str) -> Result<bool, StoreError> {
        if id == self.own.id {
            return Ok(true);
        }
        self.look().await?;
        Ok(self.was_alive(id))
    }

    /// All nodes that are alive or died lately, this one first, then by name.
    pub(crate) async fn list(&self) -> Result<Vec<NodeStatus>, StoreError> {
        self.look().await?;
        let mut nodes = self.lock().list(self.clock.instant());
        nodes.sort_by(|a, b| (&a.name, &a.id).cmp(&(&b.name, &b.id)));
        nodes.insert(0, self.own_record().status(NodeState::Alive, Duration::ZERO, true));
        let maintainer = if self.is_exclusive { Some(self.own.id.clone()) } else { self.maintainer() };
        nodes.iter_mut().for_each(|node| node.is_maintainer = maintainer.as_ref() == Some(&node.id));
        Ok(nodes)
    }

    /// The other nodes that are alive or died lately, as of the last look: their names, and whether they are alive.
    pub(crate) fn sighted(&self) -> Vec<(SmolStr, bool)> {
        let nodes = self.lock().list(self.clock.instant());
        nodes.into_iter().map(|node| (node.name, node.state == NodeState::Alive)).collect()
    }

    /// Whether a removed row is that of a node that came and left since the last look.
    fn is_unseen(&self, id: &str) -> bool {
        id != self.own.id && !is_lease(id) && !self.lock().knows(id)
    }

    fn emit_left(&self, node: &NodeRecord, reason: &'static str) {
        let (node_id, node_name) = (node.id.clone(), node.name.clone());
        self.events.emit(self.clock.now(), EventKind::NodeLeft { node_id, node_name, reason: reason.into() });
    }

    async fn load_own(&self, now: Timestamp) -> Result<Option<RowVersion>, StoreError> {
        let key = RowKey { partition: partition(), table: Table::Nodes, id: self.own.id.clone() };
        let row = self.store.load(std::slice::from_ref(&key), now).await?.pop().flatten();
        Ok(row.map(|row| row.version))
    }

    async fn write(&self, expect: Expect, change: Change, now: Timestamp) -> Result<RowVersion, StoreError> {
        let (id, durability) = (self.own.id.clone(), Durability::KillSafe);
        let batch = Batch::new(partition()).with(Write { table: Table::Nodes, id, expect, change, durability });
        let stamp = batch.stamp;
        let versions = self.store.commit(batch, now).await?;
        Ok(RowVersion { number: versions.first().copied().unwrap_or_default(), stamp })
    }

    fn lock_lease(&self) -> MutexGuard<'_, Option<Lease>> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Sightings> {
        self.sightings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All rows of nodes are in one partition.
fn partition() -> Partition {
    Partition { tenant: Tenant::default(), kind: PartitionKind::Nodes }
}

/// Renews this node's row and watches those of the others, until the hub stops; then leaves.
pub(crate) async fn run_membership(nodes: Arc<Nodes>, mut rows: Watcher, stopped: CancellationToken) {
    let (mut renew_at, mut was_renewed) = (Instant::now() + nodes.interval, true);
    while !stopped.is_cancelled() {
        let next = pin!(tokio::time::timeout_at(renew_at, next_removal(&mut rows)));
        let Some(removed) = stopped.run_until_cancelled(next).await else { break };
        let is_due = removed.is_err();
        let has_unseen_left = match &removed {
            Ok(Some(id)) => nodes.is_unseen(id),
            // It may be among the changes that were missed.
            Ok(None) => true,
            Err(_) => false,
        };
        // A node that was taken for dead must be back before it starts anything more.
        if is_due || !matches!(&removed, Ok(Some(id)) if *id != nodes.own.id) {
            let renewed = nodes.renew().await;
            match &renewed {
                Err(error) if was_renewed => {
                    tracing::warn!(%error, "row of this node not renewed; other nodes may take it for dead");
                }
                Err(error) => tracing::debug!(%error, "row of this node not renewed"),
                Ok(()) => {}
            }
            was_renewed = renewed.is_ok();
            renew_at =
                Instant::now() + if renewed.is_ok() { nodes.interval } else { nodes.interval.min(RETRY_INTERVAL) };
        }
        if let Err(error) = nodes.look().await {
            tracing::debug!(%error, "rows of other nodes not read");
        }
        if has_unseen_left {
            nodes.departures.send_modify(|count| *count += 1);
        }
    }
    nodes.leave().await;
}

/// The id of the next row that is removed; `None` if changes were missed.
async fn next_removal(rows: &mut Watcher) -> Option<SmolStr> {
    loop {
        match rows.next().await {
            Some(WatchEvent::Row(key, None)) => return Some(key.id),
            Some(WatchEvent::Row(_, Some(_))) => {}
            Some(WatchEvent::Lagged) => return None,
            // The watch ended; the next renewal looks anyway.
            None => return std::future::pending().await,
        }
    }
}

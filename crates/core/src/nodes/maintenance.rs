//! The maintenance lease: one node does what one is enough for, such as removing expired rows.
//!
//! In: the lease's row, and which nodes are alive. Out: whether this node holds the lease. It is taken, by compare-and-set, from a
//! node that has died or left. Two holders for a moment do no harm: the lease saves work, and guards nothing.

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::{LAYOUT, Nodes, partition};
use toolhub_storage::backend::{
    Batch, Change, Durability, Expect, Row, RowVersion, StoreError, Table, Write, decode, encode,
};
use toolhub_types::timestamp::Timestamp;

/// The row of the lease, beside those of the nodes.
const ROW_ID: SmolStr = SmolStr::new_static("~maintenance");

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Lease {
    pub(super) holder: SmolStr,
    #[serde(skip)]
    version: Option<RowVersion>,
}

impl Nodes {
    /// Whether this node does the maintenance.
    pub(crate) fn is_maintainer(&self) -> bool {
        self.is_exclusive || self.maintainer().is_some_and(|holder| holder == self.own.id)
    }

    /// The node that held the lease at the last look.
    pub(super) fn maintainer(&self) -> Option<SmolStr> {
        self.lock_lease().as_ref().map(|lease| lease.holder.clone())
    }

    /// Takes note of the lease's row, and takes the lease if its holder is gone.
    pub(super) async fn update_lease(&self, row: Option<&Row>, now: Timestamp) {
        if row.is_some_and(|row| row.schema > LAYOUT) {
            // A node of a newer version holds it, in a layout that this one does not know.
            *self.lock_lease() = None;
            return;
        }
        let found = row.and_then(|row| {
            let read = decode::<Lease>(Table::Nodes, &ROW_ID, LAYOUT, row).inspect_err(StoreError::log_skipped);
            read.ok().map(|(lease, version)| Lease { version: Some(version), ..lease })
        });
        let is_held = found.as_ref().is_some_and(|lease| self.was_alive(&lease.holder));
        *self.lock_lease() = found.filter(|_| is_held);
        let may_take = {
            let own = self.own_row.lock().await;
            own.is_joined && !own.has_left
        };
        // Without a renewal the store refuses writes, and this write would only wait.
        if is_held || !may_take || !self.lock().is_renewed() {
            return;
        }
        let expect = row.map_or(Expect::Absent, |row| Expect::Same(row.version));
        let mut lease = Lease { holder: self.own.id.clone(), version: None };
        let Ok(value) = encode(Table::Nodes, &ROW_ID, &lease) else { return };
        match self.write_lease(expect, Change::Put { value, schema: LAYOUT, expires: None }, now).await {
            Ok(version) => {
                lease.version = Some(version);
                *self.lock_lease() = Some(lease);
            }
            // Another node was faster.
            Err(error) => tracing::debug!(%error, "maintenance lease not taken"),
        }
    }

    /// Gives the lease back, so that another node takes it at once.
    pub(super) async fn release_lease(&self, now: Timestamp) {
        let lease = self.lock_lease().take().filter(|lease| lease.holder == self.own.id);
        if let Some(version) = lease.and_then(|lease| lease.version) {
            let _ = self.write_lease(Expect::Same(version), Change::Remove, now).await;
        }
    }

    async fn write_lease(&self, expect: Expect, change: Change, now: Timestamp) -> Result<RowVersion, StoreError> {
        let write = Write { table: Table::Nodes, id: ROW_ID, expect, change, durability: Durability::KillSafe };
        let batch = Batch::new(partition()).with(write);
        let stamp = batch.stamp;
        let versions = self.store.commit(batch, now).await?;
        Ok(RowVersion { number: versions.first().copied().unwrap_or_default(), stamp })
    }
}

/// Whether a row of the nodes' partition is the lease.
pub(super) fn is_lease(id: &str) -> bool {
    id == ROW_ID
}

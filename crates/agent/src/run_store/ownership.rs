//! Which node drives a run: takes over the run of a node that is gone, and passes on requests to cancel a run.
//!
//! In: an open run as it was read, or a run to cancel. Out: whether this node drives it from now on; the row of the request.
//! Who is gone is decided by `service/nodes.rs`.

use std::time::Duration;

use smol_str::format_smolstr;
use toolhub_core::{
    backend::{Batch, Change, Durability, Expect, RowKey, RowVersion, Scan, Scope, StoreError, Table, Write, read_all},
    clock::Timestamp,
    ids::{RunId, ThreadKey},
};

use super::{CallSealer, OPEN_RUN_ROW_ID, RunCheckout, RunStore, SCHEMA_VERSION, put_record, row_key};

/// The ids of requests to cancel a run begin with this.
const CANCEL_PREFIX: &str = "cancel/run_";
/// How long a request is kept that no node has acted on.
const REQUEST_TTL: Duration = Duration::from_secs(3600);

/// The run that a request row asks to cancel, and its thread.
pub(crate) fn cancelled_run(key: &RowKey) -> Option<(ThreadKey, RunId)> {
    let run = key.id.strip_prefix("cancel/").filter(|_| key.id.starts_with(CANCEL_PREFIX))?.parse().ok()?;
    Some((ThreadKey::new(&key.partition.tenant, key.partition.thread()?), run))
}

fn request_key(thread_key: &ThreadKey, run: RunId) -> RowKey {
    row_key(thread_key, Table::Requests, format_smolstr!("cancel/{run}"))
}

impl RunStore {
    /// Names this node as the one that drives the run; returns whether it is. It is not if the run has changed meanwhile.
    pub(crate) async fn take_over(
        &self,
        thread_key: &ThreadKey,
        checkout: &mut RunCheckout,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        if checkout.open_run.node.as_ref() == Some(&self.node) {
            return Ok(true);
        }
        checkout.open_run.node = Some(self.node.clone());
        let sealed = CallSealer::new(&self.sealer, thread_key).seal_run(checkout.open_run.clone());
        let write = put_record(Table::Runs, OPEN_RUN_ROW_ID, Expect::Same(checkout.open_version), &sealed)?;
        let batch = Batch::new(thread_key.into()).with(write);
        let stamp = batch.stamp;
        match self.store.commit(batch, now).await {
            Ok(versions) => {
                let number = versions.first().copied().unwrap_or_default();
                checkout.open_version = RowVersion { number, stamp };
                Ok(true)
            }
            Err(StoreError::Conflict { .. }) => Ok(false),
            Err(StoreError::Unknown(lost)) => match self.checkout(thread_key, now).await? {
                Some(found) if found.open_version.stamp == stamp => {
                    *checkout = found;
                    Ok(true)
                }
                // It may still be committed; then this node finds the run as its own.
                Some(found) if found.open_version == checkout.open_version => Err(StoreError::Unknown(lost)),
                _ => Ok(false),
            },
            Err(error) => Err(error),
        }
    }

    /// Asks the node that drives the run to cancel it.
    pub(crate) async fn request_cancel(
        &self,
        thread_key: &ThreadKey,
        run: RunId,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let RowKey { partition, table, id } = request_key(thread_key, run);
        let change =
            Change::Put { value: b"{}".as_slice().into(), schema: SCHEMA_VERSION, expires: Some(now + REQUEST_TTL) };
        let write = Write { table, id, expect: Expect::Any, change, durability: Durability::KillSafe };
        self.store.commit(Batch::new(partition).with(write), now).await.map(|_| ())
    }

    /// Whether another node has asked to cancel the run; the request is removed.
    pub(crate) async fn take_cancel_request(
        &self,
        thread_key: &ThreadKey,
        run: RunId,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let key = request_key(thread_key, run);
        let Some(row) = self.store.load(std::slice::from_ref(&key), now).await?.pop().flatten() else {
            return Ok(false);
        };
        let (expect, durability) = (Expect::Same(row.version), Durability::KillSafe);
        let removal = Write { table: key.table, id: key.id, expect, change: Change::Remove, durability };
        // A request that stays expires.
        let _ = self.store.commit(Batch::new(key.partition).with(removal), now).await;
        Ok(true)
    }

    /// All requests to cancel runs, of all tenants.
    pub(crate) async fn cancel_requests(&self, now: Timestamp) -> Result<Vec<(ThreadKey, RunId)>, StoreError> {
        let rows = read_all(&*self.store, Scan::new(Table::Requests, Scope::All).prefix(CANCEL_PREFIX), now).await?;
        Ok(rows.iter().filter_map(|(key, _)| cancelled_run(key)).collect())
    }
}

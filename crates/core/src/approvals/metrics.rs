//! Metrics of approvals: the number pending, and the time to an answer.
//!
//! In: every approval requested and resolved on this node, and at startup the pending ones of the store. Out:
//! `ApprovalStats`. For metrics only; approvals requested later on other nodes are counted there.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{APPROVAL_ID_PREFIX, Approval, ApprovalState, Approvals, LAYOUT, ok_or_log};
use crate::monitor::ApprovalStats;
use toolhub_storage::{
    backend::{RowVersion, Scan, Scope, StoreError, Table, decode},
    latency::LatencyRecorder,
};
use toolhub_types::{ids::ApprovalId, timestamp::Timestamp};

/// Maximum number of pending approvals that are tracked.
const MAX_TRACKED: usize = 100_000;

/// The pending approvals this node knows of.
#[derive(Default)]
pub(super) struct PendingApprovals {
    /// Their expiry and row version, by id.
    by_id: Mutex<HashMap<ApprovalId, (Timestamp, u64)>>,
    pub(super) wait: LatencyRecorder,
}

impl PendingApprovals {
    /// Tracks a new approval, if there is capacity.
    pub(super) fn insert<A>(&self, approval: &Approval<A>, row_version: RowVersion, now: Timestamp) {
        let mut by_id = self.lock();
        if by_id.len() >= MAX_TRACKED {
            by_id.retain(|_, (expires, _)| *expires > now);
        }
        if by_id.len() < MAX_TRACKED {
            by_id.insert(approval.id, (approval.expires_at, row_version.number));
        }
    }

    /// Removes an approval that was answered or closed.
    pub(super) fn remove(&self, id: ApprovalId) {
        self.lock().remove(&id);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ApprovalId, (Timestamp, u64)>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Approvals {
    /// The current metrics.
    pub(crate) fn stats(&self) -> ApprovalStats {
        let now = self.clock.now();
        let mut by_id = self.pending.lock();
        by_id.retain(|_, (expires, _)| *expires > now);
        ApprovalStats { pending: by_id.len(), wait: self.pending.wait.latency() }
    }

    /// Handles a change of an approval's row. A pending approval is written once, so any change resolves it.
    pub(crate) fn row_changed(&self, id: ApprovalId, version: Option<u64>) {
        let mut by_id = self.pending.lock();
        if by_id.get(&id).is_some_and(|(_, tracked)| version.is_none_or(|version| *tracked < version)) {
            by_id.remove(&id);
        }
    }

    /// Loads the pending approvals that were requested before this hub started.
    pub(crate) async fn load_pending(&self) -> Result<(), StoreError> {
        let mut scan = Scan::new(Table::Approvals, Scope::All).prefix(APPROVAL_ID_PREFIX);
        loop {
            let now = self.clock.now();
            let page = self.store.scan(scan.clone(), now).await?;
            for (key, row) in &page.rows {
                let read = ok_or_log(decode::<Approval>(Table::Approvals, &key.id, LAYOUT, row));
                let pending = read.filter(|(approval, _)| approval.state_at(now) == ApprovalState::Pending);
                if let Some((approval, row_version)) = pending {
                    self.pending.insert(&approval, row_version, now);
                }
            }
            let Some(next) = page.next else { return Ok(()) };
            scan.after = Some(next);
            tokio::task::yield_now().await;
        }
    }
}

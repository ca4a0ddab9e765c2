//! How many questions wait for an answer, and how long people took to answer: for people who look at numbers.
//!
//! In: every question asked here and every answer given here, and once, when the hub begins, the questions of the store. Out:
//! `ApprovalStats`. Nothing is decided by it; a question that another node asks later is counted there.

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

/// How many questions are counted at most.
const MAX_TRACKED: usize = 100_000;

/// The questions that wait for an answer, as far as this node knows.
#[derive(Default)]
pub(super) struct PendingApprovals {
    /// When their time is over, and the version of their rows.
    by_id: Mutex<HashMap<ApprovalId, (Timestamp, u64)>>,
    pub(super) wait: LatencyRecorder,
}

impl PendingApprovals {
    /// A question was asked.
    pub(super) fn insert(&self, approval: &Approval, seen: RowVersion, now: Timestamp) {
        let mut asked = self.lock();
        if asked.len() >= MAX_TRACKED {
            asked.retain(|_, (expires, _)| *expires > now);
        }
        if asked.len() < MAX_TRACKED {
            asked.insert(approval.id, (approval.expires_at, seen.number));
        }
    }

    /// A question was answered, or given up.
    pub(super) fn remove(&self, id: ApprovalId) {
        self.lock().remove(&id);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ApprovalId, (Timestamp, u64)>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Approvals {
    /// What there is to count.
    pub(crate) fn stats(&self) -> ApprovalStats {
        let now = self.clock.now();
        let mut asked = self.pending.lock();
        asked.retain(|_, (expires, _)| *expires > now);
        ApprovalStats { pending: asked.len(), wait: self.pending.wait.latency() }
    }

    /// The row of a question has this version now, or is gone: a question that waits is written once.
    pub(crate) fn row_changed(&self, id: ApprovalId, version: Option<u64>) {
        let mut asked = self.pending.lock();
        if asked.get(&id).is_some_and(|(_, known)| version.is_none_or(|version| *known < version)) {
            asked.remove(&id);
        }
    }

    /// Counts the questions that were asked before this hub began.
    pub(crate) async fn load_pending(&self) -> Result<(), StoreError> {
        let mut scan = Scan::new(Table::Approvals, Scope::All).prefix(APPROVAL_ID_PREFIX);
        loop {
            let now = self.clock.now();
            let page = self.store.scan(scan.clone(), now).await?;
            for (key, row) in &page.rows {
                let read = ok_or_log(decode::<Approval>(Table::Approvals, &key.id, LAYOUT, row));
                let waits = read.filter(|(approval, _)| approval.state_at(now) == ApprovalState::Pending);
                if let Some((approval, seen)) = waits {
                    self.pending.insert(&approval, seen, now);
                }
            }
            let Some(next) = page.next else { return Ok(()) };
            scan.after = Some(next);
            tokio::task::yield_now().await;
        }
    }
}

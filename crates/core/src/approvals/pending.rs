//! Pending approvals: how many there are, of all tenants and of each one, and the time to an answer.
//!
//! In: every approval requested and resolved on this node, the pending ones of the store at startup, and the changes that other nodes
//! make. Out: counts, for the bound on new requests and for metrics. Those of other nodes are counted as soon as their change is seen.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{APPROVAL_ID_PREFIX, Approval, ApprovalState, Approvals, LAYOUT, ok_or_log};
use crate::{
    alerts::{Condition, Signal},
    monitor::ApprovalStats,
};
use smol_str::SmolStr;
use toolhub_storage::{
    backend::{Row, RowKey, RowVersion, Scan, Scope, StoreError, Table, decode},
    latency::LatencyRecorder,
};
use toolhub_types::{
    count_by_key::CountByKey,
    ids::{ApprovalId, Tenant, ThreadId},
    page_budget::LIST_PAGE_BYTES,
    timestamp::Timestamp,
    tool::ToolName,
};

/// Maximum number of pending approvals, whatever is configured.
const MAX_TRACKED: usize = 100_000;

/// The row version of an approval that is not stored yet.
const UNSTORED: u64 = u64::MAX;

/// The pending approvals this node knows of.
#[derive(Default)]
pub(super) struct PendingApprovals {
    entries: Mutex<Entries>,
    pub(super) wait: LatencyRecorder,
}

#[derive(Default)]
struct Entries {
    by_id: HashMap<ApprovalId, Entry>,
    by_tenant: CountByKey<Tenant>,
}

struct Entry {
    tenant: Tenant,
    thread: Option<ThreadId>,
    expires: Timestamp,
    row_version: u64,
    tool: ToolName,
    asked_at: Timestamp,
}

impl Entries {
    fn insert(&mut self, id: ApprovalId, entry: Entry, now: Timestamp) {
        if self.by_id.len() >= MAX_TRACKED {
            self.remove_expired(now);
        }
        if self.by_id.len() < MAX_TRACKED {
            let tenant = entry.tenant.clone();
            if self.by_id.insert(id, entry).is_none() {
                self.by_tenant.add(&tenant, 1);
            }
        }
    }

    fn remove(&mut self, id: ApprovalId) {
        if let Some(entry) = self.by_id.remove(&id) {
            self.by_tenant.subtract(&entry.tenant, 1);
        }
    }

    fn remove_expired(&mut self, now: Timestamp) {
        let Self { by_id, by_tenant } = self;
        by_id.retain(|_, entry| {
            let is_pending = entry.expires > now;
            if !is_pending {
                by_tenant.subtract(&entry.tenant, 1);
            }
            is_pending
        });
    }
}

impl PendingApprovals {
    /// Counts an approval that is about to be stored.
    pub(super) fn insert<A>(&self, tenant: &Tenant, approval: &Approval<A>, now: Timestamp) {
        let (tenant, thread) = (tenant.clone(), approval.thread.clone());
        let (tool, asked_at) = (approval.tool.clone(), approval.asked_at);
        let entry = Entry { tenant, thread, expires: approval.expires_at, row_version: UNSTORED, tool, asked_at };
        self.lock().insert(approval.id, entry, now);
    }

    /// Records that an approval was stored.
    pub(super) fn set_stored(&self, id: ApprovalId, row_version: RowVersion) {
        if let Some(entry) = self.lock().by_id.get_mut(&id) {
            entry.row_version = row_version.number;
        }
    }

    /// Removes an approval that was answered or closed, or could not be stored.
    pub(super) fn remove(&self, id: ApprovalId) {
        self.lock().remove(id);
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Approvals {
    /// The current metrics.
    pub(crate) fn stats(&self) -> ApprovalStats {
        let now = self.clock.now();
        let mut entries = self.pending.lock();
        entries.remove_expired(now);
        ApprovalStats { pending: entries.by_id.len(), wait: self.pending.wait.latency() }
    }

    /// The pending approvals, for alerts.
    pub(crate) fn waiting_signals(&self) -> Vec<Signal> {
        let now = self.clock.now();
        let entries = self.pending.lock();
        let pending = entries.by_id.iter().filter(|(_, entry)| entry.expires > now);
        let signal = |(id, entry): (&ApprovalId, &Entry)| {
            let reason =
                format!("a call of `{}` waits for it; without an answer it is denied at {}", entry.tool, entry.expires);
            Signal::active(Condition::ApprovalWaiting, SmolStr::from(*id), entry.asked_at, reason)
                .tenant(&entry.tenant)
                .tool(&entry.tool)
        };
        pending.map(signal).collect()
    }

    /// The number of pending approvals of each thread of a tenant that has any.
    pub(crate) fn pending_by_thread(&self, tenant: &Tenant) -> HashMap<ThreadId, usize> {
        let now = self.clock.now();
        let mut counts = HashMap::new();
        let entries = self.pending.lock();
        let pending = entries.by_id.values().filter(|entry| entry.tenant == *tenant && entry.expires > now);
        for thread in pending.filter_map(|entry| entry.thread.as_ref()) {
            *counts.entry(thread.clone()).or_default() += 1;
        }
        counts
    }

    /// Whether a tenant may request no more approvals; `is_full` decides by the number of pending ones, of all tenants and of this
    /// one.
    pub(crate) fn is_full(&self, tenant: &Tenant, is_full: impl Fn(usize, usize) -> bool) -> bool {
        let mut entries = self.pending.lock();
        let check = |entries: &Entries| {
            let (total, of_tenant) = (entries.by_id.len(), entries.by_tenant.of(tenant));
            total >= MAX_TRACKED || is_full(total, of_tenant)
        };
        if !check(&entries) {
            return false;
        }
        entries.remove_expired(self.clock.now());
        check(&entries)
    }

    /// Handles a change of an approval's row. A pending approval is written once, so any change resolves it.
    pub(crate) fn row_changed(&self, id: ApprovalId, version: Option<u64>) {
        let mut entries = self.pending.lock();
        if entries.by_id.get(&id).is_some_and(|entry| version.is_none_or(|version| entry.row_version < version)) {
            entries.remove(id);
        }
    }

    /// Counts an approval that another node has requested, unless it is known or was answered meanwhile.
    pub(crate) async fn row_appeared(&self, key: &RowKey, id: ApprovalId) -> Result<(), StoreError> {
        if self.pending.lock().by_id.contains_key(&id) {
            return Ok(());
        }
        let row = self.store.load(std::slice::from_ref(key), self.clock.now()).await?.pop().flatten();
        if let Some(row) = row {
            self.insert_if_pending(key, &row);
        }
        Ok(())
    }

    /// Loads the pending approvals of the store: at startup, and after changes were missed.
    pub(crate) async fn load_pending(&self) -> Result<(), StoreError> {
        let is_stored = |(id, entry): (&ApprovalId, &Entry)| (entry.row_version != UNSTORED).then_some(*id);
        let mut resolved: HashSet<ApprovalId> = self.pending.lock().by_id.iter().filter_map(is_stored).collect();
        let mut scan = Scan::new(Table::Approvals, Scope::All).prefix(APPROVAL_ID_PREFIX).max_bytes(LIST_PAGE_BYTES);
        loop {
            let page = self.store.scan(scan.clone(), self.clock.now()).await?;
            for (key, row) in &page.rows {
                if let Some(id) = self.insert_if_pending(key, row) {
                    resolved.remove(&id);
                }
            }
            let Some(next) = page.next else { break };
            scan.after = Some(next);
            tokio::task::yield_now().await;
        }
        resolved.into_iter().for_each(|id| self.pending.remove(id));
        Ok(())
    }

    /// Counts a stored approval if it is pending; returns its id if it is.
    fn insert_if_pending(&self, key: &RowKey, row: &Row) -> Option<ApprovalId> {
        let now = self.clock.now();
        let read = ok_or_log(decode::<Approval>(Table::Approvals, &key.id, LAYOUT, row));
        let (approval, row_version) = read.filter(|(approval, _)| approval.state_at(now) == ApprovalState::Pending)?;
        let (tenant, expires, row_version) = (key.partition.tenant.clone(), approval.expires_at, row_version.number);
        let (thread, tool, asked_at) = (approval.thread, approval.tool, approval.asked_at);
        let entry = Entry { tenant, thread, expires, row_version, tool, asked_at };
        self.pending.lock().insert(approval.id, entry, now);
        Some(approval.id)
    }
}

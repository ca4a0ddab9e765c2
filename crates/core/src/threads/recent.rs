//! The threads of a tenant by their last activity, newest first.
//!
//! In: the thread rows of the store and the activity of this node. Out: the next threads after a position. No index orders threads by
//! activity, so every page reads all threads of the tenant; it holds only as many as it returns.

use std::{cmp::Reverse, collections::HashSet};

use super::{
    ThreadInfo, ThreadStore,
    record::{merge_activity, read},
    store::{IDLE_SCAN_PAGE_SIZE, thread_info},
};
use toolhub_storage::backend::{Scan, Scope, StoreError, Table};
use toolhub_types::{
    ids::{Tenant, ThreadId, ThreadKey},
    timestamp::Timestamp,
};

/// The place of a thread in the list: its last activity, then its id.
pub type ThreadPosition = (Timestamp, ThreadId);

/// The threads found so far; never many more than the limit.
struct Newest {
    after: Option<ThreadPosition>,
    limit: usize,
    threads: Vec<ThreadInfo>,
}

impl ThreadStore {
    /// The threads of a tenant that match, the most recently active ones first: at most `limit`, those after `after`.
    pub(crate) async fn most_recent(
        &self,
        tenant: &Tenant,
        after: Option<ThreadPosition>,
        limit: usize,
        matches: impl Fn(&ThreadInfo) -> bool,
    ) -> Result<Vec<ThreadInfo>, StoreError> {
        let mut newest = Newest { after, limit, threads: Vec::new() };
        // Read before the store, so that a thread which is stored meanwhile is in one of both.
        let mut unstored: HashSet<ThreadKey> = self.activity.unstored(tenant, None, usize::MAX).into_iter().collect();
        let mut scan = Scan::new(Table::Threads, Scope::Tenant(tenant.clone())).limit(IDLE_SCAN_PAGE_SIZE);
        loop {
            let page = self.store.scan(scan.clone(), self.clock.now()).await?;
            for (key, row) in &page.rows {
                let Some(thread) = key.partition.thread() else { continue };
                let owner = ThreadKey::new(tenant, thread);
                unstored.remove(&owner);
                let entry = self.activity.get(&owner);
                let record = merge_activity(Some(read(&key.id, row)), entry.as_ref());
                let info = record.map(|record| thread_info(owner.thread, record));
                newest.extend(info.filter(&matches));
            }
            let Some(next) = page.next else { break };
            scan.after = Some(next);
            tokio::task::yield_now().await;
        }
        for owner in unstored {
            let record = merge_activity(None, self.activity.get(&owner).as_ref());
            let info = record.map(|record| thread_info(owner.thread, record));
            newest.extend(info.filter(&matches));
        }
        Ok(newest.into_sorted())
    }
}

impl Newest {
    fn extend(&mut self, thread: Option<ThreadInfo>) {
        let is_after = |thread: &ThreadInfo| {
            self.after.as_ref().is_none_or(|(at, id)| order(&thread.last_active, &thread.id) > order(at, id))
        };
        self.threads.extend(thread.filter(is_after));
        if self.threads.len() > 2 * self.limit {
            self.truncate();
        }
    }

    fn truncate(&mut self) {
        self.threads.sort_unstable_by(|a, b| order(&a.last_active, &a.id).cmp(&order(&b.last_active, &b.id)));
        self.threads.truncate(self.limit);
    }

    fn into_sorted(mut self) -> Vec<ThreadInfo> {
        self.truncate();
        self.threads
    }
}

fn order<'a>(last_active: &Timestamp, id: &'a ThreadId) -> (Reverse<Timestamp>, &'a ThreadId) {
    (Reverse(*last_active), id)
}

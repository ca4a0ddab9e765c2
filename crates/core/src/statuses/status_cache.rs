//! In-memory cache of status records, by tool and thread.
//!
//! In: records with their row versions, from writes and reloads. Out: the newest version of each, the last emitted
//! status, and the time of the next recheck. Does not read the store.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use toolhub_storage::backend::{Partition, PartitionKind, RowKey, RowVersion, Table};
use toolhub_storage::sharded::Sharded;
use toolhub_types::{
    ids::{Tenant, ThreadId, ThreadKey},
    status::{StatusRecord, ToolStatus},
    timestamp::Timestamp,
    tool::ToolName,
};

/// The key of a record: a tool, and the thread for a thread's own record.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct StatusKey {
    tool: ToolName,
    thread: Option<ThreadKey>,
}

impl StatusKey {
    /// The record all threads share.
    pub(crate) fn shared(tool: &ToolName) -> Self {
        Self { tool: tool.clone(), thread: None }
    }

    /// The record of one thread.
    pub(crate) fn thread(tool: &ToolName, tenant: &Tenant, thread: &ThreadId) -> Self {
        Self { tool: tool.clone(), thread: Some(ThreadKey::new(tenant, thread)) }
    }

    pub(crate) fn tool(&self) -> &ToolName {
        &self.tool
    }

    pub(crate) fn owner(&self) -> Option<&ThreadKey> {
        self.thread.as_ref()
    }

    /// The row key of the record.
    pub(crate) fn key(&self) -> RowKey {
        let partition = match &self.thread {
            Some(ThreadKey { tenant, thread }) => Partition::for_thread(tenant.clone(), thread.clone()),
            None => Partition { tenant: Tenant::default(), kind: PartitionKind::Tool(self.tool.clone()) },
        };
        RowKey { partition, table: Table::Statuses, id: self.tool.clone().into() }
    }

    /// The key of the record in this row; `None` if the row id is not a tool name.
    pub(crate) fn from_key(key: &RowKey) -> Option<Self> {
        let tool = ToolName::new(key.id.clone()).ok()?;
        let thread = key.partition.thread().map(|thread| ThreadKey::new(&key.partition.tenant, thread));
        Some(Self { tool, thread })
    }
}

/// The cached records. A tool that never failed has none.
#[derive(Default)]
pub(crate) struct StatusCache {
    records: Sharded<HashMap<StatusKey, Record>>,
    /// Number of records. Every call reads it, without a lock.
    len: AtomicUsize,
    /// The tools with a shared record, and those with one of each thread. Changed while the shard of the record is locked.
    tools_by_owner: Mutex<HashMap<Option<ThreadKey>, Arc<BTreeSet<ToolName>>>>,
    /// The number of changes of records so far.
    changes: AtomicU64,
}

/// A point in the order of the cache's changes, from before a request to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CacheTime(u64);

struct Record {
    facts: Arc<StatusRecord>,
    row_version: Option<RowVersion>,
    /// The number of its last change.
    changed_at: u64,
    /// The status emitted last.
    last_emitted: ToolStatus,
    /// When the status changes with time and must be rechecked, by a timer or by the first read of the record.
    recheck_at: Option<Timestamp>,
}

impl Record {
    fn is_newer(&self, than: Option<RowVersion>, requested: CacheTime) -> bool {
        let number = self.row_version.map_or(0, |version| version.number);
        self.changed_at > requested.0 && number > than.map_or(0, |version| version.number)
    }
}

impl StatusCache {
    pub(crate) fn is_empty(&self) -> bool {
        self.len.load(Ordering::Acquire) == 0
    }

    pub(crate) fn get(&self, key: &StatusKey) -> Option<(Arc<StatusRecord>, Option<RowVersion>)> {
        if self.is_empty() {
            return None;
        }
        let records = self.records.shard(key);
        records.get(key).map(|record| (record.facts.clone(), record.row_version))
    }

    /// The record, and its recheck time if the recheck is due. It is also due if the clock was set back, which ends the
    /// cool-down.
    pub(crate) fn get_with_recheck(
        &self,
        key: &StatusKey,
        now: Timestamp,
    ) -> Option<(Arc<StatusRecord>, Option<Timestamp>)> {
        if self.is_empty() {
            return None;
        }
        let records = self.records.shard(key);
        let record = records.get(key)?;
        let due = record.recheck_at.filter(|at| *at <= now || record.facts.breaker.is_in_future(now));
        Some((record.facts.clone(), due))
    }

    /// The tools that have a shared record, and those that have one of this thread.
    pub(crate) fn recorded_tools(&self, owner: ThreadKey) -> [Arc<BTreeSet<ToolName>>; 2] {
        let tools = self.lock_tools();
        [None, Some(owner)].map(|owner| tools.get(&owner).cloned().unwrap_or_default())
    }

    fn lock_tools(&self) -> MutexGuard<'_, HashMap<Option<ThreadKey>, Arc<BTreeSet<ToolName>>>> {
        self.tools_by_owner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The keys of all records.
    pub(crate) fn keys(&self) -> Vec<StatusKey> {
        self.records.shards().flat_map(|shard| shard.keys().cloned().collect::<Vec<_>>()).collect()
    }

    /// The number of a tenant's threads in which each tool is not available; tools without such a thread are absent.
    pub(crate) fn withheld_threads(&self, tenant: &Tenant) -> HashMap<ToolName, usize> {
        let mut counts = HashMap::new();
        if self.is_empty() {
            return counts;
        }
        for shard in self.records.shards() {
            let withheld = shard.iter().filter(|(key, record)| {
                record.last_emitted != ToolStatus::Available
                    && key.thread.as_ref().is_some_and(|thread| thread.tenant == *tenant)
            });
            withheld.for_each(|(key, _)| *counts.entry(key.tool.clone()).or_default() += 1);
        }
        counts
    }

    /// The threads of a tenant in which a tool is not available, sorted by id; at most `limit`.
    pub(crate) fn threads_withholding(&self, tool: &ToolName, tenant: &Tenant, limit: usize) -> Vec<ThreadId> {
        if self.is_empty() {
            return Vec::new();
        }
        let mut threads = BTreeSet::new();
        for shard in self.records.shards() {
            let withheld =
                shard.iter().filter(|(key, record)| key.tool == *tool && record.last_emitted != ToolStatus::Available);
            let owners = withheld.filter_map(|(key, _)| key.thread.as_ref().filter(|owner| owner.tenant == *tenant));
            threads.extend(owners.map(|owner| owner.thread.clone()));
            while threads.len() > limit {
                threads.pop_last();
            }
        }
        threads.into_iter().collect()
    }

    /// The time before a request to the store, whose result is put afterwards.
    pub(crate) fn time(&self) -> CacheTime {
        CacheTime(self.changes.load(Ordering::Acquire))
    }

    /// Inserts a record that a request to the store has returned, unless the cached one is newer.
    pub(crate) fn put(&self, key: StatusKey, facts: Arc<StatusRecord>, row_version: RowVersion, requested: CacheTime) {
        let mut records = self.records.shard(&key);
        let record = self.entry(&mut records, key, &facts);
        // A row that was removed and recreated starts with version 1: then its number is lower, and it was read after the cached
        // record was put.
        let is_newer = record.row_version.is_none_or(|cached| {
            cached.number < row_version.number || (cached != row_version && record.changed_at <= requested.0)
        });
        if is_newer {
            (record.facts, record.row_version) = (facts, Some(row_version));
            record.changed_at = self.changes.fetch_add(1, Ordering::AcqRel) + 1;
        }
    }

    /// Puts a record that counts on this node only. The version stays that of the last record that was read.
    pub(crate) fn put_local(&self, key: StatusKey, facts: Arc<StatusRecord>) {
        let mut records = self.records.shard(&key);
        let record = self.entry(&mut records, key, &facts);
        record.facts = facts;
        record.changed_at = self.changes.fetch_add(1, Ordering::AcqRel) + 1;
    }

    /// Whether a newer version than this one was put after a request to the store.
    pub(crate) fn is_newer(&self, key: &StatusKey, than: Option<RowVersion>, requested: CacheTime) -> bool {
        self.records.shard(key).get(key).is_some_and(|record| record.is_newer(than, requested))
    }

    /// Replaces a record that counted on this node only by the stored one, unless a newer one was put after the request.
    pub(crate) fn replace_local(
        &self,
        key: &StatusKey,
        facts: Arc<StatusRecord>,
        row_version: Option<RowVersion>,
        requested: CacheTime,
    ) {
        let mut records = self.records.shard(key);
        if let Some(record) = records.get_mut(key).filter(|record| !record.is_newer(row_version, requested)) {
            (record.facts, record.row_version) = (facts, row_version);
            record.changed_at = self.changes.fetch_add(1, Ordering::AcqRel) + 1;
        }
    }

    /// The record, which is counted if it is new.
    fn entry<'a>(
        &self,
        records: &'a mut HashMap<StatusKey, Record>,
        key: StatusKey,
        facts: &Arc<StatusRecord>,
    ) -> &'a mut Record {
        let StatusKey { tool, thread } = key.clone();
        records.entry(key).or_insert_with(|| {
            self.len.fetch_add(1, Ordering::Release);
            Arc::make_mut(self.lock_tools().entry(thread).or_default()).insert(tool);
            let (row_version, last_emitted) = (None, ToolStatus::Available);
            Record { facts: facts.clone(), row_version, changed_at: 0, last_emitted, recheck_at: None }
        })
    }

    /// The keys of the records that have not changed since this time.
    pub(crate) fn unchanged_since(&self, time: CacheTime) -> Vec<StatusKey> {
        let unchanged = self.records.shards().flat_map(|shard| {
            let records = shard.iter().filter(|(_, record)| record.changed_at <= time.0);
            records.map(|(key, _)| key.clone()).collect::<Vec<_>>()
        });
        unchanged.collect()
    }

    /// Removes the record of a deleted thread. Its row is deleted too, so a later one starts with version 1.
    pub(crate) fn forget(&self, key: &StatusKey) {
        self.remove_if(key, |_| true);
    }

    /// Removes a record because a request to the store has found no row, unless it was put since that request: then the answer is older.
    pub(crate) fn forget_unchanged(&self, key: &StatusKey, requested: CacheTime) -> bool {
        self.remove_if(key, |record| record.changed_at <= requested.0)
    }

    /// Removes a record that meets the condition; returns whether there is none any more.
    fn remove_if(&self, key: &StatusKey, condition: impl FnOnce(&Record) -> bool) -> bool {
        let mut records = self.records.shard(key);
        match records.get(key) {
            None => return true,
            Some(record) if !condition(record) => return false,
            Some(_) => records.remove(key),
        };
        self.len.fetch_sub(1, Ordering::Release);
        let mut tools_by_owner = self.lock_tools();
        if let Some(tools) = tools_by_owner.get_mut(&key.thread) {
            let tools = Arc::make_mut(tools);
            tools.remove(&key.tool);
            if tools.is_empty() {
                tools_by_owner.remove(&key.thread);
            }
        }
        true
    }

    /// Sets the recheck time; returns whether it changed.
    pub(crate) fn schedule_recheck(&self, key: &StatusKey, at: Timestamp) -> bool {
        let mut records = self.records.shard(key);
        records.get_mut(key).is_some_and(|record| record.recheck_at.replace(at) != Some(at))
    }

    /// Claims the recheck that was scheduled for this time. Exactly one caller gets it; none does if another time was
    /// scheduled meanwhile.
    pub(crate) fn take_recheck(&self, key: &StatusKey, at: Timestamp) -> bool {
        let mut records = self.records.shard(key);
        records.get_mut(key).is_some_and(|record| record.recheck_at.take_if(|scheduled| *scheduled == at).is_some())
    }

    /// Records the status that is emitted now; returns the previous one if it differs.
    pub(crate) fn set_emitted(&self, key: &StatusKey, status: ToolStatus) -> Option<ToolStatus> {
        let mut records = self.records.shard(key);
        let record = records.get_mut(key)?;
        let before = std::mem::replace(&mut record.last_emitted, status);
        (before != status).then_some(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(number: u64, stamp: u64) -> RowVersion {
        RowVersion { number, stamp }
    }

    #[test]
    fn a_row_that_was_recreated_replaces_the_cached_one_and_a_late_answer_does_not() {
        let (cache, key) = (StatusCache::default(), StatusKey::shared(&ToolName::new("look").unwrap()));
        let cached = || cache.get(&key).and_then(|(_, version)| version).unwrap();
        let early = cache.time();
        cache.put(key.clone(), Arc::default(), version(7, 70), cache.time());
        cache.put(key.clone(), Arc::default(), version(6, 60), early);
        assert_eq!(cached(), version(7, 70), "version 6 was read before");
        cache.put(key.clone(), Arc::default(), version(1, 80), cache.time());
        assert_eq!(cached(), version(1, 80), "it was read after, so the row was recreated");
        cache.put(key.clone(), Arc::default(), version(2, 90), early);
        assert_eq!(cached(), version(2, 90));
        assert_eq!(cache.unchanged_since(early), []);
        assert_eq!(cache.unchanged_since(cache.time()), std::slice::from_ref(&key));
    }

    #[test]
    fn a_local_record_is_not_replaced_by_what_was_read_before_a_newer_one() {
        let (cache, key) = (StatusCache::default(), StatusKey::shared(&ToolName::new("look").unwrap()));
        cache.put_local(key.clone(), Arc::default());
        let early = cache.time();
        cache.put(key.clone(), Arc::default(), version(2, 20), cache.time());
        assert!(cache.is_newer(&key, Some(version(1, 10)), early) && cache.is_newer(&key, None, early));
        cache.replace_local(&key, Arc::default(), Some(version(1, 10)), early);
        assert_eq!(cache.get(&key).unwrap().1, Some(version(2, 20)));
        cache.replace_local(&key, Arc::default(), Some(version(1, 30)), cache.time());
        assert_eq!(cache.get(&key).unwrap().1, Some(version(1, 30)), "the row was recreated");
    }

    #[test]
    fn a_late_answer_that_there_is_no_row_does_not_remove_a_record_that_was_put_meanwhile() {
        let (cache, key) = (StatusCache::default(), StatusKey::shared(&ToolName::new("look").unwrap()));
        let early = cache.time();
        cache.put(key.clone(), Arc::default(), version(1, 10), cache.time());
        assert!(!cache.forget_unchanged(&key, early));
        assert!(cache.get(&key).is_some());
        assert!(cache.forget_unchanged(&key, cache.time()) && cache.is_empty());
        assert!(cache.forget_unchanged(&key, early), "there is none");
    }
}

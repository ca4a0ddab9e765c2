//! The records this node knows, by whose they are.

use std::collections::HashMap;

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use crate::sharded::Sharded;
use toolhub_storage::backend::{Partition, PartitionKind, RowKey, RowVersion, Table};
use toolhub_types::{
    ids::{Tenant, ThreadId, ThreadKey},
    status::{StatusRecord, ToolStatus},
    timestamp::Timestamp,
    tool::ToolName,
};

/// Whose record it is.
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

    /// Where the record lies in the store.
    pub(crate) fn key(&self) -> RowKey {
        let partition = match &self.thread {
            Some(ThreadKey { tenant, thread }) => Partition::for_thread(tenant.clone(), thread.clone()),
            None => Partition { tenant: Tenant::default(), kind: PartitionKind::Tool(self.tool.clone()) },
        };
        RowKey { partition, table: Table::Statuses, id: self.tool.clone().into() }
    }

    /// Whose record lies there.
    pub(crate) fn from_key(key: &RowKey) -> Option<Self> {
        let tool = ToolName::new(key.id.clone()).ok()?;
        let thread = key.partition.thread().map(|thread| ThreadKey::new(&key.partition.tenant, thread));
        Some(Self { tool, thread })
    }
}

/// The records this node knows. A tool that never made trouble is not among them.
#[derive(Default)]
pub(crate) struct StatusCache {
    records: Sharded<HashMap<StatusKey, Record>>,
    /// How many there are. Read on the way of every call, without a lock.
    len: AtomicUsize,
}

struct Record {
    facts: Arc<StatusRecord>,
    row_version: Option<RowVersion>,
    /// The word listeners were told last.
    last_emitted: ToolStatus,
    /// When the word changes by itself and somebody must look again: a timer, or whoever reads the record first.
    recheck_at: Option<Timestamp>,
}

impl StatusCache {
    pub(crate) fn is_empty(&self) -> bool {
        self.len.load(Ordering::Acquire) == 0
    }

    pub(crate) fn get(&self, whose: &StatusKey) -> Option<(Arc<StatusRecord>, Option<RowVersion>)> {
        if self.is_empty() {
            return None;
        }
        let records = self.records.shard(whose);
        records.get(whose).map(|record| (record.facts.clone(), record.row_version))
    }

    /// The record, and the moment at which somebody was to look again, if it has come and nobody has. It need not be waited
    /// for where a clock that was set back has ended the wait.
    pub(crate) fn get_with_recheck(
        &self,
        whose: &StatusKey,
        now: Timestamp,
    ) -> Option<(Arc<StatusRecord>, Option<Timestamp>)> {
        if self.is_empty() {
            return None;
        }
        let records = self.records.shard(whose);
        let record = records.get(whose)?;
        let due = record.recheck_at.filter(|at| *at <= now || record.facts.breaker.is_in_future(now));
        Some((record.facts.clone(), due))
    }

    /// Whose records there are.
    pub(crate) fn keys(&self) -> Vec<StatusKey> {
        self.records.shards().flat_map(|part| part.keys().cloned().collect::<Vec<_>>()).collect()
    }

    /// Takes in a record, unless a newer one is known.
    pub(crate) fn put(&self, whose: StatusKey, facts: Arc<StatusRecord>, seen: RowVersion) {
        let mut records = self.records.shard(&whose);
        let record = records.entry(whose).or_insert_with(|| {
            self.len.fetch_add(1, Ordering::Release);
            Record { facts: facts.clone(), row_version: None, last_emitted: ToolStatus::Available, recheck_at: None }
        });
        // A row goes only with its thread, and then the record is forgotten: versions only grow.
        if record.row_version.is_none_or(|known| known.number < seen.number) {
            (record.facts, record.row_version) = (facts, Some(seen));
        }
    }

    /// Forgets the record of a thread that is gone. Its row is gone too: one that is made later begins anew.
    pub(crate) fn forget(&self, whose: &StatusKey) {
        if self.records.shard(whose).remove(whose).is_some() {
            self.len.fetch_sub(1, Ordering::Release);
        }
    }

    /// Notes that somebody looks again then; says whether that is new.
    pub(crate) fn schedule_recheck(&self, whose: &StatusKey, at: Timestamp) -> bool {
        let mut records = self.records.shard(whose);
        records.get_mut(whose).is_some_and(|record| record.recheck_at.replace(at) != Some(at))
    }

    /// Takes the task to look that was set for this moment. Of all who come for it one gets it; nobody does if another
    /// moment was set meanwhile.
    pub(crate) fn take_recheck(&self, whose: &StatusKey, at: Timestamp) -> bool {
        let mut records = self.records.shard(whose);
        records.get_mut(whose).is_some_and(|record| record.recheck_at.take_if(|set| *set == at).is_some())
    }

    /// Notes the word that listeners are told now; answers the one they were told before, if it is another.
    pub(crate) fn set_emitted(&self, whose: &StatusKey, status: ToolStatus) -> Option<ToolStatus> {
        let mut records = self.records.shard(whose);
        let record = records.get_mut(whose)?;
        let before = std::mem::replace(&mut record.last_emitted, status);
        (before != status).then_some(before)
    }
}

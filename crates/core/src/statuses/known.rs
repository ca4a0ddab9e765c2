//! The records this node knows, by whose they are.

use std::collections::HashMap;

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use crate::sharded::Sharded;
use toolhub_storage::backend::{Key, Partition, Place, Seen, Table};
use toolhub_types::{
    ids::{Tenant, ThreadId, ThreadKey},
    status::{Facts, ToolStatus},
    timestamp::Timestamp,
    tool::ToolName,
};

/// Whose record it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Whose {
    tool: ToolName,
    thread: Option<ThreadKey>,
}

impl Whose {
    /// The record all threads share.
    pub(crate) fn everybody(tool: &ToolName) -> Self {
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
    pub(crate) fn key(&self) -> Key {
        let partition = match &self.thread {
            Some(ThreadKey { tenant, thread }) => Partition::of_thread(tenant.clone(), thread.clone()),
            None => Partition { tenant: Tenant::default(), place: Place::Tool(self.tool.clone()) },
        };
        Key { partition, table: Table::Statuses, id: self.tool.clone().into() }
    }

    /// Whose record lies there.
    pub(crate) fn of(key: &Key) -> Option<Self> {
        let tool = ToolName::new(key.id.clone()).ok()?;
        let thread = key.partition.thread().map(|thread| ThreadKey::new(&key.partition.tenant, thread));
        Some(Self { tool, thread })
    }
}

/// The records this node knows. A tool that never made trouble is not among them.
#[derive(Default)]
pub(crate) struct Known {
    records: Sharded<HashMap<Whose, Record>>,
    /// How many there are. Read on the way of every call, without a lock.
    many: AtomicUsize,
}

struct Record {
    facts: Arc<Facts>,
    seen: Option<Seen>,
    /// The word listeners were told last.
    told: ToolStatus,
    /// When the word changes by itself and somebody must look again: a timer, or whoever reads the record first.
    next_look: Option<Timestamp>,
}

impl Known {
    pub(crate) fn is_empty(&self) -> bool {
        self.many.load(Ordering::Acquire) == 0
    }

    pub(crate) fn get(&self, whose: &Whose) -> Option<(Arc<Facts>, Option<Seen>)> {
        if self.is_empty() {
            return None;
        }
        let records = self.records.part(whose);
        records.get(whose).map(|record| (record.facts.clone(), record.seen))
    }

    /// The record, and the moment at which somebody was to look again, if it has come and nobody has. It need not be waited
    /// for where a clock that was set back has ended the wait.
    pub(crate) fn look(&self, whose: &Whose, now: Timestamp) -> Option<(Arc<Facts>, Option<Timestamp>)> {
        if self.is_empty() {
            return None;
        }
        let records = self.records.part(whose);
        let record = records.get(whose)?;
        let due = record.next_look.filter(|at| *at <= now || record.facts.breaker.is_ahead(now));
        Some((record.facts.clone(), due))
    }

    /// Whose records there are.
    pub(crate) fn all(&self) -> Vec<Whose> {
        self.records.parts().flat_map(|part| part.keys().cloned().collect::<Vec<_>>()).collect()
    }

    /// Takes in a record, unless a newer one is known.
    pub(crate) fn put(&self, whose: Whose, facts: Arc<Facts>, seen: Seen) {
        let mut records = self.records.part(&whose);
        let record = records.entry(whose).or_insert_with(|| {
            self.many.fetch_add(1, Ordering::Release);
            Record { facts: facts.clone(), seen: None, told: ToolStatus::Available, next_look: None }
        });
        // A row goes only with its thread, and then the record is forgotten: versions only grow.
        if record.seen.is_none_or(|known| known.version < seen.version) {
            (record.facts, record.seen) = (facts, Some(seen));
        }
    }

    /// Forgets the record of a thread that is gone. Its row is gone too: one that is made later begins anew.
    pub(crate) fn forget(&self, whose: &Whose) {
        if self.records.part(whose).remove(whose).is_some() {
            self.many.fetch_sub(1, Ordering::Release);
        }
    }

    /// Notes that somebody looks again then; says whether that is new.
    pub(crate) fn schedule(&self, whose: &Whose, at: Timestamp) -> bool {
        let mut records = self.records.part(whose);
        records.get_mut(whose).is_some_and(|record| record.next_look.replace(at) != Some(at))
    }

    /// Takes the task to look that was set for this moment. Of all who come for it one gets it; nobody does if another
    /// moment was set meanwhile.
    pub(crate) fn take_look(&self, whose: &Whose, at: Timestamp) -> bool {
        let mut records = self.records.part(whose);
        records.get_mut(whose).is_some_and(|record| record.next_look.take_if(|set| *set == at).is_some())
    }

    /// Notes the word that listeners are told now; answers the one they were told before, if it is another.
    pub(crate) fn tell(&self, whose: &Whose, status: ToolStatus) -> Option<ToolStatus> {
        let mut records = self.records.part(whose);
        let record = records.get_mut(whose)?;
        let before = std::mem::replace(&mut record.told, status);
        (before != status).then_some(before)
    }
}

//! Questions to the journal: which calls were made, the newest first.
//!
//! In: whose calls, which of them, and where the page before ended. Out: a page. Call ids grow with time, so bounds of
//! time are bounds of ids, and an id is all a cursor needs. A page costs no more than so many records looked at, however
//! rare what is asked for: then it is short, and says where to go on.

use std::{collections::BTreeMap, sync::Arc};

use schemars::JsonSchema;
use serde::Serialize;
use smol_str::SmolStr;

use super::{CallRecord, CallTracker, Journal, LAYOUT};
use toolhub_storage::backend::{Cursor, Partition, Row, RowKey, Scan, Scope, StoreError, Table, decode};
use toolhub_types::{
    ids::{CallId, Caller, Tenant, ThreadId},
    outcome::Status,
    timestamp::Timestamp,
    tool::ToolName,
};

/// The largest page.
const MAX_PAGE_SIZE: usize = 1_000;
/// How many records are looked at for one page.
const MAX_SCANNED_RECORDS: usize = 2_000;
/// How many are read at once.
const SCAN_BATCH_SIZE: usize = 200;

/// Which calls are wanted; all of them where nothing is said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallQuery {
    /// Only calls of this tool.
    pub tool: Option<ToolName>,
    /// Only calls in this thread.
    pub thread: Option<ThreadId>,
    /// Only calls with this status.
    pub status: Option<Status>,
    /// Only calls of this caller.
    pub caller: Option<Caller>,
    /// Only calls that arrived at this moment or later.
    pub from: Option<Timestamp>,
    /// Only calls that arrived before this moment.
    pub until: Option<Timestamp>,
    /// At most this many on a page, from 1 to 1,000; 100 where nothing is said. A page may hold fewer, even none, and
    /// still not be the last.
    pub limit: usize,
    /// The `next` of the page before.
    pub cursor: Option<String>,
}

impl Default for CallQuery {
    fn default() -> Self {
        Self { tool: None, thread: None, status: None, caller: None, from: None, until: None, limit: 100, cursor: None }
    }
}

/// Some calls, the newest first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct CallPage {
    /// The calls.
    pub calls: Vec<CallRecord>,
    /// Where to go on; `None` at the end. Good for as long as the journal is, also after a restart.
    pub next: Option<String>,
}

/// Why a question was not answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallQueryError {
    /// The text was not the `next` of any page.
    #[error("the cursor is not one of the journal's")]
    InvalidCursor,
    /// The store does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Journal {
    /// Which tools succeeded in the last so many calls, whosever they were, and when; the latest first.
    pub(crate) async fn last_successes(
        &self,
        calls: usize,
        now: Timestamp,
    ) -> Result<Vec<(ToolName, Timestamp)>, StoreError> {
        let scan = Scan { descending: true, ..Scan::new(Table::Calls, Scope::All).limit(calls) };
        let page = self.store.scan(scan, now).await?;
        let ended = page.rows.iter().filter_map(|(key, row)| {
            let read = decode::<CallRecord>(key.table, &key.id, LAYOUT, row).inspect_err(StoreError::log_skipped);
            let (record, _) = read.ok()?;
            let outcome = record.outcome.filter(|_| record.status == Status::Success)?;
            Some((record.tool, outcome.ended_at))
        });
        Ok(ended.collect())
    }

    /// A page of a tenant's calls; `here` are those that run on this node.
    pub(crate) async fn calls(
        &self,
        tenant: &Tenant,
        query: &CallQuery,
        here: &[Arc<CallTracker>],
        now: Timestamp,
    ) -> Result<CallPage, CallQueryError> {
        let cursor =
            query.cursor.as_ref().map(|text| text.parse::<CallId>().map_err(|_| CallQueryError::InvalidCursor));
        let until = query.until.map(CallId::first_at);
        let mut before = [cursor.transpose()?, until].into_iter().flatten().min();
        let oldest = query.from.map(CallId::first_at);
        let limit = query.limit.clamp(1, MAX_PAGE_SIZE);
        let (mut page, mut looked_at) = (CallPage::default(), 0);
        loop {
            let mut stretch = self.scan_segment(tenant, query, before, now).await?;
            stretch.add_live(query, here, before);
            for (id, found) in stretch.rows.into_iter().rev() {
                if oldest.is_some_and(|oldest| id < oldest) {
                    return Ok(page);
                }
                if page.calls.len() == limit || looked_at == MAX_SCANNED_RECORDS {
                    page.next = before.map(|last| last.to_string());
                    return Ok(page);
                }
                (before, looked_at) = (Some(id), looked_at + 1);
                match found.record(here) {
                    Ok(record) => page.calls.extend(record.filter(|record| query.matches(record))),
                    Err(error) => error.log_skipped(),
                }
            }
            match stretch.end {
                None => return Ok(page),
                // An id that is no call's own may stand here: the next stretch begins before it.
                Some(end) => before = Some(end),
            }
        }
    }

    /// The next calls before an id, of both tables together.
    async fn scan_segment(
        &self,
        tenant: &Tenant,
        query: &CallQuery,
        before: Option<CallId>,
        now: Timestamp,
    ) -> Result<ScanSegment, StoreError> {
        let mut stretch = ScanSegment { rows: BTreeMap::new(), end: None };
        // The open ones first: a call that is closed in between is then seen twice, and not missed.
        for table in [Table::OpenCalls, Table::Calls] {
            if query.status.is_some_and(|status| status.is_terminal() == (table == Table::OpenCalls)) {
                continue;
            }
            let scope = match &query.thread {
                Some(thread) => Scope::Partition(Partition::for_thread(tenant.clone(), thread.clone())),
                None => Scope::Tenant(tenant.clone()),
            };
            let after = before.map(|id| Cursor(cursor_before(tenant, table, id)));
            let scan = Scan { descending: true, after, ..Scan::new(table, scope).limit(query.scan_limit()) };
            let found = self.store.scan(scan, now).await?;
            // Of what lies before the last row of either table, the other has not told everything. That row itself may be
            // one that is passed over, because it is damaged.
            let last = |Cursor(key): &Cursor| key.id.parse::<CallId>().ok();
            let last_read = || found.rows.iter().rev().find_map(|(key, _)| key.id.parse::<CallId>().ok());
            stretch.end = stretch.end.max(found.next.as_ref().and_then(|next| last(next).or_else(last_read)));
            let ids = found
                .rows
                .into_iter()
                .filter_map(|(key, row)| Some((key.id.parse().ok()?, FoundCall::Row(table, key, row))));
            stretch.rows.extend(ids);
        }
        if let Some(end) = stretch.end {
            stretch.rows = stretch.rows.split_off(&end);
        }
        Ok(stretch)
    }
}

/// All calls of a tenant in a part of the journal.
struct ScanSegment {
    rows: BTreeMap<CallId, FoundCall>,
    /// Where it ends; `None` at the end of the journal.
    end: Option<CallId>,
}

/// A call that was found.
enum FoundCall {
    /// In the journal.
    Row(Table, RowKey, Row),
    /// On its way, and not in the journal yet.
    Live(Arc<CallTracker>),
}

impl ScanSegment {
    /// Adds the calls of this node that are not in the journal yet.
    fn add_live(&mut self, query: &CallQuery, here: &[Arc<CallTracker>], before: Option<CallId>) {
        if query.status.is_some_and(Status::is_terminal) {
            return;
        }
        for call in here {
            let in_reach =
                before.is_none_or(|before| call.head.id < before) && self.end.is_none_or(|end| call.head.id >= end);
            let wanted = query.thread.is_none() || query.thread == call.head.thread;
            if in_reach && wanted {
                self.rows.entry(call.head.id).or_insert_with(|| FoundCall::Live(call.clone()));
            }
        }
    }
}

impl FoundCall {
    fn record(self, here: &[Arc<CallTracker>]) -> Result<Option<CallRecord>, StoreError> {
        match self {
            Self::Live(call) => Ok(call.record()),
            Self::Row(table, key, row) => {
                let (record, _) = decode::<CallRecord>(table, &key.id, LAYOUT, &row)?;
                let open = if table == Table::OpenCalls { here } else { &[] };
                let call = open.iter().find(|call| call.head.id == record.id);
                Ok(Some(with_live_status(record, call.map(AsRef::as_ref))))
            }
        }
    }
}

/// A record of the journal as it is told, of a call that may be further by now.
pub(crate) fn with_live_status(mut record: CallRecord, here: Option<&CallTracker>) -> CallRecord {
    record.opening = None;
    if let (None, Some(here)) = (&record.outcome, here) {
        let (status, asked) = here.status();
        (record.status, record.approval) = (status, asked.or(record.approval));
        record.external_until = here.external_until();
    }
    record
}

/// A place in the order of a table right before a call, whatever the partition of the call is.
fn cursor_before(tenant: &Tenant, table: Table, id: CallId) -> RowKey {
    let partition = Partition::for_call(tenant.clone(), None, id);
    RowKey { partition, table, id: SmolStr::from(id.predecessor()) }
}

impl CallQuery {
    /// How many records are read at once: one more than the page holds, where every record is wanted.
    fn scan_limit(&self) -> usize {
        let all = self.tool.is_none() && self.caller.is_none() && self.status.is_none();
        if all { self.limit.clamp(1, SCAN_BATCH_SIZE - 1) + 1 } else { SCAN_BATCH_SIZE }
    }

    /// Whether a call is wanted, as far as its record tells.
    fn matches(&self, record: &CallRecord) -> bool {
        self.tool.as_ref().is_none_or(|tool| record.tool == *tool)
            && self.caller.as_ref().is_none_or(|caller| record.caller == *caller)
            && self.status.is_none_or(|status| record.status == status)
    }
}

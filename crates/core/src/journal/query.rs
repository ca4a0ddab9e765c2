//! Lists the calls of the journal, newest first, in pages.
//!
//! In: a tenant, a filter and a cursor. Out: a page. Call ids increase with time, so time bounds are id bounds, and the
//! cursor is a call id. Ended calls are found by the index terms of their rows, however rare they are; open ones are few and
//! are all looked at. A search by duration, or by several terms that few calls have together, may read more than it returns:
//! after a limited number of records or rows the page is short and has a next cursor.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use schemars::JsonSchema;
use serde::Serialize;
use smol_str::SmolStr;

use super::{
    CallRecord, CallTracker, Journal,
    record::{decode_call, decode_ended},
    terms,
};
use toolhub_storage::backend::{Cursor, Partition, Row, RowKey, Scan, Scope, StoreError, Table};
use toolhub_types::{
    error::ErrorKind,
    ids::{CallId, Caller, RunId, Tenant, ThreadId},
    json,
    outcome::Status,
    page_budget::{LIST_PAGE_BYTES, PageBudget},
    timestamp::Timestamp,
    tool::ToolName,
};

/// Maximum page size.
const MAX_PAGE_SIZE: usize = 1_000;
/// Maximum number of records scanned for one page.
const MAX_SCANNED_RECORDS: usize = 20_000;
/// Maximum number of rows that a store looks at for one page, if several conditions must hold together.
const MAX_SCANNED_ROWS: usize = 20_000;
/// Maximum number of ended calls read per scan.
const SCAN_BATCH_SIZE: usize = 200;
/// Maximum number of open calls read per scan. Most of them may not match.
const OPEN_BATCH_SIZE: usize = 2_000;

/// Selects calls; the default selects all.
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
    /// Only calls of this agent run.
    pub run: Option<RunId>,
    /// Only calls that ended with this error.
    pub code: Option<ErrorKind>,
    /// Only ended calls that took longer than this.
    pub slower_than: Option<Duration>,
    /// Only calls that arrived at this moment or later.
    pub from: Option<Timestamp>,
    /// Only calls that arrived before this moment.
    pub until: Option<Timestamp>,
    /// Page size, from 1 to 1,000; the default is 100. A page may hold fewer calls, even none, without being the last: it
    /// ends at 4 MiB of records.
    pub limit: usize,
    /// The `next` of the previous page.
    pub cursor: Option<String>,
}

impl Default for CallQuery {
    fn default() -> Self {
        Self {
            tool: None,
            thread: None,
            status: None,
            caller: None,
            run: None,
            code: None,
            slower_than: None,
            from: None,
            until: None,
            limit: 100,
            cursor: None,
        }
    }
}

/// A page of calls, newest first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct CallPage {
    /// The calls.
    pub calls: Vec<CallRecord>,
    /// The cursor of the next page; `None` on the last page. It stays valid after a restart.
    pub next: Option<String>,
}

/// Why a query failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallQueryError {
    /// The cursor was not returned by this query.
    #[error("the cursor is not valid; use the `next` of the previous page")]
    InvalidCursor,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Journal {
    /// Whether a call that has ended arrived until this moment.
    pub(crate) async fn has_calls_until(&self, at: Timestamp, now: Timestamp) -> Result<bool, StoreError> {
        let oldest = self.store.scan(Scan::new(Table::Calls, Scope::All).limit(1), now).await?;
        let after = CallId::first_at(at + Duration::from_millis(1));
        let arrived_before = |(key, _): &(RowKey, Row)| key.id.parse().is_ok_and(|id: CallId| id < after);
        Ok(oldest.rows.first().is_some_and(arrived_before))
    }

    /// The last success of a tool in all tenants.
    pub(crate) async fn last_success(&self, tool: &ToolName, now: Timestamp) -> Result<Option<Timestamp>, StoreError> {
        let (mut before, mut scanned) = (None, 0);
        loop {
            let (calls, next) = self.ended_calls(terms::success_of(tool), before, 1, now).await?;
            scanned += calls.len();
            let is_success = |record: &CallRecord| record.tool == *tool && record.status == Status::Success;
            let mut successes = calls.into_iter().filter(|(_, record)| is_success(record));
            let ended = successes.find_map(|(_, record)| record.outcome).map(|outcome| outcome.ended_at);
            if ended.is_some() || next.is_none() || scanned >= MAX_SCANNED_RECORDS {
                return Ok(ended);
            }
            before = next;
        }
    }

    /// Ended calls of all tenants before an id, newest first, and the id before which the next ones are, if there are more. While
    /// the index is incomplete they may include calls without the term, so the caller checks each.
    pub(super) async fn ended_calls(
        &self,
        term: SmolStr,
        before: Option<CallId>,
        limit: usize,
        now: Timestamp,
    ) -> Result<(Vec<(CallId, CallRecord)>, Option<CallId>), StoreError> {
        let (terms, end) = self.index.terms_before(vec![term], before);
        let limit = if terms.is_empty() { limit.max(SCAN_BATCH_SIZE) } else { limit };
        let after = before.map(|id| Cursor(cursor_before(&Tenant::default(), Table::Calls, id)));
        let scan = Scan::new(Table::Calls, Scope::All).limit(limit).max_bytes(LIST_PAGE_BYTES);
        let scan = Scan { descending: true, after, terms, ..scan };
        let page = self.store.scan(scan, now).await?;
        let read = |(key, row): &(RowKey, Row)| {
            let record: CallRecord = decode_ended(&key.id, row).inspect_err(StoreError::log_skipped).ok()?;
            Some((record.id, record)).filter(|(id, _)| end.is_none_or(|end| *id >= end))
        };
        let next = page.next.as_ref().and_then(|Cursor(key)| key.id.parse().ok());
        Ok((page.rows.iter().filter_map(read).collect(), next.max(end)))
    }

    /// A page of a tenant's calls; `live` are those that run on this node.
    pub(crate) async fn calls(
        &self,
        tenant: &Tenant,
        query: &CallQuery,
        live: &[Arc<CallTracker>],
        now: Timestamp,
    ) -> Result<CallPage, CallQueryError> {
        let cursor =
            query.cursor.as_ref().map(|text| text.parse::<CallId>().map_err(|_| CallQueryError::InvalidCursor));
        let until = query.until.map(CallId::first_at);
        let mut before = [cursor.transpose()?, until].into_iter().flatten().min();
        let oldest = query.from.map(CallId::first_at);
        let limit = query.limit.clamp(1, MAX_PAGE_SIZE);
        // Asked before the journal is read: a call that is opened meanwhile is found there, and one that is not has ended, perhaps because
        // another node took this one for dead.
        let unjournaled: Vec<_> = live.iter().filter(|call| !call.is_in_journal()).cloned().collect();
        let (mut page, mut scanned, mut budget) = (CallPage::default(), 0, PageBudget::default());
        loop {
            let mut segment = self.scan_segment(tenant, query, before, now).await?;
            segment.add_live(query, &unjournaled, before);
            for (id, found) in segment.rows.into_iter().rev() {
                if oldest.is_some_and(|oldest| id < oldest) {
                    return Ok(page);
                }
                if page.calls.len() == limit || scanned == MAX_SCANNED_RECORDS || budget.is_spent() {
                    page.next = before.map(|last| last.to_string());
                    return Ok(page);
                }
                (before, scanned) = (Some(id), scanned + 1);
                match found.record(live) {
                    Ok(record) => {
                        if let Some(record) = record.filter(|record| query.matches(record)) {
                            found.spend(&record, &mut budget);
                            page.calls.push(record);
                        }
                    }
                    Err(error) => error.log_skipped(),
                }
            }
            match segment.end {
                None => return Ok(page),
                Some(end) if segment.is_cut_short => {
                    page.next = Some(end.to_string());
                    return Ok(page);
                }
                // This id may not belong to a call; the next segment starts before it.
                Some(end) => before = Some(end),
            }
        }
    }

    /// The next calls before an id, merged from both tables.
    async fn scan_segment(
        &self,
        tenant: &Tenant,
        query: &CallQuery,
        before: Option<CallId>,
        now: Timestamp,
    ) -> Result<ScanSegment, StoreError> {
        let mut segment = ScanSegment { rows: BTreeMap::new(), end: None, is_cut_short: false };
        // Scan the open calls first: a call that is closed in between is then found twice, but not missed.
        for table in [Table::OpenCalls, Table::Calls] {
            let is_open = table == Table::OpenCalls;
            if !query.may_match(is_open) {
                continue;
            }
            let scope = match &query.thread {
                Some(thread) => Scope::Partition(Partition::for_thread(tenant.clone(), thread.clone())),
                None => Scope::Tenant(tenant.clone()),
            };
            let after = before.map(|id| Cursor(cursor_before(tenant, table, id)));
            let terms = if is_open { Vec::new() } else { terms::of_query(query) };
            let is_filtered = !terms.is_empty();
            let (terms, indexed_end) = self.index.terms_before(terms, before);
            let conditions = terms.len() + usize::from(query.thread.is_some());
            let read_limit = if terms.is_empty() || conditions < 2 { usize::MAX } else { MAX_SCANNED_ROWS };
            let limit = if is_filtered && terms.is_empty() { SCAN_BATCH_SIZE } else { query.scan_limit(is_open) };
            let scan = Scan::new(table, scope).limit(limit).max_bytes(LIST_PAGE_BYTES);
            let scan = Scan { descending: true, after, terms, read_limit, ..scan };
            let found = self.store.scan(scan, now).await?;
            segment.is_cut_short |= found.next.is_some() && found.rows.len() < limit;
            segment.end = segment.end.max(indexed_end);
            // The segment ends at the newer of the two tables' last rows: beyond it one table was not scanned. The last
            // row may be damaged and skipped.
            let last = |Cursor(key): &Cursor| key.id.parse::<CallId>().ok();
            let last_read = || found.rows.iter().rev().find_map(|(key, _)| key.id.parse::<CallId>().ok());
            segment.end = segment.end.max(found.next.as_ref().and_then(|next| last(next).or_else(last_read)));
            let ids = found
                .rows
                .into_iter()
                .filter_map(|(key, row)| Some((key.id.parse().ok()?, FoundCall::Row(table, key, row))));
            segment.rows.extend(ids);
        }
        if let Some(end) = segment.end {
            segment.rows = segment.rows.split_off(&end);
        }
        Ok(segment)
    }
}

/// All calls of a tenant in a range of the journal.
struct ScanSegment {
    rows: BTreeMap<CallId, FoundCall>,
    /// The oldest id the segment covers; `None` at the end of the journal.
    end: Option<CallId>,
    /// Whether the store has ended the scan early, by its rows or their size.
    is_cut_short: bool,
}

/// A call that was found.
enum FoundCall {
    /// A row of the journal.
    Row(Table, RowKey, Row),
    /// A running call that is not in the journal yet.
    Live(Arc<CallTracker>),
}

impl ScanSegment {
    /// Adds calls of this node that were not in the journal.
    fn add_live(&mut self, query: &CallQuery, live: &[Arc<CallTracker>], before: Option<CallId>) {
        if !query.may_match(true) {
            return;
        }
        for call in live {
            let in_segment =
                before.is_none_or(|before| call.head.id < before) && self.end.is_none_or(|end| call.head.id >= end);
            let in_thread = query.thread.is_none() || query.thread == call.head.thread;
            if in_segment && in_thread {
                self.rows.entry(call.head.id).or_insert_with(|| FoundCall::Live(call.clone()));
            }
        }
    }
}

impl FoundCall {
    /// Counts its record on the page.
    fn spend(&self, record: &CallRecord, budget: &mut PageBudget) {
        match self {
            Self::Row(_, _, row) => budget.spend(&row.value),
            Self::Live(_) => budget.spend_memory(json::estimated_bytes(&record.arguments)),
        }
    }

    fn record(&self, live: &[Arc<CallTracker>]) -> Result<Option<CallRecord>, StoreError> {
        match self {
            Self::Live(call) => Ok(call.record()),
            Self::Row(table, key, row) => {
                let record = decode_call(*table, &key.id, row)?;
                let open = if *table == Table::OpenCalls { live } else { &[] };
                let call = open.iter().find(|call| call.head.id == record.id);
                Ok(Some(with_live_status(record, call.map(AsRef::as_ref))))
            }
        }
    }
}

/// A record for the API, updated with the live status of the call if it runs on this node.
pub(crate) fn with_live_status(mut record: CallRecord, live: Option<&CallTracker>) -> CallRecord {
    record.opening = None;
    if let (None, Some(live)) = (&record.outcome, live) {
        let (status, approval) = live.status();
        (record.status, record.approval) = (status, approval.or(record.approval));
        record.external_until = live.external_until();
    }
    record
}

/// The position right before a call in the order of a table, independent of the call's partition.
fn cursor_before(tenant: &Tenant, table: Table, id: CallId) -> RowKey {
    let partition = Partition::for_call(tenant.clone(), None, id);
    RowKey { partition, table, id: SmolStr::from(id.predecessor()) }
}

impl CallQuery {
    /// Whether open calls, or ended ones, can match at all.
    fn may_match(&self, is_open: bool) -> bool {
        let wants_ended = self.code.is_some() || self.slower_than.is_some();
        self.status.is_none_or(|status| status.is_terminal() != is_open) && !(is_open && wants_ended)
    }

    /// Number of records read per scan: one more than the page size when every record matches.
    fn scan_limit(&self, is_open: bool) -> usize {
        let is_filtered = !terms::of_query(self).is_empty();
        match is_open {
            true if is_filtered => OPEN_BATCH_SIZE,
            false if self.slower_than.is_some() => SCAN_BATCH_SIZE,
            _ => self.limit.clamp(1, SCAN_BATCH_SIZE - 1) + 1,
        }
    }

    /// Whether a record matches the filter.
    fn matches(&self, record: &CallRecord) -> bool {
        self.tool.as_ref().is_none_or(|tool| record.tool == *tool)
            && self.caller.as_ref().is_none_or(|caller| record.caller == *caller)
            && self.status.is_none_or(|status| record.status == status)
            && self.run.is_none_or(|run| record.run == Some(run))
            && self.code.is_none_or(|code| outcome_code(record) == Some(code.name()))
            && self
                .slower_than
                .is_none_or(|than| record.outcome.as_ref().is_some_and(|outcome| outcome.duration > than))
    }
}

/// The name of the error a call ended with. Two kinds may share a name.
fn outcome_code(record: &CallRecord) -> Option<&'static str> {
    record.outcome.as_ref()?.error_kind().map(ErrorKind::name)
}

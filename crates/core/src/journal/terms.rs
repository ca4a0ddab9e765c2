//! Index terms of ended calls: by what the journal finds them.
//!
//! In: a record, or a query. Out: the terms of its row, or those that a row must have to be found. Both are built here, so that
//! they agree. The thread is no term, because the calls of a thread are a partition. A store looks for two terms by comparing
//! the calls that have either, so the pairs that are asked for most are terms of their own. Other terms than before need
//! another `ENDED_CALL_LAYOUT`.

use std::time::Duration;

use smol_str::{SmolStr, format_smolstr};

use super::{
    CallQuery, CallRecord,
    record::{ENDED_CALL_LAYOUT, decode_ended},
};
use toolhub_storage::backend::{Row, RowKey, Table, Terms};
use toolhub_types::{
    error::ErrorKind,
    ids::{Caller, RunId},
    outcome::{Outcome, Status},
    tool::ToolName,
};

/// A call has the term of each of these durations that it took longer than, so that most calls have none of them.
const SLOW: [(Duration, SmolStr); 3] = [
    (Duration::from_millis(100), SmolStr::new_static("slow=100ms")),
    (Duration::from_secs(1), SmolStr::new_static("slow=1s")),
    (Duration::from_secs(10), SmolStr::new_static("slow=10s")),
];

/// The index terms of a stored row, for copying it to another store. A row of an earlier layout gets its terms later, from the hub.
#[must_use]
pub fn index_terms(key: &RowKey, row: &Row) -> Terms {
    if key.table != Table::Calls || row.schema < ENDED_CALL_LAYOUT {
        return Terms::NONE;
    }
    decode_ended(&key.id, row).map_or(Terms::NONE, |record| of_record(&record))
}

/// The terms of an ended call.
pub(crate) fn of_record(record: &CallRecord) -> Terms {
    let outcome = record.outcome.as_ref();
    let code = outcome.and_then(Outcome::error_kind);
    let duration = outcome.map_or(Duration::ZERO, |outcome| outcome.duration);
    let slow = SLOW.into_iter().filter(|(threshold, _)| duration > *threshold).map(|(_, term)| term);
    let with_status = tool_and(&record.tool, &status(record.status));
    let with_code = code.map(|code| tool_and(&record.tool, &error_code(code)));
    let terms = [tool(&record.tool), status(record.status), caller(&record.caller), with_status];
    let optional = [record.run.map(run), code.map(error_code), with_code];
    Terms::new(terms.into_iter().chain(optional.into_iter().flatten()).chain(slow))
}

/// The terms of the ended calls that a query selects. They may have more calls than it selects.
pub(super) fn of_query(query: &CallQuery) -> Vec<SmolStr> {
    let longest = |at_least: Duration| SLOW.into_iter().rev().find(|(threshold, _)| *threshold <= at_least);
    let outcome = [query.status.map(status), query.code.map(error_code)].into_iter().flatten();
    let mut terms: Vec<SmolStr> = match &query.tool {
        Some(tool) => outcome.map(|term| tool_and(tool, &term)).collect(),
        None => outcome.collect(),
    };
    if terms.is_empty() {
        terms.extend(query.tool.as_ref().map(tool));
    }
    let others = [
        query.caller.as_ref().map(caller),
        query.run.map(run),
        query.slower_than.and_then(longest).map(|(_, term)| term),
    ];
    terms.extend(others.into_iter().flatten());
    terms
}

/// The term of a tool's successful calls.
pub(super) fn success_of(tool: &ToolName) -> SmolStr {
    tool_and(tool, &status(Status::Success))
}

/// The term of a pair. No tool name contains a space.
fn tool_and(name: &ToolName, other: &str) -> SmolStr {
    format_smolstr!("{} {other}", tool(name))
}

/// The term of a tool's calls.
pub(super) fn tool(tool: &ToolName) -> SmolStr {
    format_smolstr!("tool={tool}")
}

fn status(status: Status) -> SmolStr {
    format_smolstr!("status={}", status.as_str())
}

fn caller(caller: &Caller) -> SmolStr {
    format_smolstr!("caller={caller}")
}

fn run(run: RunId) -> SmolStr {
    format_smolstr!("run={run}")
}

fn error_code(kind: ErrorKind) -> SmolStr {
    format_smolstr!("code={kind}")
}

//! Index terms of ended calls: by what the journal finds them.
//!
//! In: a record, or a query. Out: the terms of its row, or those that a row must have to be found. Both are built here, so that
//! they agree. The thread is no term, because the calls of a thread are a partition.

use std::time::Duration;

use smol_str::{SmolStr, format_smolstr};

use super::{CallQuery, CallRecord};
use toolhub_storage::backend::Terms;
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

/// The terms of an ended call.
pub(crate) fn of_record(record: &CallRecord) -> Terms {
    let outcome = record.outcome.as_ref();
    let code = outcome.and_then(Outcome::error_kind);
    let duration = outcome.map_or(Duration::ZERO, |outcome| outcome.duration);
    let slow = SLOW.into_iter().filter(|(threshold, _)| duration > *threshold).map(|(_, term)| term);
    let terms = [tool(&record.tool), status(record.status), caller(&record.caller)];
    Terms::new(terms.into_iter().chain(record.run.map(run)).chain(code.map(error_code)).chain(slow))
}

/// The terms of the ended calls that a query selects. They may have more calls than it selects.
pub(super) fn of_query(query: &CallQuery) -> Vec<SmolStr> {
    let longest = |at_least: Duration| SLOW.into_iter().rev().find(|(threshold, _)| *threshold <= at_least);
    let terms = [
        query.tool.as_ref().map(tool),
        query.status.map(status),
        query.caller.as_ref().map(caller),
        query.run.map(run),
        query.code.map(error_code),
        query.slower_than.and_then(longest).map(|(_, term)| term),
    ];
    terms.into_iter().flatten().collect()
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

//! Each call has one outcome: what its caller was told, what is recorded, and what its tool did agree.

use toolhub::{CallRecord, Outcome, Status, prelude::*};

use super::{
    super::world::{CallEnd, Ledger, World},
    Records, is_gone,
};

/// Tools without an effect, whose calls are not in the journal before they run.
const READ_ONLY: [&str; 2] = ["look", super::super::world::PROBED_TOOL];

pub(super) fn check(world: &World, records: &Records) -> Vec<String> {
    let ledger = world.ledger();
    let mut problems: Vec<String> =
        ledger.ends.iter().flat_map(|end| contradictions(&ledger, end, records.get(&end.outcome.id))).collect();
    for (call, count) in ledger.closings.iter().filter(|(_, count)| **count > 1) {
        // The first record may be deleted with its thread.
        if records.get(call).is_some_and(|record| !is_gone(record.thread.as_ref().map(ThreadId::as_str))) {
            problems.push(format!("call {call} was closed {count} times"));
        }
    }
    for record in records.values() {
        let Some(outcome) = &record.outcome else {
            problems.push(format!("call {} is {:?} for ever", record.id, record.status));
            continue;
        };
        if outcome.effect == Effect::None && began(&ledger, record.id) {
            problems.push(format!("the record says that call {} had no effect, but it ran: {outcome:?}", record.id));
        }
    }
    for execution in &ledger.executions {
        let (tool, call) = (execution.tool.as_str(), execution.call);
        let thread = ledger.ends.iter().find(|end| end.call == call).and_then(|end| end.thread.as_deref());
        if !READ_ONLY.contains(&tool) && !records.contains_key(&call) && !is_gone(thread) {
            problems.push(format!("`{tool}` ran for call {call}, which has no record"));
        }
    }
    problems
}

/// Whether a tool with effects began to work for a call.
fn began(ledger: &Ledger, call: CallId) -> bool {
    ledger.executions.iter().any(|execution| execution.call == call && !READ_ONLY.contains(&execution.tool.as_str()))
}

/// What a caller was told, against the record and the executions.
fn contradictions(ledger: &Ledger, end: &CallEnd, record: Option<&CallRecord>) -> Vec<String> {
    let (told, mut problems) = (&end.outcome, Vec::new());
    let is_read_only = READ_ONLY.contains(&told.tool.as_str());
    if told.effect == Effect::None && began(ledger, told.id) {
        problems.push(format!("the caller of {} was told that it had no effect, but it ran: {told:?}", told.id));
    }
    if is_read_only {
        return problems;
    }
    match record.and_then(|record| record.outcome.as_ref()) {
        Some(recorded) => {
            if !agree(told, recorded) {
                problems.push(format!("the caller was told {told:?}, but the record says {recorded:?}"));
            }
        }
        // A call that was refused has no record.
        None if told.attempts == 0 && told.effect == Effect::None => {}
        None if is_gone(end.thread.as_deref()) => {}
        None => problems.push(format!("the caller was told {told:?}, but there is no record")),
    }
    problems
}

/// Whether what the caller was told is what is recorded. A caller that was told that the outcome could not be stored, or that the effect is
/// not known, may find another outcome in the record, perhaps that of a node that took its node for dead.
fn agree(told: &Outcome, recorded: &Outcome) -> bool {
    if told.error_kind() == Some(ErrorKind::StoreUnavailable) {
        return told.effect == recorded.effect || [told.effect, recorded.effect].contains(&Effect::Unknown);
    }
    let is_same =
        (told.status, told.error_kind(), told.effect) == (recorded.status, recorded.error_kind(), recorded.effect);
    match told.status {
        Status::Success => is_same && told.output == recorded.output,
        _ => is_same || told.effect == Effect::Unknown,
    }
}

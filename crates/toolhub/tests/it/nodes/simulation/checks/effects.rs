//! No effect happens twice or against a decision: of keyed calls, approved calls, external results and states.

use std::collections::BTreeMap;

use toolhub::{ContextId, StateKind, Status, prelude::*};

use super::{
    super::{tools::Counter, world::World},
    Records,
};

/// How often a call that may run again is started at most.
const MAX_STARTS: usize = 3;

pub(super) fn check(world: &World, records: &Records) -> Vec<String> {
    let (ledger, mut problems) = (world.ledger(), Vec::new());
    let (mut by_call, mut by_key) = (BTreeMap::new(), BTreeMap::new());
    for execution in &ledger.executions {
        let is_rerunnable = execution.tool == "index";
        let count: &mut usize = by_call.entry(execution.call).or_default();
        *count += 1;
        if *count > if is_rerunnable { MAX_STARTS } else { 1 } {
            problems.push(format!("`{}` ran {count} times for call {}", execution.tool, execution.call));
        }
        if let Some(key) = &execution.key {
            let count: &mut usize = by_key.entry(key).or_default();
            *count += 1;
            if *count > 1 {
                problems.push(format!("key `{key}` had its effect {count} times: {execution:?}"));
            }
        }
        if execution.tool == "order" && !matches!(ledger.decisions.get(&execution.call), Some(Some(true) | None)) {
            problems.push(format!("call {} ran without an approval", execution.call));
        }
    }
    // Everybody who was answered under a key was told the same.
    let mut told: BTreeMap<&String, (CallId, Status)> = BTreeMap::new();
    for end in ledger.ends.iter().filter(|end| end.outcome.status == Status::Success) {
        let Some(key) = &end.key else { continue };
        let outcome = (end.outcome.id, end.outcome.status);
        if *told.entry(key).or_insert(outcome) != outcome {
            problems.push(format!("key `{key}` has two outcomes: {:?} and {outcome:?}", told[key]));
        }
    }
    let mut accepted = BTreeMap::new();
    for (call, value, answer) in ledger.reports.iter().filter(|(.., answer)| answer.is_ok()) {
        if let Some(earlier) = accepted.insert(call, value) {
            problems.push(format!("two results of call {call} were accepted: {earlier} and {value}: {answer:?}"));
        }
        let recorded = records.get(call).and_then(|record| record.outcome.as_ref());
        if let Some(outcome) = recorded.filter(|outcome| outcome.output != *value) {
            problems.push(format!("result {value} of call {call} was accepted, but its outcome is {outcome:?}"));
        }
    }
    problems
}

/// The state of each thread has exactly the calls that have succeeded.
pub(super) async fn check_state(hub: &ToolHub, records: &Records) -> Vec<String> {
    let mut problems = Vec::new();
    for thread in ["t0", "t1"] {
        let context: ContextId = format!("{thread}/{}", Counter::NAME).parse().unwrap();
        let entry = hub.state().get_state(&Tenant::default(), &context, StateKind::Business).await.unwrap();
        let counter: Counter =
            entry.map_or_else(Counter::default, |entry| serde_json::from_value(json!(entry.data)).unwrap());
        let (mut counted, mut succeeded) = (counter.calls, Vec::new());
        let in_thread = |record: &&toolhub::CallRecord| record.thread.as_ref().is_some_and(|id| id.as_str() == thread);
        for record in records.values().filter(in_thread).filter(|record| record.tool.as_str() == "count") {
            if record.status == Status::Success {
                succeeded.push(record.id);
            }
        }
        counted.sort();
        if counted != succeeded {
            problems.push(format!("the state of {thread} has the calls {counted:?}, but {succeeded:?} succeeded"));
        }
    }
    problems
}

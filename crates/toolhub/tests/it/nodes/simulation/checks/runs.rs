//! One driver per run: each turn of a conversation has one reply, whose calls were made once, and a node whose runs no other takes over
//! unless it was frozen or its connection failed.

use std::collections::BTreeMap;

use toolhub::prelude::*;
use toolhub_agent::{AgentService, Message};

use super::super::{
    NODE_TIMEOUT,
    world::{Takeover, World},
};

pub(super) async fn check(world: &World, nodes: &[&str], service: &AgentService) -> Vec<String> {
    let mut problems = problems_of_driving(world, nodes);
    for thread in ["r0", "r1", "r2"] {
        let thread = ThreadId::new(thread).unwrap();
        let messages = service.messages(&Tenant::default(), &thread, 1_000, None).await.unwrap();
        let mut answers: BTreeMap<String, usize> = BTreeMap::new();
        for (index, stored) in messages.iter().enumerate() {
            if stored.seq != index as u64 + 1 {
                problems.push(format!("message {} of {thread} has the number {}", index + 1, stored.seq));
            }
            let is_answered = matches!(messages.get(index + 1).map(|next| &next.message), Some(Message::Tool { .. }));
            match &stored.message {
                Message::Assistant { content, calls, .. } if calls.is_empty() => {
                    *answers.entry(content.clone()).or_default() += 1;
                }
                Message::Assistant { .. } if !is_answered => {
                    problems.push(format!("calls of message {} of {thread} have no results", index + 1));
                }
                _ => {}
            }
        }
        for (answer, count) in answers.into_iter().filter(|(_, count)| *count > 1) {
            problems.push(format!("`{answer}` is {count} times in {thread}"));
        }
    }
    problems
}

fn problems_of_driving(world: &World, nodes: &[&str]) -> Vec<String> {
    let (ledger, mut problems) = (world.ledger(), Vec::new());
    let mut numbers: BTreeMap<(String, u64), &Value> = BTreeMap::new();
    for execution in ledger.executions.iter().filter(|execution| execution.tool == "note") {
        let arguments = &execution.arguments;
        let turn = (arguments["message"].to_string(), arguments["round"].as_u64().unwrap());
        if let Some(earlier) = numbers.insert(turn.clone(), &arguments["number"]) {
            problems.push(format!("turn {turn:?} was executed twice: {earlier} and {}", arguments["number"]));
        }
    }
    for Takeover { run, from, to, at } in &ledger.takeovers {
        let [from, to] = [from, to].map(|node| nodes.iter().position(|id| id == node).unwrap());
        if !world.faults[from].was_disturbed(at.saturating_sub(2 * NODE_TIMEOUT)..*at) {
            problems.push(format!("node {to} took {run} at {at:?} from node {from}, which had no fault"));
        }
    }
    for (index, first) in ledger.questions.iter().enumerate() {
        let again = ledger.questions[index + 1..].iter().filter(|second| second.turn == first.turn);
        for second in again.filter(|second| second.node != first.node) {
            // Either may have driven the run before: a frozen node asks before it notices that it was taken for dead.
            let since = first.asked.saturating_sub(2 * NODE_TIMEOUT);
            if ![first, second].iter().any(|it| world.faults[it.node].was_disturbed(since..second.asked)) {
                problems.push(format!("two nodes without a fault drive a run: {first:?} and {second:?}"));
            }
        }
    }
    let mut runs = BTreeMap::new();
    for (text, run) in &ledger.messages {
        let Ok(run) = run else { continue };
        if *runs.entry(text).or_insert(run) != run {
            problems.push(format!("message `{text}` started two runs: {} and {run}", runs[text]));
        }
    }
    problems
}

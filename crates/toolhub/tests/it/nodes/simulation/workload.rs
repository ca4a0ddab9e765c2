//! The operations of a simulation: what clients do, when, and on which nodes.
//!
//! In: random numbers. Out: a list of operations, each of which `clients.rs` carries out.

use std::time::Duration;

use fastrand::Rng;

use super::{NODES, faults::FAULT_TIME};

/// An operation. Nodes are numbers; times are in milliseconds.
#[derive(Debug, Clone)]
pub(super) enum Operation {
    /// A call of a tool, with a thread or without.
    Call { tool: &'static str, node: usize, thread: Option<String>, ms: u64 },
    /// A call with an idempotency key.
    KeyedCall { node: usize, key: u8, thread: Option<String>, ms: u64 },
    /// A call that needs an approval, which a person gives or denies on another node.
    ApprovedCall { node: usize, thread: Option<String>, detached: bool, decided_on: usize, after: u64, yes: bool },
    /// A call that is cancelled on another node.
    CancelledCall { tool: &'static str, node: usize, ms: u64, cancelled_on: usize, after: u64 },
    /// A call that two clients execute and report on these nodes.
    ExternalCall { node: usize, thread: Option<String>, reported_on: [usize; 2], after: [u64; 2] },
    /// The probed tool fails for a while.
    Break { ms: u64 },
    /// Several calls of the probed tool at once.
    Probes { first_node: usize, count: usize },
    /// A message to an agent, sent again on other nodes until one of them has accepted it.
    Message { node: usize, thread: String, text: String, cancelled_on: Option<usize> },
    /// A thread is deleted.
    Deletion { node: usize, thread: String },
}

/// Operations and the times at which they begin.
pub(super) fn random_workload(random: &mut Rng) -> Vec<(Duration, Operation)> {
    let latest = u64::try_from(FAULT_TIME.as_millis()).unwrap();
    let count = random.usize(15..40);
    let mut workload: Vec<_> = (0..count)
        .map(|index| (Duration::from_millis(random.u64(0..latest)), random_operation(random, index)))
        .collect();
    workload.sort_by_key(|(at, _)| *at);
    workload
}

fn random_operation(random: &mut Rng, index: usize) -> Operation {
    let node = random.usize(0..NODES);
    let other = random.usize(0..NODES);
    let ms = if random.bool() { random.u64(0..50) } else { random.u64(0..4_000) };
    let thread = thread(random);
    match random.u8(0..20) {
        0 => Operation::Call { tool: "look", node, thread, ms },
        1..4 => Operation::Call { tool: "pay", node, thread, ms },
        4..6 => Operation::Call { tool: "count", node, thread: Some(format!("t{}", random.u8(0..2))), ms: ms / 8 },
        6..8 => Operation::Call { tool: "index", node, thread, ms },
        8..11 => Operation::KeyedCall { node, key: random.u8(0..3), thread: None, ms },
        11..13 => Operation::ApprovedCall {
            node,
            thread,
            detached: random.bool(),
            decided_on: other,
            after: random.u64(0..3_000),
            yes: random.u8(0..4) > 0,
        },
        13 => Operation::CancelledCall {
            tool: ["pay", "index", "order"][random.usize(0..3)],
            node,
            ms: 4 * ms,
            cancelled_on: other,
            after: random.u64(0..5_000),
        },
        14 => Operation::ExternalCall {
            node,
            thread,
            reported_on: [other, random.usize(0..NODES)],
            after: [random.u64(0..4_000), random.u64(0..4_000)],
        },
        15 => Operation::Break { ms: random.u64(500..6_000) },
        16..18 => Operation::Probes { first_node: node, count: random.usize(1..6) },
        18 => Operation::Message {
            node,
            thread: format!("r{}", random.u8(0..3)),
            text: format!("m{index}"),
            cancelled_on: (random.u8(0..5) == 0).then_some(other),
        },
        _ => Operation::Deletion { node, thread: gone(random) },
    }
}

fn thread(random: &mut Rng) -> Option<String> {
    match random.u8(0..6) {
        0 => None,
        1 => Some(gone(random)),
        _ => Some(format!("t{}", random.u8(0..3))),
    }
}

/// A thread that may be deleted.
fn gone(random: &mut Rng) -> String {
    format!("gone{}", random.u8(0..2))
}

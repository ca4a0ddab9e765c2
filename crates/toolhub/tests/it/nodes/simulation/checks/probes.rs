//! While a tool is withheld, one call at a time probes it, on one node, and no other call reaches it.
//!
//! A call that arrived on a node that did not know yet that the tool is withheld may pass: there is no check for it. So may one on the
//! node whose probe has succeeded: while the store refuses that result, it counts on this node only.

use std::time::Duration;

use toolhub::status::{Breaker, ProbeLease};

use super::super::world::{Execution, Ledger, PROBED_TOOL, World};

/// One time of a breaker from its opening to its end, by its beginning in the list of changes.
struct Opening {
    first: usize,
    version: u64,
}

pub(super) fn check(world: &World) -> Vec<String> {
    let (ledger, mut problems) = (world.ledger(), Vec::new());
    let mut probes: Vec<(usize, &Execution, &ProbeLease)> = Vec::new();
    for execution in ledger.executions.iter().filter(|execution| execution.tool == PROBED_TOOL) {
        let Some(opening) = opening_at(&ledger, execution.statuses) else { continue };
        let lease = lease_at(&ledger, execution.statuses);
        if let Some(lease) = lease.filter(|lease| lease.id == execution.call) {
            probes.push((opening.first, execution, lease));
        } else if ledger.known_at_arrival.get(&execution.call).is_some_and(|known| *known >= opening.version)
            && !has_probed(&ledger, &opening, execution)
        {
            let changes = ledger.statuses[..execution.statuses].iter();
            let changes: Vec<_> = changes.map(|change| (change.version, &change.record.breaker)).collect();
            let known = ledger.known_at_arrival[&execution.call];
            problems.push(format!(
                "a call that is not the probe reached the withheld tool: {execution:?}; its node knew version {known} of {changes:?}"
            ));
        }
    }
    for (index, (opening, first, lease)) in probes.iter().enumerate() {
        for (_, second, _) in probes[index + 1..].iter().filter(|(other, ..)| other == opening) {
            let has_expired = (second.began - first.began) >= lease_time(lease);
            let overlaps = first.ended.is_none_or(|ended| second.began < ended);
            let was_reported = !world.faults[first.node].was_disturbed(first.began..second.began);
            if !has_expired && (overlaps || was_reported) {
                problems.push(format!("two probes in one cool-down: {first:?} and {second:?}"));
            }
        }
    }
    problems
}

/// Whether a probe of this opening had succeeded on the node of an execution before it began.
fn has_probed(ledger: &Ledger, opening: &Opening, execution: &Execution) -> bool {
    let mut earlier = ledger.executions.iter().filter(|probe| {
        let is_before = probe.ended.is_some_and(|ended| ended <= execution.began);
        probe.tool == PROBED_TOOL && probe.node == execution.node && is_before && !probe.has_failed
    });
    earlier.any(|probe| {
        opening_at(ledger, probe.statuses).is_some_and(|of_probe| of_probe.first == opening.first)
            && lease_at(ledger, probe.statuses).is_some_and(|lease| lease.id == probe.call)
    })
}

fn lease_time(lease: &ProbeLease) -> Duration {
    lease.lease_until.since(lease.taken)
}

/// The lease after so many changes of the status.
fn lease_at(ledger: &Ledger, changes: usize) -> Option<&ProbeLease> {
    match &ledger.statuses.get(changes.checked_sub(1)?)?.record.breaker {
        Breaker::Open { probe, .. } => probe.as_ref(),
        Breaker::Closed => None,
    }
}

/// How the breaker was opened that is open after so many changes.
fn opening_at(ledger: &Ledger, changes: usize) -> Option<Opening> {
    let times = |index: usize| match &ledger.statuses[index].record.breaker {
        Breaker::Open { since, until, openings, .. } => Some((*since, *until, *openings)),
        Breaker::Closed => None,
    };
    let last = changes.checked_sub(1)?;
    let current = times(last)?;
    let first = (0..=last).rev().take_while(|index| times(*index) == Some(current)).last()?;
    Some(Opening { first, version: ledger.statuses[first].version })
}

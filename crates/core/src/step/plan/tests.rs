//! Which calls may start when: fixed scenarios and random sequences.

use proptest::prelude::*;

use super::*;
use toolhub_types::tool::{DependencyGroup, ToolName};

/// `s` is a safe call, `l` an exclusive one.
fn plan(calls: &str) -> Plan {
    Plan::new(calls.chars().map(|kind| PlannedCall::new(kind == 's', Vec::new())).collect())
}

fn is_done(plan: &Plan) -> bool {
    plan.0.iter().all(|call| matches!(call.state, CallProgress::Ended { .. }))
}

/// Starts every call that may start, and checks that these are the expected ones.
#[track_caller]
fn assert_starts(plan: &mut Plan, expected: &[usize]) {
    let ready = plan.ready();
    assert_eq!(ready, expected);
    for at in ready {
        plan.mark_running(at);
    }
}

#[test]
fn consecutive_safe_calls_run_together_and_others_alone_in_order() {
    let mut plan = plan("sslls");
    assert_starts(&mut plan, &[0, 1]);
    plan.mark_ended(1, true);
    assert_starts(&mut plan, &[]);
    plan.mark_ended(0, false);
    assert_starts(&mut plan, &[2]);
    assert_starts(&mut plan, &[]);
    plan.mark_ended(2, true);
    assert_starts(&mut plan, &[3]);
    plan.mark_ended(3, true);
    assert_starts(&mut plan, &[4]);
    plan.mark_ended(4, true);
    assert!(is_done(&plan));
    assert_eq!(plan.state(0), CallProgress::Ended { success: false });
}

#[test]
fn a_question_holds_back_later_lone_calls_and_no_safe_ones() {
    let mut plan = plan("lsls");
    assert_starts(&mut plan, &[0]);
    plan.mark_awaiting_approval(0);
    // The last call would have waited for the exclusive one before it, which itself waits for the answer.
    assert_starts(&mut plan, &[1, 3]);
    plan.mark_ended(1, true);
    plan.mark_ended(3, true);
    assert_starts(&mut plan, &[]);
    plan.mark_ended(0, false);
    assert_starts(&mut plan, &[2]);
}

#[test]
fn an_approved_lone_call_holds_until_those_that_went_past_it_are_done() {
    let mut plan = plan("lsss");
    assert_starts(&mut plan, &[0]);
    plan.mark_awaiting_approval(0);
    plan.mark_running(1);
    assert_eq!(plan.mark_approved(0), Resumption::Later);
    // Once it is approved, no other call overtakes it.
    assert_starts(&mut plan, &[]);
    plan.mark_ended(1, true);
    assert_starts(&mut plan, &[0]);
    assert_starts(&mut plan, &[]);
    plan.mark_ended(0, true);
    assert_starts(&mut plan, &[2, 3]);
}

#[test]
fn an_approved_call_with_nothing_in_its_way_goes_on_at_once() {
    let mut plan = plan("sls");
    assert_starts(&mut plan, &[0]);
    plan.mark_awaiting_approval(0);
    assert_starts(&mut plan, &[2]);
    assert_eq!(plan.mark_approved(0), Resumption::Now);
    plan.mark_ended(0, true);
    assert_starts(&mut plan, &[]);
    plan.mark_ended(2, true);
    assert_starts(&mut plan, &[1]);
    plan.mark_awaiting_approval(1);
    assert_eq!(plan.mark_approved(1), Resumption::Now);
}

#[test]
fn an_approved_safe_call_holds_while_a_lone_one_executes() {
    let mut plan = plan("ls");
    assert_starts(&mut plan, &[0]);
    plan.mark_awaiting_approval(0);
    assert_starts(&mut plan, &[1]);
    plan.mark_awaiting_approval(1);
    assert_eq!(plan.mark_approved(0), Resumption::Now);
    assert_eq!(plan.mark_approved(1), Resumption::Later);
    assert_starts(&mut plan, &[]);
    plan.mark_ended(0, true);
    assert_starts(&mut plan, &[1]);
}

#[test]
fn a_dependent_waits_for_its_bases_and_others_do_not_wait_for_it() {
    let mut plan = Plan::new(vec![
        PlannedCall::new(true, vec![]),
        PlannedCall::new(true, vec![0, 1, 7]),
        PlannedCall::new(true, vec![]),
        PlannedCall::new(false, vec![]),
    ]);
    assert_starts(&mut plan, &[0, 2]);
    plan.mark_ended(2, true);
    assert_starts(&mut plan, &[]);
    plan.mark_ended(0, false);
    assert_starts(&mut plan, &[1]);
}

#[test]
fn news_that_comes_too_late_changes_nothing() {
    let mut plan = plan("l");
    plan.mark_ended(0, false);
    plan.mark_running(0);
    plan.mark_awaiting_approval(0);
    assert_eq!(plan.mark_approved(0), Resumption::Later);
    assert_eq!(plan.state(0), CallProgress::Ended { success: false });
}

#[test]
fn a_call_builds_on_the_earlier_calls_its_tool_waits_for() {
    let names = |names: &[&str]| names.iter().map(|name| ToolName::new(*name).unwrap()).collect::<Vec<_>>();
    let free = DependsOn::default();
    let pay = DependsOn(vec![
        DependencyGroup::All { tools: names(&["login", "cart"]), within: None },
        DependencyGroup::Any { tools: names(&["cart", "gift"]), within: None },
    ]);
    let calls = [("pay", &pay), ("cart", &free), ("login", &free), ("cart", &free), ("pay", &pay), ("login", &free)];
    assert_eq!(earlier_dependencies(&calls), [vec![], vec![], vec![], vec![], vec![1, 2, 3], vec![]]);
}

/// The rules as a plain reference implementation: may this startable call execute now?
fn may_execute(plan: &Plan, at: usize) -> bool {
    let before = &plan.0[..at];
    let ended = |call: &PlannedCall| matches!(call.state, CallProgress::Ended { .. });
    if !plan.0[at].parallel_safe {
        return before.iter().all(ended) && plan.0.iter().all(|call| call.state != CallProgress::Running);
    }
    before.iter().enumerate().filter(|(_, call)| !call.parallel_safe).all(|(exclusive, call)| {
        let held_back = plan.0[..exclusive].iter().any(|call| call.state == CallProgress::AwaitingApproval);
        ended(call)
            || call.state == CallProgress::AwaitingApproval
            || (call.state == CallProgress::Pending && held_back)
    })
}

fn check_rules(plan: &Plan) -> Result<(), TestCaseError> {
    let calls = || plan.0.iter().enumerate();
    let ready = plan.ready();
    for (at, call) in calls() {
        let dependencies_ended = call.dependencies.iter().all(|dependency| plan.has_ended(*dependency));
        let is_startable =
            call.state == CallProgress::Approved || call.state == CallProgress::Pending && dependencies_ended;
        prop_assert_eq!(ready.contains(&at), is_startable && may_execute(plan, at), "call {} of {:?}", at, plan);
    }
    let moving = calls().any(|(_, call)| matches!(call.state, CallProgress::Running | CallProgress::AwaitingApproval));
    prop_assert!(is_done(plan) || moving || !ready.is_empty(), "a deadlock: {plan:?}");
    let running: Vec<_> =
        calls().filter(|(_, call)| call.state == CallProgress::Running).map(|(_, call)| call.parallel_safe).collect();
    prop_assert!(
        running.len() < 2 || running.iter().all(|safe| *safe),
        "an exclusive call does not run alone: {plan:?}"
    );
    Ok(())
}

fn batches() -> impl Strategy<Value = Vec<PlannedCall>> {
    let call = (any::<bool>(), prop::collection::vec(0..12usize, 0..3));
    prop::collection::vec(call.prop_map(|(safe, dependencies)| PlannedCall::new(safe, dependencies)), 0..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Each number chooses what happens next and to which call; when they run out, calls simply continue and end.
    #[test]
    fn whatever_happens_in_whatever_order_the_rules_hold_and_every_batch_ends(
        batch in batches(),
        choices in prop::collection::vec((0..8u8, any::<prop::sample::Index>()), 0..60),
    ) {
        let mut plan = Plan::new(batch);
        let mut choices = choices.into_iter();
        let mut exclusive_order = Vec::new();
        let mut steps = 0;
        while !is_done(&plan) {
            check_rules(&plan)?;
            steps += 1;
            prop_assert!(steps < 200, "the plan does not end: {plan:?}");
            let ready = plan.ready();
            let of = |state: CallProgress| (0..plan.0.len()).filter(|at| plan.state(*at) == state).collect::<Vec<_>>();
            let (waiting, running, awaiting) = (of(CallProgress::Pending), of(CallProgress::Running), of(CallProgress::AwaitingApproval));
            let pick = |from: &[usize], index: &prop::sample::Index| (!from.is_empty()).then(|| *index.get(from));
            let Some((choice, index)) = choices.next() else {
                for at in ready {
                    plan.mark_running(at);
                }
                check_rules(&plan)?;
                if let Some(at) = running.first() {
                    plan.mark_ended(*at, true);
                }
                if let Some(at) = awaiting.first() {
                    let _ = plan.mark_approved(*at);
                }
                continue;
            };
            match choice {
                // All that may start do, or only one of them.
                0 | 1 => {
                    exclusive_order.extend(ready.iter().filter(|at| !plan.0[**at].parallel_safe && waiting.contains(at)));
                    ready.iter().for_each(|at| plan.mark_running(*at));
                }
                2 => {
                    if let Some(at) = pick(&ready, &index) {
                        exclusive_order.extend((!plan.0[at].parallel_safe && waiting.contains(&at)).then_some(at));
                        plan.mark_running(at);
                    }
                }
                3 => if let Some(at) = pick(&running, &index) { plan.mark_ended(at, true) },
                4 | 5 => if let Some(at) = pick(&running, &index) { plan.mark_awaiting_approval(at) },
                6 => if let Some(at) = pick(&awaiting, &index) {
                    let now = plan.mark_approved(at) == Resumption::Now;
                    prop_assert_eq!(now, plan.state(at) == CallProgress::Running);
                },
                // Denied, or cancelled before it started.
                _ => if let Some(at) = pick(&awaiting, &index).or(pick(&waiting, &index)) { plan.mark_ended(at, false) },
            }
        }
        prop_assert!(exclusive_order.is_sorted(), "{exclusive_order:?}");
    }

    #[test]
    fn without_questions_and_dependencies_every_run_of_safe_calls_overlaps(kinds in "[sl]{0,12}") {
        let mut plan = plan(&kinds);
        for run in kinds.split_inclusive('l').flat_map(|run| [run.trim_end_matches('l').len(), usize::from(run.ends_with('l'))]) {
            let ready = plan.ready();
            if run == 0 {
                continue;
            }
            prop_assert_eq!(ready.len(), run);
            ready.iter().for_each(|at| plan.mark_running(*at));
            prop_assert!(plan.ready().is_empty());
            ready.iter().for_each(|at| plan.mark_ended(*at, true));
        }
        prop_assert!(is_done(&plan));
    }
}

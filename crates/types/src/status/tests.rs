//! Model-based test: machine, evaluation and gate against the reference, on random scenarios of two threads and one tool.
//!
//! Every step is applied to both; then every status, every admission and every next change must agree.
//! With `TOOLHUB_SOAK` set, ten times as many scenarios run.

mod compare;
mod reference;
mod scenario;

use std::{cell::RefCell, collections::BTreeMap};

use proptest::{
    prelude::*,
    sample::select,
    test_runner::{Config, TestRunner},
};
use scenario::Scenario;
use toolhub_testkit::soak;

use super::ToolStatus;
use crate::error::ErrorKind;

/// The third record; the first two belong to the threads.
const SHARED: usize = 2;
const HOUR: i64 = 3_600_000;
const YEAR: i64 = 365 * 24 * HOUR;

#[derive(Debug, Clone)]
enum Step {
    Sleep { millis: i64, settle: bool },
    Call { thread: Option<usize> },
    End { call: usize, error: Option<ErrorKind>, connecting: bool },
    ReleaseProbe { call: usize },
    DropCall { call: usize },
    Report { thread: Option<usize>, error: Option<ErrorKind>, times: usize },
    OperatorSet { record: usize, status: ToolStatus, after: Option<i64> },
    ResetThread { thread: usize },
    ResetAll { record: usize },
    Healthy { record: usize },
    Configure { enabled: bool, threshold: u32, windowed: bool, count_refusals: bool, is_ready: bool },
    Restart,
    Save { record: usize },
    Restore { record: usize, save: usize, epoch: Option<u64>, with_lease: bool },
    RestoreForeign { record: usize, start: i64, length: i64, openings: u32, failures: u32 },
}

fn any_steps() -> impl Strategy<Value = Vec<(Step, i64)>> {
    let kinds: Vec<ErrorKind> = ErrorKind::TABLE.iter().map(|row| row.kind).collect();
    let raised = vec![ErrorKind::UpstreamError, ErrorKind::Timeout, ErrorKind::Crashed, ErrorKind::ToolRefused];
    let kind = prop_oneof![select(kinds), select(raised.clone()), select(raised)];
    let error = prop_oneof![Just(None), kind.clone().prop_map(Some), kind.prop_map(Some)].boxed();
    let jumps = vec![-YEAR, -HOUR, -60_000, -6_000, -6_000, -1_000, HOUR, YEAR];
    let waits = vec![1, 1, 1_000, 1_000, 4_999, 7_000, 29_999, 30_000, 240_000, 299_999, 300_000, 600_000];
    let thread = || select(vec![None, Some(0), Some(0), Some(1)]);
    let statuses = vec![ToolStatus::Available, ToolStatus::Unavailable, ToolStatus::Failed, ToolStatus::Maintenance];
    let after = select(vec![None, Some(-5_000), Some(0), Some(20_000), Some(300_000), Some(2 * HOUR)]);
    // A saved text is untrusted: it may hold any epoch or lease, and a state that no scenario leads to.
    let epoch = select(vec![None, None, Some(0), Some(u64::MAX)]);
    let starts = vec![-YEAR, -HOUR, -1_000, 0, 4_000, HOUR, YEAR];
    let lengths = vec![-HOUR, 0, 1, 300_000, 2 * HOUR];
    let counts = vec![0, 1, 7, u32::MAX - 1, u32::MAX];
    let step = prop_oneof![
        6 => select(waits).prop_map(|millis| Step::Sleep { millis, settle: true }),
        2 => (select(jumps), any::<bool>()).prop_map(|(millis, settle)| Step::Sleep { millis, settle }),
        8 => thread().prop_map(|thread| Step::Call { thread }),
        7 => (0..4_usize, error.clone(), any::<bool>()).prop_map(|(call, error, connecting)| Step::End { call, error, connecting }),
        1 => (0..4_usize).prop_map(|call| Step::ReleaseProbe { call }),
        1 => (0..4_usize).prop_map(|call| Step::DropCall { call }),
        4 => (thread(), error, 1..4_usize).prop_map(|(thread, error, times)| Step::Report { thread, error, times }),
        1 => (0..3_usize, select(statuses), after).prop_map(|(record, status, after)| Step::OperatorSet { record, status, after }),
        1 => (0..2_usize).prop_map(|thread| Step::ResetThread { thread }),
        1 => (0..3_usize).prop_map(|record| Step::ResetAll { record }),
        1 => (0..3_usize).prop_map(|record| Step::Healthy { record }),
        2 => (prop::bool::weighted(0.8), select(vec![0, 1, 3, 3, 5, 8]), prop::bool::weighted(0.7), any::<bool>(), prop::bool::weighted(0.8)).prop_map(
            |(enabled, threshold, windowed, count_refusals, is_ready)| Step::Configure { enabled, threshold, windowed, count_refusals, is_ready }
        ),
        1 => Just(Step::Restart),
        2 => (0..3_usize).prop_map(|record| Step::Save { record }),
        2 => (0..3_usize, 0..3_usize, epoch, any::<bool>()).prop_map(
            |(record, save, epoch, with_lease)| Step::Restore { record, save, epoch, with_lease }
        ),
        1 => (0..3_usize, select(starts), select(lengths), select(counts.clone()), select(counts)).prop_map(
            |(record, start, length, openings, failures)| Step::RestoreForeign { record, start, length, openings, failures }
        ),
    ];
    proptest::collection::vec((step, select(vec![0, 250, 500, 1_000])), 1..80)
}

#[test]
fn the_machine_agrees_with_the_reference_on_every_story() {
    let cases = soak(1_000, 10_000);
    let config = Config { failure_persistence: None, ..Config::with_cases(cases) };
    let coverage = RefCell::new(BTreeMap::<&str, usize>::new());
    let result = TestRunner::new(config).run(&any_steps(), |steps| {
        let mut scenario = Scenario::new();
        for (step, jitter) in &steps {
            scenario.jitter = *jitter;
            scenario.run_step(step);
            scenario.compare();
        }
        for (situation, times) in scenario.coverage {
            *coverage.borrow_mut().entry(situation).or_default() += times;
        }
        Ok(())
    });
    if let Err(problem) = result {
        panic!("{problem}");
    }
    let coverage = coverage.into_inner();
    println!("{cases} scenarios covered {coverage:?}");
    // Scenarios that never reach the interesting situations would prove nothing.
    let required = ["passed", "refused", "probed", "waited for a probe", "lease released", "late result"];
    for situation in required
        .iter()
        .chain(&["opened in a row", "opened by rate", "opened again", "cool-down in the future"])
        .chain(&["restored", "restored a lease", "restored under a running call", "restored a foreign record"])
    {
        assert!(coverage.contains_key(*situation), "never covered: {situation} in {coverage:?}");
    }
}

//! The machine, the words and the gate against the reference, along random stories of two threads and one tool.
//!
//! Every step is told to both; then every reading, every admission and every "changes by itself at" must agree.
//! With `TOOLHUB_SOAK` set ten times as many stories are told.

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
    Sleep { by: i64, settle: bool },
    Call { thread: Option<usize> },
    End { which: usize, how: Option<ErrorKind>, connecting: bool },
    ReleaseProbe { which: usize },
    DropCall { which: usize },
    Report { thread: Option<usize>, how: Option<ErrorKind>, times: usize },
    OperatorSet { record: usize, word: ToolStatus, after: Option<i64> },
    ResetThread { thread: usize },
    ResetAll { record: usize },
    Healthy { record: usize },
    Configure { on: bool, threshold: u32, windowed: bool, refusals: bool, present: bool },
    Restart,
    Save { record: usize },
    Restore { record: usize, which: usize, epoch: Option<u64>, permit: bool },
    RestoreForeign { record: usize, began: i64, lasts: i64, openings: u32, row: u32 },
}

fn any_steps() -> impl Strategy<Value = Vec<(Step, i64)>> {
    let kinds: Vec<ErrorKind> = ErrorKind::TABLE.iter().map(|row| row.kind).collect();
    let hard = vec![ErrorKind::UpstreamError, ErrorKind::Timeout, ErrorKind::Crashed, ErrorKind::ToolRefused];
    let kind = prop_oneof![select(kinds), select(hard.clone()), select(hard)];
    let how = prop_oneof![Just(None), kind.clone().prop_map(Some), kind.prop_map(Some)].boxed();
    let jumps = vec![-YEAR, -HOUR, -60_000, -6_000, -6_000, -1_000, HOUR, YEAR];
    let waits = vec![1, 1, 1_000, 1_000, 4_999, 7_000, 29_999, 30_000, 240_000, 299_999, 300_000, 600_000];
    let thread = || select(vec![None, Some(0), Some(0), Some(1)]);
    let words = vec![ToolStatus::Available, ToolStatus::Unavailable, ToolStatus::Failed, ToolStatus::Maintenance];
    let after = select(vec![None, Some(-5_000), Some(0), Some(20_000), Some(300_000), Some(2 * HOUR)]);
    // A saved text can say anything: an epoch or a permit that nobody here gave, and what no story here could lead to.
    let epoch = select(vec![None, None, Some(0), Some(u64::MAX)]);
    let began = vec![-YEAR, -HOUR, -1_000, 0, 4_000, HOUR, YEAR];
    let lasts = vec![-HOUR, 0, 1, 300_000, 2 * HOUR];
    let odd = vec![0, 1, 7, u32::MAX - 1, u32::MAX];
    let step = prop_oneof![
        6 => select(waits).prop_map(|by| Step::Sleep { by, settle: true }),
        2 => (select(jumps), any::<bool>()).prop_map(|(by, settle)| Step::Sleep { by, settle }),
        8 => thread().prop_map(|thread| Step::Call { thread }),
        7 => (0..4_usize, how.clone(), any::<bool>()).prop_map(|(which, how, connecting)| Step::End { which, how, connecting }),
        1 => (0..4_usize).prop_map(|which| Step::ReleaseProbe { which }),
        1 => (0..4_usize).prop_map(|which| Step::DropCall { which }),
        4 => (thread(), how, 1..4_usize).prop_map(|(thread, how, times)| Step::Report { thread, how, times }),
        1 => (0..3_usize, select(words), after).prop_map(|(record, word, after)| Step::OperatorSet { record, word, after }),
        1 => (0..2_usize).prop_map(|thread| Step::ResetThread { thread }),
        1 => (0..3_usize).prop_map(|record| Step::ResetAll { record }),
        1 => (0..3_usize).prop_map(|record| Step::Healthy { record }),
        2 => (prop::bool::weighted(0.8), select(vec![0, 1, 3, 3, 5, 8]), prop::bool::weighted(0.7), any::<bool>(), prop::bool::weighted(0.8)).prop_map(
            |(on, threshold, windowed, refusals, present)| Step::Configure { on, threshold, windowed, refusals, present }
        ),
        1 => Just(Step::Restart),
        2 => (0..3_usize).prop_map(|record| Step::Save { record }),
        2 => (0..3_usize, 0..3_usize, epoch, any::<bool>()).prop_map(
            |(record, which, epoch, permit)| Step::Restore { record, which, epoch, permit }
        ),
        1 => (0..3_usize, select(began), select(lasts), select(odd.clone()), select(odd)).prop_map(
            |(record, began, lasts, openings, row)| Step::RestoreForeign { record, began, lasts, openings, row }
        ),
    ];
    proptest::collection::vec((step, select(vec![0, 250, 500, 1_000])), 1..80)
}

#[test]
fn the_machine_agrees_with_the_reference_on_every_story() {
    let cases = soak(1_000, 10_000);
    let config = Config { failure_persistence: None, ..Config::with_cases(cases) };
    let met = RefCell::new(BTreeMap::<&str, usize>::new());
    let result = TestRunner::new(config).run(&any_steps(), |steps| {
        let mut story = Scenario::new();
        for (step, jitter) in &steps {
            story.jitter = *jitter;
            story.run_step(step);
            story.compare();
        }
        for (what, times) in story.coverage {
            *met.borrow_mut().entry(what).or_default() += times;
        }
        Ok(())
    });
    if let Err(problem) = result {
        panic!("{problem}");
    }
    let met = met.into_inner();
    println!("{cases} stories met {met:?}");
    // Stories that never reach the interesting places would agree about nothing.
    let wanted = ["passed", "refused", "probed", "waited for a probe", "permit given back", "late result"];
    for what in wanted
        .iter()
        .chain(&["opened in a row", "opened by rate", "opened again", "wait ahead of the clock"])
        .chain(&["restored", "restored a permit", "restored under a running call", "restored from a foreign life"])
    {
        assert!(met.contains_key(*what), "never met: {what} in {met:?}");
    }
}

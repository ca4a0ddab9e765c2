//! The faults of one node: when it is frozen or cut off from the store, and what happens to its commits, reads and notifications; and
//! when the store refuses the commits of all nodes.
//!
//! In: random numbers, and the simulated time. Out: a decision for each operation. All faults end after [`FAULT_TIME`].

use std::{
    array,
    ops::Range,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use fastrand::Rng;
use tokio::time::Instant;
use toolhub::backend::Table;

/// Faults happen from the start until now.
pub(super) const FAULT_TIME: Duration = Duration::from_secs(12);
/// Longest delay of a commit that is applied after its client has given up.
const MAX_LATENESS: Duration = Duration::from_secs(9);
/// The tables whose random numbers come from those of the seed. Those of tables that were added later come from a copy, so that each
/// seed still determines the same faults and operations.
const FIRST_TABLES: usize = 25;
/// How often one in a thousand operations has a fault, at most.
const MAX_PER_MILLE: u32 = 60;

/// The faults of one node, as the seed determines them.
#[derive(Debug, Default)]
struct Plan {
    /// While it is frozen, none of its operations begins or ends, and no tool works.
    frozen: Vec<Range<Duration>>,
    /// While it is cut off, its operations fail.
    cut: Vec<Range<Duration>>,
    /// When the store refuses all commits.
    refused: Vec<Range<Duration>>,
    /// Longest usual delay of an operation.
    latency: Duration,
    lost_answers: u32,
    lost_requests: u32,
    late_commits: u32,
    refusals: u32,
    lost_notifications: u32,
}

/// What happens to a commit.
pub(super) enum CommitFate {
    Applied,
    /// It is not applied, and the client is told so.
    Refused,
    /// It is not applied, and the client does not know that.
    RequestLost,
    /// It is applied, and the client does not know that.
    AnswerLost,
    /// It is applied this much later, and the client does not know that.
    Late(Duration),
}

pub(super) struct NodeFaults {
    plan: Plan,
    /// One for each table, so that an operation more or less in one does not change what happens to all others.
    random: Mutex<[Rng; Table::ALL.len()]>,
    started: Instant,
    /// When an operation of the node failed.
    failed_at: Mutex<Vec<Duration>>,
}

impl Plan {
    fn random(random: &mut Rng, refused: Vec<Range<Duration>>) -> Self {
        let rates = [(); 5].map(|()| if random.bool() { random.u32(0..=MAX_PER_MILLE) } else { 0 });
        let [lost_answers, lost_requests, late_commits, refusals, lost_notifications] = rates;
        let frozen = intervals(random, 500..7_000);
        let cut = intervals(random, 200..9_000);
        let latency = Duration::from_millis(random.u64(1..250));
        Self { frozen, cut, refused, latency, lost_answers, lost_requests, late_commits, refusals, lost_notifications }
    }
}

/// When the store refuses all commits: mostly never.
pub(super) fn refusal_times(random: &mut Rng) -> Vec<Range<Duration>> {
    if random.u8(0..4) == 0 { intervals(random, 500..10_000) } else { Vec::new() }
}

/// None, one or two intervals of such lengths in milliseconds.
fn intervals(random: &mut Rng, lengths: Range<u64>) -> Vec<Range<Duration>> {
    let latest = u64::try_from(FAULT_TIME.as_millis()).unwrap();
    let interval = |random: &mut Rng| {
        let start = random.u64(1..latest);
        let end = (start + random.u64(lengths.clone())).min(latest);
        Duration::from_millis(start)..Duration::from_millis(end)
    };
    (0..random.usize(0..3)).map(|_| interval(random)).collect()
}

fn end_at(intervals: &[Range<Duration>], now: Duration) -> Option<Duration> {
    intervals.iter().filter(|interval| interval.contains(&now)).map(|interval| interval.end).max()
}

impl NodeFaults {
    /// The faults of a node, in a simulation that started at this moment.
    pub(super) fn new(random: &mut Rng, refused: Vec<Range<Duration>>, started: Instant) -> Self {
        let plan = Plan::random(random, refused);
        let mut copy = Rng::with_seed(!random.get_seed());
        let by_table = array::from_fn(|table| if table < FIRST_TABLES { random.fork() } else { copy.fork() });
        Self { plan, random: Mutex::new(by_table), started, failed_at: Mutex::default() }
    }

    pub(super) fn describe(&self) -> String {
        format!("{:?}", self.plan)
    }

    /// The time since the start.
    pub(super) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Waits while the node is frozen.
    pub(super) async fn thawed(&self) {
        while let Some(end) = end_at(&self.plan.frozen, self.now()) {
            tokio::time::sleep_until(self.started + end).await;
        }
    }

    /// Waits as long as a request or an answer about a table is on its way.
    pub(super) async fn travel(&self, table: Table) {
        let delay = self.with_random(table, |random| match random.u8(0..8) {
            0 => self.plan.latency.mul_f64(random.f64()),
            1..3 => Duration::from_millis(random.u64(1..4)),
            _ => Duration::ZERO,
        });
        if delay.is_zero() {
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(delay).await;
        }
        self.thawed().await;
    }

    /// When the node will no longer be cut off, if it is now.
    pub(super) fn cut_until(&self) -> Option<Duration> {
        end_at(&self.plan.cut, self.now())
    }

    /// Whether a read of a table fails now.
    pub(super) fn fails_read(&self, table: Table) -> bool {
        let fails = self.cut_until().is_some() || self.strikes(table, self.plan.refusals);
        if fails {
            self.note_failure();
        }
        fails
    }

    /// What happens to a commit that is sent now.
    pub(super) fn commit_fate(&self, table: Table) -> CommitFate {
        let fate = self.choose_fate(table);
        if !matches!(fate, CommitFate::Applied) {
            self.note_failure();
        }
        fate
    }

    fn choose_fate(&self, table: Table) -> CommitFate {
        let Plan { lost_answers, lost_requests, late_commits, refusals, .. } = self.plan;
        if self.cut_until().is_some() {
            let is_sent = self.with_random(table, |random| random.u8(0..3) == 0);
            return if is_sent { CommitFate::RequestLost } else { CommitFate::Refused };
        }
        if end_at(&self.plan.refused, self.now()).is_some() {
            CommitFate::Refused
        } else if self.strikes(table, lost_answers) {
            CommitFate::AnswerLost
        } else if self.strikes(table, lost_requests) {
            CommitFate::RequestLost
        } else if self.strikes(table, late_commits) {
            CommitFate::Late(MAX_LATENESS.mul_f64(self.with_random(table, Rng::f64)))
        } else if self.strikes(table, refusals) {
            CommitFate::Refused
        } else {
            CommitFate::Applied
        }
    }

    /// How long a notification that is delivered now stays unreported, if it is lost.
    pub(super) fn lost_notification(&self, table: Table) -> Option<Duration> {
        let lost_until = self.cut_until().map(|end| end.saturating_sub(self.now()));
        let lost_for = lost_until.or_else(|| {
            let is_lost = self.strikes(table, self.plan.lost_notifications);
            is_lost.then(|| Duration::from_millis(self.with_random(table, |random| random.u64(0..3_000))))
        });
        if lost_for.is_some() {
            self.note_failure();
        }
        lost_for
    }

    /// How long the client waits before it gives a commit up.
    pub(super) fn patience(&self, table: Table) -> Duration {
        Duration::from_millis(self.with_random(table, |random| random.u64(1..2_000)))
    }

    /// Notes that an operation fails.
    pub(super) fn note_failure(&self) {
        self.failed_at.lock().unwrap_or_else(PoisonError::into_inner).push(self.now());
    }

    /// Whether the node was frozen, or one of its operations failed, in this time.
    pub(super) fn was_disturbed(&self, between: Range<Duration>) -> bool {
        let overlaps = |fault: &Range<Duration>| fault.start <= between.end && between.start <= fault.end;
        self.plan.frozen.iter().any(overlaps)
            || self.failed_at.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|at| between.contains(at))
    }

    fn strikes(&self, table: Table, per_mille: u32) -> bool {
        let is_possible = per_mille > 0 && (Duration::from_millis(1)..FAULT_TIME).contains(&self.now());
        is_possible && self.with_random(table, |random| random.u32(0..1_000) < per_mille)
    }

    fn with_random<T>(&self, table: Table, choose: impl FnOnce(&mut Rng) -> T) -> T {
        let index = Table::ALL.iter().position(|known| *known == table).unwrap_or_default();
        choose(&mut self.random.lock().unwrap_or_else(PoisonError::into_inner)[index])
    }
}

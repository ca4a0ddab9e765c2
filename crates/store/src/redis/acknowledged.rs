//! Remembers which commits were acknowledged to this node, and finds out which of them a server has lost: after a fail-over, or a restart
//! without all of its append-only file.
//!
//! In: what scripts say of a bucket with each commit. Out: what this node knows of the bucket, for its next commit there; reports of losses.

use std::{
    collections::VecDeque,
    fmt::{Display, Write},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use toolhub_storage::{
    backend::{Batch, Change, LossReport, LostNames, Table},
    clock::{Clock, Timestamp},
};
use toolhub_types::ids::CallId;

use super::{
    epoch::{BucketState, History, Position},
    keys::Bucket,
};

/// How long the partition and the calls of a commit are remembered. Replication lags by seconds; of older commits, the number is enough.
const RETENTION: Duration = Duration::from_secs(120);
/// How many commits are remembered with what they changed; at least so many in each bucket.
const MAX_COMMITS: usize = 100_000;
const MIN_COMMITS: usize = 2_000;
/// How long after its last commit a node looks for losses in a bucket by itself; later, its next commit there does.
const CHECKED: Duration = Duration::from_secs(600);
/// How many reports are kept; further ones are only logged.
const MAX_REPORTS: usize = 1_000;

/// The commits that this node made, by bucket.
pub(super) struct Acknowledged {
    buckets: Box<[Mutex<BucketLog>]>,
    max_commits: usize,
    clock: Arc<dyn Clock>,
    reports: Mutex<Vec<LossReport>>,
}

#[derive(Default)]
struct BucketLog {
    /// The last commit of the current epoch.
    last: Option<Position>,
    last_at: Option<Timestamp>,
    history: History,
    commits: VecDeque<Commit>,
    /// The last commit that is not remembered any more.
    forgotten: Option<Commit>,
}

struct Commit {
    position: Position,
    at: Timestamp,
    changed: Changed,
}

/// What a commit changed.
pub(super) struct Changed {
    partition: String,
    calls: Box<[CallId]>,
}

impl Changed {
    /// What this batch changes in a partition, whose text this is.
    pub(super) fn of(batch: &Batch, partition: String) -> Self {
        let records = batch.writes.iter().filter(|write| {
            matches!(write.table, Table::Calls | Table::OpenCalls) && !matches!(write.change, Change::Keep)
        });
        let mut calls: Vec<CallId> = records.filter_map(|write| write.id.parse().ok()).collect();
        // The end of a call removes its opening record.
        calls.sort_unstable();
        calls.dedup();
        Self { partition, calls: calls.into() }
    }
}

/// The commit was acknowledged by a server that has been replaced meanwhile, and the new one does not have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LostMeanwhile;

impl Acknowledged {
    /// `clock` is the clock of the store.
    pub(super) fn new(buckets: usize, clock: Arc<dyn Clock>) -> Self {
        Self {
            buckets: (0..buckets).map(|_| Mutex::default()).collect(),
            max_commits: (MAX_COMMITS / buckets.max(1)).max(MIN_COMMITS),
            clock,
            reports: Mutex::default(),
        }
    }

    fn log(&self, bucket: Bucket) -> MutexGuard<'_, BucketLog> {
        self.buckets[bucket.0].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last commit that was acknowledged in the last epoch that is known; `None` before the first answer.
    pub(super) fn last(&self, bucket: Bucket) -> Option<Position> {
        self.log(bucket).last.clone()
    }

    /// The buckets with commits of the last minutes.
    pub(super) fn active_buckets(&self) -> Vec<Bucket> {
        let oldest = self.clock.now() - CHECKED;
        let is_active = |bucket: &Bucket| self.log(*bucket).last_at.is_some_and(|at| at >= oldest);
        (0..self.buckets.len()).map(Bucket).filter(is_active).collect()
    }

    /// Learns from an answer. A new epoch may show that earlier commits are lost: these are reported.
    pub(super) fn learn(&self, bucket: Bucket, state: &BucketState) {
        let report = self.log(bucket).learn(state);
        if let Some(report) = report {
            self.add_report(report);
        }
    }

    /// Learns from the answer to a commit, and remembers the commit if it wrote something.
    pub(super) fn add(&self, bucket: Bucket, state: BucketState, changed: Changed) -> Result<(), LostMeanwhile> {
        self.learn(bucket, &state);
        let Some(number) = state.number else { return Ok(()) };
        let position = Position { epoch: state.epoch, number };
        self.log(bucket).add(Commit { position, at: self.clock.now(), changed }, self.max_commits)
    }

    fn add_report(&self, report: LossReport) {
        tracing::error!(
            commits = report.commits,
            partitions = %list(&report.partitions()),
            calls = %list(&report.calls()),
            since = %report.since,
            "Redis has lost commits that it had acknowledged"
        );
        let mut reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        if reports.len() < MAX_REPORTS {
            reports.push(report);
        }
    }

    /// The reports after the first `seen` ones.
    pub(super) fn reports(&self, seen: usize) -> Vec<LossReport> {
        let reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        reports.get(seen..).unwrap_or_default().to_vec()
    }
}

impl BucketLog {
    fn learn(&mut self, state: &BucketState) -> Option<LossReport> {
        let known = self.last.as_ref().map(|last| &last.epoch);
        if known.is_some_and(|known| known == &state.epoch || known.number > state.epoch.number) {
            return None;
        }
        // The kept answer to a repeated commit has none; the next answer will.
        self.history = state.history.clone()?;
        self.last = Some(Position { epoch: state.epoch.clone(), number: 0 });
        let commits = std::mem::take(&mut self.commits).into_iter();
        let (kept, lost): (Vec<_>, Vec<_>) = commits.partition(|commit| self.history.contains(&commit.position));
        self.commits = kept.into();
        let forgotten = self.forgotten.take_if(|commit| !self.history.contains(&commit.position));
        if lost.is_empty() && forgotten.is_none() {
            return None;
        }
        let unnamed = forgotten.as_ref().map_or(0, |commit| {
            let end = self.history.end_of(&commit.position.epoch).unwrap_or(commit.position.number);
            tracing::error!(
                "Redis has lost the commits {} to {} of a bucket; this node does not remember its own of them",
                end + 1,
                commit.position.number
            );
            commit.position.number - end
        });
        let all = || lost.iter().chain(&forgotten);
        let since = all().map(|commit| commit.at).min()?;
        let changes = all().map(|Commit { changed: Changed { partition, calls }, .. }| (partition.as_str(), &**calls));
        Some(LossReport::new(lost.len() as u64 + unnamed, since, changes))
    }

    fn add(&mut self, commit: Commit, max_commits: usize) -> Result<(), LostMeanwhile> {
        let is_newer = self.last.as_ref().is_none_or(|last| commit.position.epoch.number > last.epoch.number);
        if !is_newer && !self.history.contains(&commit.position) {
            return Err(LostMeanwhile);
        }
        let oldest = commit.at - RETENTION;
        while self.commits.front().is_some_and(|first| first.at < oldest) || self.commits.len() >= max_commits {
            // Concurrent commits may be out of order.
            let place = |commit: &Commit| (commit.position.epoch.number, commit.position.number);
            self.forgotten = self.commits.pop_front().into_iter().chain(self.forgotten.take()).max_by_key(place);
        }
        self.last_at = Some(commit.at);
        if let Some(last) = self.last.as_mut().filter(|last| last.epoch == commit.position.epoch) {
            last.number = last.number.max(commit.position.number);
        }
        self.commits.push_back(commit);
        Ok(())
    }
}

/// Describes losses for an operator; `None` without any.
pub(super) fn describe(reports: &[LossReport]) -> Option<String> {
    let all = LossReport::merge(reports)?;
    let (partitions, calls) = (list(&all.partitions()), list(&all.calls()));
    let calls = if calls.is_empty() { calls } else { format!("; calls {calls}") };
    let LossReport { commits, since, .. } = all;
    Some(format!(
        "Redis has lost {commits} commits that it had acknowledged, since {since}; they concern {partitions}{calls}"
    ))
}

fn list<T: Display>(LostNames { named, others }: &LostNames<T>) -> String {
    let mut text = String::new();
    for name in named {
        let separator = if text.is_empty() { "" } else { ", " };
        let _ = write!(text, "{separator}{name}");
    }
    if *others > 0 {
        let _ = write!(text, " and {others} more");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use redis::Value;
    use toolhub_types::ids::Tenant;

    use super::*;

    /// The clock of the store; shows what it was set to, far from the time of this machine.
    #[derive(Default)]
    struct SetClock(AtomicI64);

    impl Clock for SetClock {
        fn now(&self) -> Timestamp {
            Timestamp::from_millis(self.0.load(Ordering::Relaxed))
        }
    }

    fn changed(partition: &str, calls: &[CallId]) -> Changed {
        Changed { partition: partition.to_owned(), calls: calls.into() }
    }

    /// What a script says in epoch 1 of server `a`, or in its successor of server `b` that began after commit `end`.
    fn state(number: i64, end: Option<u64>) -> BucketState {
        let text = |text: String| Value::BulkString(text.into());
        let (epoch, server) = if end.is_some() { (2, "b") } else { (1, "a") };
        let mut parts = vec![Value::Int(epoch), text(server.into()), Value::Int(number)];
        parts.extend([text("1".into()), text("0 a".into())]);
        if let Some(end) = end {
            parts.extend([text("2".into()), text(format!("{end} b"))]);
        }
        BucketState::parse(Value::Array(parts)).unwrap()
    }

    #[test]
    fn forgotten_commits_are_reported_by_their_numbers_and_late_ones_are_not_acknowledged() {
        let acknowledged = Acknowledged { max_commits: 3, ..Acknowledged::new(1, Arc::new(SetClock::default())) };
        let add = |state| acknowledged.add(Bucket(0), state, changed("main/t/a", &[]));
        for number in 1..=10 {
            add(state(number, None)).unwrap();
        }
        assert_eq!(acknowledged.last(Bucket(0)).unwrap().number, 10);
        // The node remembers 8 to 10 of the commits 5 to 10.
        assert_eq!(add(state(5, Some(4))), Ok(()));
        assert_eq!(acknowledged.reports(0)[0].commits, 6);
        assert_eq!(add(state(6, Some(4))), Ok(()));
        assert_eq!(add(state(11, None)), Err(LostMeanwhile), "the old server answered late");
        assert_eq!(add(state(4, None)), Ok(()));
        assert_eq!(acknowledged.reports(1), [], "each loss is reported once");
    }
    #[test]
    fn lost_calls_are_named_by_tenant_with_the_number_of_the_others_and_the_time_of_the_store() {
        let clock = Arc::new(SetClock::default());
        let acknowledged = Acknowledged::new(1, clock.clone());
        let add = |number, partition: &str, calls: &[CallId]| {
            acknowledged.add(Bucket(0), state(number, None), changed(partition, calls)).unwrap();
        };
        let calls: Vec<CallId> = (0..25).map(|n| CallId::mint(Timestamp::from_millis(n))).collect();
        let minutes = |n: i64| clock.0.store(n * 60_000, Ordering::Relaxed);
        add(1, "main/t/forgotten", &[calls[0]]);
        minutes(3);
        for (number, call) in (2..).zip(&calls) {
            add(number, "main/t/a", &[*call]);
            add(number + 25, "main/t/a", &[*call]);
        }
        add(60, "other/t/b", &[calls[7]]);
        minutes(4);
        acknowledged.learn(Bucket(0), &state(1, Some(1)));
        let [report] = &acknowledged.reports(0)[..] else { panic!("one loss, one report") };
        assert_eq!((report.commits, report.since.millis()), (51, 180_000), "the first commit is kept");
        let of = |tenant: &str| &report.tenants[&Tenant::new(tenant).unwrap()];
        let named = |calls: &[CallId]| calls.iter().copied().collect();
        assert_eq!(of("main").calls, LostNames { named: named(&calls[..20]), others: 5 });
        assert_eq!(of("other").calls, LostNames { named: named(&calls[7..8]), others: 0 });
        let text = describe(&acknowledged.reports(0)).unwrap();
        assert!(text.contains("concern main/t/a, other/t/b; calls call_") && text.ends_with("and 5 more"), "{text}");
    }
}

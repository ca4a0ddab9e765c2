//! One story: the records under test, the reference beside them, and the calls that run meanwhile.
//!
//! In: one step after the other. Every step is told to both sides; `compare.rs` asks whether they agree.

use std::{collections::BTreeMap, time::Duration};

use super::{
    SHARED, Step,
    reference::{LoggedEvent, Record, ReferenceSettings},
};
use crate::{
    error::ErrorKind,
    ids::{CallId, Tenant, ThreadId},
    status::{
        Admission, Breaker, BreakerCause, FailureContext, FailureWindow, HealthSignal, ProbeLease, Readiness,
        StatusEvent, StatusRecord, StatusSettings, ThreadFingerprint, ToolStatus, admit, apply, failure_targets,
    },
    timestamp::Timestamp,
};

/// A call that was let in: what it must remember for the machine and for the reference.
#[derive(Debug, Clone)]
pub(super) struct RunningCall {
    number: usize,
    id: CallId,
    thread: Option<usize>,
    epochs: [u64; 3],
    events_seen: [i64; 3],
    probes: [bool; 3],
}

/// One story: the records under test, the reference beside them, and the calls between.
pub(super) struct Scenario {
    pub(super) now: i64,
    pub(super) jitter: i64,
    pub(super) facts: [StatusRecord; 3],
    pub(super) records: [Record; 3],
    pub(super) settings: StatusSettings,
    pub(super) is_ready: bool,
    running: Vec<RunningCall>,
    saved: Vec<(StatusRecord, Record)>,
    calls: usize,
    pub(super) coverage: BTreeMap<&'static str, usize>,
}

impl Scenario {
    pub(super) fn new() -> Self {
        Self {
            now: 1_800_000_000_000,
            jitter: 0,
            facts: Default::default(),
            records: Default::default(),
            settings: StatusSettings::default(),
            is_ready: true,
            running: Vec::new(),
            saved: Vec::new(),
            calls: 0,
            coverage: BTreeMap::new(),
        }
    }

    pub(super) fn reference_settings(&self) -> ReferenceSettings {
        let settings = &self.settings;
        let windowed = settings.failure_window.is_some();
        ReferenceSettings { enabled: settings.enabled, threshold: settings.failure_threshold, windowed }
    }

    pub(super) fn readiness(&self) -> Readiness {
        if self.is_ready { Readiness::Ready } else { Readiness::Disabled { message: None } }
    }

    pub(super) fn record_coverage(&mut self, what: &'static str) {
        *self.coverage.entry(what).or_default() += 1;
    }

    fn apply_event(&mut self, record: usize, event: &StatusEvent, what: LoggedEvent) {
        let (now, jitter) = (Timestamp::from_millis(self.now), self.jitter as f64 / 1000.0);
        self.facts[record] = apply(&self.facts[record], event, &self.settings, now, jitter);
        self.records[record].add(self.now, what, self.reference_settings(), self.jitter);
    }

    pub(super) fn run_step(&mut self, step: &Step) {
        match step.clone() {
            Step::Sleep { by, settle } => {
                self.now += by;
                for record in (0..3).filter(|_| settle) {
                    let ahead = self.facts[record].breaker.is_in_future(Timestamp::from_millis(self.now));
                    assert_eq!(ahead, self.records[record].is_in_future(self.now), "whether {record} lies ahead");
                    if ahead {
                        self.record_coverage("wait ahead of the clock");
                        self.apply_event(record, &StatusEvent::CoolDownEnded, LoggedEvent::CoolDownEnded);
                    }
                }
            }
            Step::Call { thread } => self.start_call(thread),
            Step::End { which, how, connecting } if which < self.running.len() => {
                let call = self.running.swap_remove(which);
                self.end_call(call.thread, how, connecting, Some(&call));
            }
            Step::ReleaseProbe { which } if which < self.running.len() => {
                let call = self.running.swap_remove(which);
                for record in (0..3).filter(|record| call.probes[*record]) {
                    self.record_coverage("permit given back");
                    self.apply_event(
                        record,
                        &StatusEvent::ProbeReleased { id: call.id },
                        LoggedEvent::ProbeReleased { call: call.number },
                    );
                }
            }
            Step::DropCall { which } if which < self.running.len() => drop(self.running.swap_remove(which)),
            Step::End { .. } | Step::ReleaseProbe { .. } | Step::DropCall { .. } => {}
            Step::Report { thread, how, times } => (0..times).for_each(|_| self.end_call(thread, how, false, None)),
            Step::OperatorSet { record, word, after } => {
                let until = after.map(|after| self.now + after);
                let what = match word {
                    ToolStatus::Available => LoggedEvent::ForcedAvailable,
                    ToolStatus::Failed => LoggedEvent::ForcedFailed { until },
                    _ => LoggedEvent::Overridden { maintenance: word == ToolStatus::Maintenance, until },
                };
                let until = until.map(Timestamp::from_millis);
                self.apply_event(record, &StatusEvent::from_operator(word, Some("words".into()), until), what);
            }
            Step::ResetThread { thread } => {
                self.apply_event(thread, &StatusEvent::Reset, LoggedEvent::Reset);
                self.apply_event(SHARED, &StatusEvent::CoolDownEnded, LoggedEvent::CoolDownEnded);
            }
            Step::ResetAll { record } => self.apply_event(record, &StatusEvent::Reset, LoggedEvent::Reset),
            Step::Healthy { record } => self.apply_event(record, &StatusEvent::Healthy, LoggedEvent::Healthy),
            Step::Configure { on, threshold, windowed, refusals, present } => {
                let window = FailureWindow { failure_rate: 0.6, window: Duration::from_secs(60), minimum_calls: 4 };
                self.settings.enabled = on;
                self.settings.failure_threshold = threshold;
                self.settings.failure_window = windowed.then_some(window);
                self.settings.count_tool_errors = refusals;
                self.is_ready = present;
            }
            Step::Restart => {
                let text = serde_json::to_string(&self.facts).unwrap();
                self.facts = serde_json::from_str(&text).unwrap();
            }
            Step::Save { record } => self.saved.push((self.facts[record].clone(), self.records[record].clone())),
            Step::Restore { record, which, epoch, permit } => {
                if let Some((facts, log)) = self.saved.iter().rev().nth(which).cloned() {
                    let elsewhere = log.total_events() != self.records[record].total_events();
                    self.record_coverage(if elsewhere { "restored" } else { "restored as it was" });
                    self.restore(record, StatusRecord { epoch: epoch.unwrap_or(facts.epoch), ..facts }, permit, &log);
                }
            }
            Step::RestoreForeign { record, began, lasts, openings, row } => {
                let (start, end) = (self.now + began, self.now + began + lasts);
                let breaker = Breaker::Open {
                    since: Timestamp::from_millis(start),
                    until: Timestamp::from_millis(end),
                    openings,
                    cause: BreakerCause::InARow,
                    probe: None,
                };
                let facts =
                    StatusRecord { breaker, consecutive_failures: row, epoch: u64::MAX, ..StatusRecord::default() };
                let mut log = Record::default();
                log.add(
                    start,
                    LoggedEvent::RestoredForeign { end, streak: openings, row },
                    self.reference_settings(),
                    0,
                );
                self.record_coverage("restored from a foreign life");
                self.restore(record, facts, true, &log);
            }
        }
    }

    /// Puts a saved record in the place of the present one, as a text that anybody may have written. With `permit` it
    /// claims that a call which runs here is the probe.
    fn restore(&mut self, record: usize, mut facts: StatusRecord, permit: bool, log: &Record) {
        let now = Timestamp::from_millis(self.now);
        if let (true, Breaker::Open { probe, .. }) = (permit, &mut facts.breaker) {
            let id = self.running.last().map_or_else(|| CallId::mint(now), |call| call.id);
            *probe = Some(ProbeLease { id, taken: now, lease_until: now + Duration::from_secs(30) });
        }
        if matches!(facts.breaker, Breaker::Open { probe: Some(_), .. }) {
            self.record_coverage("restored a permit");
        }
        if !self.running.is_empty() {
            self.record_coverage("restored under a running call");
        }
        let text = serde_json::to_string(&facts).unwrap();
        let event = StatusEvent::Restored(Box::new(serde_json::from_str(&text).unwrap()));
        self.facts[record] = apply(&self.facts[record], &event, &self.settings, now, 0.0);
        let rules = self.reference_settings();
        self.records[record].restore(log, self.now, rules);
    }

    fn start_call(&mut self, thread: Option<usize>) {
        let admission = self.admission(thread);
        let mut probes = [false; 3];
        match admission {
            Admission::Pass => self.record_coverage("passed"),
            Admission::WaitForProbe => return self.request_probe_late(thread, "waited for a probe"),
            Admission::Refuse { .. } => return self.request_probe_late(thread, "refused"),
            Admission::Probe { thread: own, shared } => {
                self.record_coverage("probed");
                probes[SHARED] = shared;
                if let Some(thread) = thread {
                    probes[thread] = own;
                }
            }
        }
        self.calls += 1;
        let (number, id) = (self.calls, CallId::mint(Timestamp::from_millis(self.now)));
        for record in (0..3).filter(|record| probes[*record]) {
            self.apply_event(
                record,
                &StatusEvent::ProbeTaken { id, lease: Duration::from_secs(30) },
                LoggedEvent::ProbeTaken { call: number },
            );
            assert!(self.facts[record].is_probe_held_by(id), "an admitted probe gets the permit");
        }
        let epochs = self.facts.each_ref().map(|facts| facts.epoch);
        let seen = self.records.each_ref().map(Record::total_events);
        self.running.push(RunningCall { number, id, thread, epochs, events_seen: seen, probes });
    }

    /// A call that may not probe asks for the permit all the same, as one does that decided a moment too early.
    fn request_probe_late(&mut self, thread: Option<usize>, why: &'static str) {
        self.record_coverage(why);
        self.calls += 1;
        let (call, id) = (self.calls, CallId::mint(Timestamp::from_millis(self.now)));
        for record in thread.into_iter().chain([SHARED]) {
            self.apply_event(
                record,
                &StatusEvent::ProbeTaken { id, lease: Duration::from_secs(30) },
                LoggedEvent::ProbeTaken { call },
            );
        }
    }

    fn end_call(
        &mut self,
        thread: Option<usize>,
        how: Option<ErrorKind>,
        connecting: bool,
        call: Option<&RunningCall>,
    ) {
        let who = thread
            .map(|thread| ThreadFingerprint::new(&Tenant::default(), &ThreadId::new(["a", "b"][thread]).unwrap()));
        if let (Some(ErrorKind::Timeout), Some(by), Some(thread)) = (how, &who, thread) {
            self.apply_event(SHARED, &StatusEvent::TimedOut { by: by.clone() }, LoggedEvent::TimedOut { who: thread });
        }
        let probes = call.map_or([false; 3], |call| call.probes);
        let counted = how.map(|kind| {
            let circumstances = FailureContext {
                thread: who,
                connecting,
                probes_thread: thread.is_some_and(|thread| probes[thread]),
                probes_shared: probes[SHARED],
            };
            let counting = failure_targets(kind, &circumstances, &self.facts[SHARED], &self.settings);
            let expected = self.expected_targets(kind, thread, connecting, probes);
            assert_eq!((counting.thread, counting.shared), expected, "{kind:?}");
            expected
        });
        for record in thread.into_iter().chain([SHARED]) {
            let (epoch, seen) = (call.map(|call| call.epochs[record]), call.map(|call| call.events_seen[record]));
            let counts = counted.map(|(own, shared)| if record == SHARED { shared } else { own });
            let (answer, what) = match (how, counts) {
                (Some(kind), Some(true)) => {
                    (HealthSignal::Failure { kind, text: "text".into() }, LoggedEvent::Failure { seen })
                }
                (Some(_), _) => (HealthSignal::Uncounted, LoggedEvent::Uncounted { seen }),
                (None, _) => (HealthSignal::Success, LoggedEvent::Success { seen }),
            };
            if epoch.is_some_and(|epoch| epoch != self.facts[record].epoch) {
                self.record_coverage("late result");
            }
            self.apply_event(record, &StatusEvent::CallEnded { signal: answer, epoch }, what);
        }
    }

    /// The error table once more, by hand.
    fn expected_targets(
        &self,
        kind: ErrorKind,
        thread: Option<usize>,
        connecting: bool,
        probes: [bool; 3],
    ) -> (bool, bool) {
        let (own, shared) = match (kind, thread) {
            (ErrorKind::ToolRefused, _) if !self.settings.count_tool_errors => return (false, false),
            (ErrorKind::ToolError | ErrorKind::Crashed | ErrorKind::ToolRefused, Some(_)) => (true, false),
            (ErrorKind::Timeout, Some(own)) => (true, connecting || self.records[SHARED].has_other_timeouts(own)),
            (ErrorKind::UpstreamError | ErrorKind::UpstreamUnreachable, Some(_)) => (false, true),
            (ErrorKind::ToolError | ErrorKind::Crashed | ErrorKind::ToolRefused, None) => return (false, true),
            (ErrorKind::Timeout | ErrorKind::UpstreamError | ErrorKind::UpstreamUnreachable, None) => {
                return (false, true);
            }
            _ => return (false, false),
        };
        (own || thread.is_some_and(|thread| probes[thread]), shared || probes[SHARED])
    }

    pub(super) fn admission(&self, thread: Option<usize>) -> Admission {
        let now = Timestamp::from_millis(self.now);
        let own = thread.map(|thread| &self.facts[thread]);
        admit(own, &self.facts[SHARED], &self.readiness(), &self.settings, now)
    }
}

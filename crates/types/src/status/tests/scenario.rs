//! One scenario: the records under test, the reference records, and the running calls.
//!
//! In: one step after the other. Every step is applied to both sides; `compare.rs` checks that they agree.

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

/// An admitted call: what it must remember for the machine and for the reference.
#[derive(Debug, Clone)]
pub(super) struct RunningCall {
    number: usize,
    id: CallId,
    thread: Option<usize>,
    epochs: [u64; 3],
    events_seen: [i64; 3],
    probes: [bool; 3],
}

/// One scenario: the records under test, the reference records, and the running calls.
pub(super) struct Scenario {
    pub(super) now: i64,
    pub(super) jitter: i64,
    pub(super) actual: [StatusRecord; 3],
    pub(super) reference: [Record; 3],
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
            actual: Default::default(),
            reference: Default::default(),
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

    pub(super) fn record_coverage(&mut self, situation: &'static str) {
        *self.coverage.entry(situation).or_default() += 1;
    }

    fn apply_event(&mut self, record: usize, event: &StatusEvent, logged: LoggedEvent) {
        let (now, jitter) = (Timestamp::from_millis(self.now), self.jitter as f64 / 1000.0);
        self.actual[record] = apply(&self.actual[record], event, &self.settings, now, jitter);
        self.reference[record].add(self.now, logged, self.reference_settings(), self.jitter);
    }

    pub(super) fn run_step(&mut self, step: &Step) {
        match step.clone() {
            Step::Sleep { millis, settle } => {
                self.now += millis;
                for record in (0..3).filter(|_| settle) {
                    let in_future = self.actual[record].breaker.is_in_future(Timestamp::from_millis(self.now));
                    assert_eq!(
                        in_future,
                        self.reference[record].is_in_future(self.now),
                        "whether the cool-down of {record} is in the future"
                    );
                    if in_future {
                        self.record_coverage("cool-down in the future");
                        self.apply_event(record, &StatusEvent::CoolDownEnded, LoggedEvent::CoolDownEnded);
                    }
                }
            }
            Step::Call { thread } => self.start_call(thread),
            Step::End { call, error, connecting } if call < self.running.len() => {
                let call = self.running.swap_remove(call);
                self.end_call(call.thread, error, connecting, Some(&call));
            }
            Step::ReleaseProbe { call } if call < self.running.len() => {
                let call = self.running.swap_remove(call);
                for record in (0..3).filter(|record| call.probes[*record]) {
                    self.record_coverage("lease released");
                    self.apply_event(
                        record,
                        &StatusEvent::ProbeReleased { id: call.id },
                        LoggedEvent::ProbeReleased { call: call.number },
                    );
                }
            }
            Step::DropCall { call } if call < self.running.len() => drop(self.running.swap_remove(call)),
            Step::End { .. } | Step::ReleaseProbe { .. } | Step::DropCall { .. } => {}
            Step::Report { thread, error, times } => (0..times).for_each(|_| self.end_call(thread, error, false, None)),
            Step::OperatorSet { record, status, after } => {
                let until = after.map(|after| self.now + after);
                let logged = match status {
                    ToolStatus::Available => LoggedEvent::ForcedAvailable,
                    ToolStatus::Failed => LoggedEvent::ForcedFailed { until },
                    _ => LoggedEvent::Overridden { maintenance: status == ToolStatus::Maintenance, until },
                };
                let until = until.map(Timestamp::from_millis);
                self.apply_event(record, &StatusEvent::from_operator(status, Some("message".into()), until), logged);
            }
            Step::ResetThread { thread } => {
                self.apply_event(thread, &StatusEvent::Reset, LoggedEvent::Reset);
                self.apply_event(SHARED, &StatusEvent::CoolDownEnded, LoggedEvent::CoolDownEnded);
            }
            Step::ResetAll { record } => self.apply_event(record, &StatusEvent::Reset, LoggedEvent::Reset),
            Step::Healthy { record } => self.apply_event(record, &StatusEvent::Healthy, LoggedEvent::Healthy),
            Step::Configure { enabled, threshold, windowed, count_refusals, is_ready } => {
                let window = FailureWindow { failure_rate: 0.6, window: Duration::from_secs(60), minimum_calls: 4 };
                self.settings.enabled = enabled;
                self.settings.failure_threshold = threshold;
                self.settings.failure_window = windowed.then_some(window);
                self.settings.count_tool_errors = count_refusals;
                self.is_ready = is_ready;
            }
            Step::Restart => {
                let text = serde_json::to_string(&self.actual).unwrap();
                self.actual = serde_json::from_str(&text).unwrap();
            }
            Step::Save { record } => self.saved.push((self.actual[record].clone(), self.reference[record].clone())),
            Step::Restore { record, save, epoch, with_lease } => {
                if let Some((saved, log)) = self.saved.iter().rev().nth(save).cloned() {
                    let differs = log.total_events() != self.reference[record].total_events();
                    self.record_coverage(if differs { "restored" } else { "restored unchanged" });
                    let saved = StatusRecord { epoch: epoch.unwrap_or(saved.epoch), ..saved };
                    self.restore(record, saved, with_lease, &log);
                }
            }
            Step::RestoreForeign { record, start, length, openings, failures } => {
                let (start, end) = (self.now + start, self.now + start + length);
                let breaker = Breaker::Open {
                    since: Timestamp::from_millis(start),
                    until: Timestamp::from_millis(end),
                    openings,
                    cause: BreakerCause::InARow,
                    probe: None,
                };
                let foreign = StatusRecord {
                    breaker,
                    consecutive_failures: failures,
                    epoch: u64::MAX,
                    ..StatusRecord::default()
                };
                let mut log = Record::default();
                log.add(
                    start,
                    LoggedEvent::RestoredForeign { end, streak: openings, failures },
                    self.reference_settings(),
                    0,
                );
                self.record_coverage("restored a foreign record");
                self.restore(record, foreign, true, &log);
            }
        }
    }

    /// Replaces a record by a saved one, as untrusted text. With `with_lease` the text claims that a running call
    /// holds the probe lease.
    fn restore(&mut self, record: usize, mut saved: StatusRecord, with_lease: bool, log: &Record) {
        let now = Timestamp::from_millis(self.now);
        if let (true, Breaker::Open { probe, .. }) = (with_lease, &mut saved.breaker) {
            let id = self.running.last().map_or_else(|| CallId::mint(now), |call| call.id);
            *probe = Some(ProbeLease { id, taken: now, lease_until: now + Duration::from_secs(30) });
        }
        if matches!(saved.breaker, Breaker::Open { probe: Some(_), .. }) {
            self.record_coverage("restored a lease");
        }
        if !self.running.is_empty() {
            self.record_coverage("restored under a running call");
        }
        let text = serde_json::to_string(&saved).unwrap();
        let event = StatusEvent::Restored(Box::new(serde_json::from_str(&text).unwrap()));
        self.actual[record] = apply(&self.actual[record], &event, &self.settings, now, 0.0);
        let settings = self.reference_settings();
        self.reference[record].restore(log, self.now, settings);
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
            assert!(self.actual[record].is_probe_held_by(id), "an admitted probe gets the lease");
        }
        let epochs = self.actual.each_ref().map(|record| record.epoch);
        let events_seen = self.reference.each_ref().map(Record::total_events);
        self.running.push(RunningCall { number, id, thread, epochs, events_seen, probes });
    }

    /// Requests the probe lease for a call that may not probe, as a caller would whose decision is outdated.
    fn request_probe_late(&mut self, thread: Option<usize>, situation: &'static str) {
        self.record_coverage(situation);
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
        error: Option<ErrorKind>,
        connecting: bool,
        call: Option<&RunningCall>,
    ) {
        let fingerprint = thread
            .map(|thread| ThreadFingerprint::new(&Tenant::default(), &ThreadId::new(["a", "b"][thread]).unwrap()));
        if let (Some(ErrorKind::Timeout), Some(by), Some(thread)) = (error, &fingerprint, thread) {
            self.apply_event(SHARED, &StatusEvent::TimedOut { by: by.clone() }, LoggedEvent::TimedOut { thread });
        }
        let probes = call.map_or([false; 3], |call| call.probes);
        let counted = error.map(|kind| {
            let context = FailureContext {
                thread: fingerprint,
                connecting,
                of_thread: false,
                probes_thread: thread.is_some_and(|thread| probes[thread]),
                probes_shared: probes[SHARED],
            };
            let targets = failure_targets(kind, &context, &self.actual[SHARED], &self.settings);
            let expected = self.expected_targets(kind, thread, connecting, probes);
            assert_eq!((targets.thread, targets.shared), expected, "{kind:?}");
            expected
        });
        for record in thread.into_iter().chain([SHARED]) {
            let epoch = call.map(|call| call.epochs[record]);
            let events_seen = call.map(|call| call.events_seen[record]);
            let counts = counted.map(|(own, shared)| if record == SHARED { shared } else { own });
            let (signal, logged) = match (error, counts) {
                (Some(kind), Some(true)) => {
                    (HealthSignal::Failure { kind, text: "text".into() }, LoggedEvent::Failure { events_seen })
                }
                (Some(_), _) => (HealthSignal::Uncounted, LoggedEvent::Uncounted { events_seen }),
                (None, _) => (HealthSignal::Success, LoggedEvent::Success { events_seen }),
            };
            if epoch.is_some_and(|epoch| epoch != self.actual[record].epoch) {
                self.record_coverage("late result");
            }
            self.apply_event(record, &StatusEvent::CallEnded { signal, epoch }, logged);
        }
    }

    /// The scopes of the error table, written out independently of it.
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
            (ErrorKind::Timeout, Some(own)) => (true, connecting || self.reference[SHARED].has_other_timeouts(own)),
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
        let own = thread.map(|thread| &self.actual[thread]);
        admit(own, &self.actual[SHARED], &self.readiness(), &self.settings, now)
    }
}

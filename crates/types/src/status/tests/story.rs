//! One story: the records under test, the reference beside them, and the calls that run meanwhile.
//!
//! In: one step after the other. Every step is told to both sides; `compare.rs` asks whether they agree.

use std::{collections::BTreeMap, time::Duration};

use super::{
    SHARED, Step,
    reference::{Record, Rules, What},
};
use crate::{
    error::ErrorKind,
    ids::{CallId, Tenant, ThreadId},
    status::{
        Admission, Answer, Breaker, Cause, Circumstances, Event, Facts, FailureWindow, Permit, Presence,
        StatusSettings, Sufferer, ToolStatus, admit, apply, count_in,
    },
    timestamp::Timestamp,
};

/// A call that was let in: what it must remember for the machine and for the reference.
#[derive(Debug, Clone)]
pub(super) struct Running {
    number: usize,
    id: CallId,
    thread: Option<usize>,
    epochs: [u64; 3],
    seen: [i64; 3],
    probes: [bool; 3],
}

/// One story: the records under test, the reference beside them, and the calls between.
pub(super) struct Story {
    pub(super) now: i64,
    pub(super) jitter: i64,
    pub(super) facts: [Facts; 3],
    pub(super) records: [Record; 3],
    pub(super) settings: StatusSettings,
    pub(super) present: bool,
    running: Vec<Running>,
    saved: Vec<(Facts, Record)>,
    calls: usize,
    pub(super) met: BTreeMap<&'static str, usize>,
}

impl Story {
    pub(super) fn new() -> Self {
        Self {
            now: 1_800_000_000_000,
            jitter: 0,
            facts: Default::default(),
            records: Default::default(),
            settings: StatusSettings::default(),
            present: true,
            running: Vec::new(),
            saved: Vec::new(),
            calls: 0,
            met: BTreeMap::new(),
        }
    }

    pub(super) fn rules(&self) -> Rules {
        let settings = &self.settings;
        let windowed = settings.failure_window.is_some();
        Rules { on: settings.enabled, threshold: settings.failure_threshold, windowed }
    }

    pub(super) fn presence(&self) -> Presence {
        if self.present { Presence::Ready } else { Presence::Disabled { words: None } }
    }

    pub(super) fn meet(&mut self, what: &'static str) {
        *self.met.entry(what).or_default() += 1;
    }

    fn tell(&mut self, record: usize, event: &Event, what: What) {
        let (now, jitter) = (Timestamp::from_millis(self.now), self.jitter as f64 / 1000.0);
        self.facts[record] = apply(&self.facts[record], event, &self.settings, now, jitter);
        self.records[record].add(self.now, what, self.rules(), self.jitter);
    }

    pub(super) fn take(&mut self, step: &Step) {
        match step.clone() {
            Step::Sleep { by, settle } => {
                self.now += by;
                for record in (0..3).filter(|_| settle) {
                    let ahead = self.facts[record].breaker.is_ahead(Timestamp::from_millis(self.now));
                    assert_eq!(ahead, self.records[record].lies_ahead(self.now), "whether {record} lies ahead");
                    if ahead {
                        self.meet("wait ahead of the clock");
                        self.tell(record, &Event::CoolDownEnded, What::EndWait);
                    }
                }
            }
            Step::Call { thread } => self.call(thread),
            Step::End { which, how, connecting } if which < self.running.len() => {
                let call = self.running.swap_remove(which);
                self.end(call.thread, how, connecting, Some(&call));
            }
            Step::GiveBack { which } if which < self.running.len() => {
                let call = self.running.swap_remove(which);
                for record in (0..3).filter(|record| call.probes[*record]) {
                    self.meet("permit given back");
                    self.tell(record, &Event::ProbeReturned { id: call.id }, What::GiveBack { call: call.number });
                }
            }
            Step::Lose { which } if which < self.running.len() => drop(self.running.swap_remove(which)),
            Step::End { .. } | Step::GiveBack { .. } | Step::Lose { .. } => {}
            Step::Report { thread, how, times } => (0..times).for_each(|_| self.end(thread, how, false, None)),
            Step::Hand { record, word, after } => {
                let until = after.map(|after| self.now + after);
                let what = match word {
                    ToolStatus::Available => What::Clear,
                    ToolStatus::Failed => What::FailByHand { until },
                    _ => What::Hold { maintenance: word == ToolStatus::Maintenance, until },
                };
                let until = until.map(Timestamp::from_millis);
                self.tell(record, &Event::by_hand(word, Some("words".into()), until), what);
            }
            Step::ResetThread { thread } => {
                self.tell(thread, &Event::Reset, What::Forget);
                self.tell(SHARED, &Event::CoolDownEnded, What::EndWait);
            }
            Step::ResetAll { record } => self.tell(record, &Event::Reset, What::Forget),
            Step::Healthy { record } => self.tell(record, &Event::Healthy, What::Well),
            Step::Set { on, threshold, windowed, refusals, present } => {
                let window = FailureWindow { failure_rate: 0.6, window: Duration::from_secs(60), minimum_calls: 4 };
                self.settings.enabled = on;
                self.settings.failure_threshold = threshold;
                self.settings.failure_window = windowed.then_some(window);
                self.settings.count_tool_errors = refusals;
                self.present = present;
            }
            Step::Restart => {
                let text = serde_json::to_string(&self.facts).unwrap();
                self.facts = serde_json::from_str(&text).unwrap();
            }
            Step::Save { record } => self.saved.push((self.facts[record].clone(), self.records[record].clone())),
            Step::Restore { record, which, epoch, permit } => {
                if let Some((facts, log)) = self.saved.iter().rev().nth(which).cloned() {
                    let elsewhere = log.age() != self.records[record].age();
                    self.meet(if elsewhere { "restored" } else { "restored as it was" });
                    self.restore(record, Facts { epoch: epoch.unwrap_or(facts.epoch), ..facts }, permit, &log);
                }
            }
            Step::Alien { record, began, lasts, openings, row } => {
                let (start, end) = (self.now + began, self.now + began + lasts);
                let breaker = Breaker::Open {
                    since: Timestamp::from_millis(start),
                    until: Timestamp::from_millis(end),
                    openings,
                    cause: Cause::InARow,
                    probe: None,
                };
                let facts = Facts { breaker, consecutive_failures: row, epoch: u64::MAX, ..Facts::default() };
                let mut log = Record::default();
                log.add(start, What::Alien { end, streak: openings, row }, self.rules(), 0);
                self.meet("restored from a foreign life");
                self.restore(record, facts, true, &log);
            }
        }
    }

    /// Puts a saved record in the place of the present one, as a text that anybody may have written. With `permit` it
    /// claims that a call which runs here is the probe.
    fn restore(&mut self, record: usize, mut facts: Facts, permit: bool, log: &Record) {
        let now = Timestamp::from_millis(self.now);
        if let (true, Breaker::Open { probe, .. }) = (permit, &mut facts.breaker) {
            let id = self.running.last().map_or_else(|| CallId::mint(now), |call| call.id);
            *probe = Some(Permit { id, taken: now, lease_until: now + Duration::from_secs(30) });
        }
        if matches!(facts.breaker, Breaker::Open { probe: Some(_), .. }) {
            self.meet("restored a permit");
        }
        if !self.running.is_empty() {
            self.meet("restored under a running call");
        }
        let text = serde_json::to_string(&facts).unwrap();
        let event = Event::Restored(Box::new(serde_json::from_str(&text).unwrap()));
        self.facts[record] = apply(&self.facts[record], &event, &self.settings, now, 0.0);
        let rules = self.rules();
        self.records[record].restore(log, self.now, rules);
    }

    fn call(&mut self, thread: Option<usize>) {
        let admission = self.admission(thread);
        let mut probes = [false; 3];
        match admission {
            Admission::Pass => self.meet("passed"),
            Admission::WaitForProbe => return self.come_late(thread, "waited for a probe"),
            Admission::Refuse { .. } => return self.come_late(thread, "refused"),
            Admission::Probe { thread: own, shared } => {
                self.meet("probed");
                probes[SHARED] = shared;
                if let Some(thread) = thread {
                    probes[thread] = own;
                }
            }
        }
        self.calls += 1;
        let (number, id) = (self.calls, CallId::mint(Timestamp::from_millis(self.now)));
        for record in (0..3).filter(|record| probes[*record]) {
            self.tell(record, &Event::ProbeTaken { id, lease: Duration::from_secs(30) }, What::Take { call: number });
            assert!(self.facts[record].is_probed_by(id), "an admitted probe gets the permit");
        }
        let epochs = self.facts.each_ref().map(|facts| facts.epoch);
        let seen = self.records.each_ref().map(Record::age);
        self.running.push(Running { number, id, thread, epochs, seen, probes });
    }

    /// A call that may not probe asks for the permit all the same, as one does that decided a moment too early.
    fn come_late(&mut self, thread: Option<usize>, why: &'static str) {
        self.meet(why);
        self.calls += 1;
        let (call, id) = (self.calls, CallId::mint(Timestamp::from_millis(self.now)));
        for record in thread.into_iter().chain([SHARED]) {
            self.tell(record, &Event::ProbeTaken { id, lease: Duration::from_secs(30) }, What::Take { call });
        }
    }

    fn end(&mut self, thread: Option<usize>, how: Option<ErrorKind>, connecting: bool, call: Option<&Running>) {
        let who = thread.map(|thread| Sufferer::new(&Tenant::default(), &ThreadId::new(["a", "b"][thread]).unwrap()));
        if let (Some(ErrorKind::Timeout), Some(by), Some(thread)) = (how, &who, thread) {
            self.tell(SHARED, &Event::TimedOut { by: by.clone() }, What::Slow { who: thread });
        }
        let probes = call.map_or([false; 3], |call| call.probes);
        let counted = how.map(|kind| {
            let circumstances = Circumstances {
                thread: who,
                connecting,
                probes_thread: thread.is_some_and(|thread| probes[thread]),
                probes_shared: probes[SHARED],
            };
            let counting = count_in(kind, &circumstances, &self.facts[SHARED], &self.settings);
            let expected = self.expected_counting(kind, thread, connecting, probes);
            assert_eq!((counting.thread, counting.shared), expected, "{kind:?}");
            expected
        });
        for record in thread.into_iter().chain([SHARED]) {
            let (epoch, seen) = (call.map(|call| call.epochs[record]), call.map(|call| call.seen[record]));
            let counts = counted.map(|(own, shared)| if record == SHARED { shared } else { own });
            let (answer, what) = match (how, counts) {
                (Some(kind), Some(true)) => (Answer::Failure { kind, text: "text".into() }, What::Bad { seen }),
                (Some(_), _) => (Answer::Uncounted, What::Neutral { seen }),
                (None, _) => (Answer::Success, What::Good { seen }),
            };
            if epoch.is_some_and(|epoch| epoch != self.facts[record].epoch) {
                self.meet("late result");
            }
            self.tell(record, &Event::Answered { answer, epoch }, what);
        }
    }

    /// The error table once more, by hand.
    fn expected_counting(
        &self,
        kind: ErrorKind,
        thread: Option<usize>,
        connecting: bool,
        probes: [bool; 3],
    ) -> (bool, bool) {
        let (own, shared) = match (kind, thread) {
            (ErrorKind::ToolRefused, _) if !self.settings.count_tool_errors => return (false, false),
            (ErrorKind::ToolError | ErrorKind::Crashed | ErrorKind::ToolRefused, Some(_)) => (true, false),
            (ErrorKind::Timeout, Some(own)) => (true, connecting || self.records[SHARED].others_slow(own)),
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
        admit(own, &self.facts[SHARED], &self.presence(), &self.settings, now)
    }
}

//! Reference implementation of the status machine: a record that logs every event and derives everything else from the log.
//!
//! Written against the rules, not against the machine: no counters, no epochs, no stored breaker. The log is cut into
//! segments at the entries where the breaker opened or closed, and every question is answered by scanning it.

/// The settings at the time of an event.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReferenceSettings {
    pub(super) enabled: bool,
    pub(super) threshold: u32,
    pub(super) windowed: bool,
}

/// An event. `events_seen` is the length of the log when the call was admitted; `None` for externally reported results. In
/// the log it is relative to the log's beginning, and negative for a call from before a restore. `RestoredForeign` starts a log
/// with an open breaker after `streak` openings and `failures` consecutive failures; `Restored` marks the log before it as saved.
#[derive(Debug, Clone, Copy)]
pub(super) enum LoggedEvent {
    Success { events_seen: Option<i64> },
    Failure { events_seen: Option<i64> },
    Uncounted { events_seen: Option<i64> },
    ProbeTaken { call: usize },
    ProbeReleased { call: usize },
    TimedOut { thread: usize },
    Healthy,
    Overridden { maintenance: bool, until: Option<i64> },
    ForcedFailed { until: Option<i64> },
    ForcedAvailable,
    CoolDownEnded,
    Reset,
    RestoredForeign { end: i64, streak: u32, failures: u32 },
    Restored,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    at: i64,
    event: LoggedEvent,
    settings: ReferenceSettings,
    /// In thousandths.
    jitter: i64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum OpenCause {
    InARow,
    Rate(usize, usize),
    Forced,
}

/// The part of the log since the breaker last opened or closed, or a probe was taken.
#[derive(Debug, Clone, Copy)]
struct Segment {
    from: usize,
    timeouts_from: usize,
    open_breaker: Option<OpenBreaker>,
}

#[derive(Debug, Clone, Copy)]
struct OpenBreaker {
    start: i64,
    end: i64,
    streak: u32,
    cause: OpenCause,
    consecutive_failures: usize,
    probe: Option<(usize, i64)>,
}

/// The status of a record according to the reference.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ExpectedStatus {
    pub(super) status: &'static str,
    pub(super) reason: String,
    pub(super) probation: bool,
    pub(super) probed: bool,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Record {
    log: Vec<Entry>,
    /// The number of events of the record before this log replaced the previous one.
    events_before: i64,
}

const LEASE: i64 = 30_000;

fn interval_contains(start: i64, end: i64, at: i64) -> bool {
    let skew = if at < start { start - at } else { 0 };
    at < end && skew <= 5_000 && skew <= end - start
}

impl Record {
    /// The number of events of the record, including those before a restore.
    pub(super) fn total_events(&self) -> i64 {
        self.events_before + self.log.len() as i64
    }

    /// Replaces this log by a saved one. Calls admitted before no longer count.
    pub(super) fn restore(&mut self, saved: &Self, at: i64, settings: ReferenceSettings) {
        *self = Self { events_before: self.total_events() + 1, log: saved.log.clone() };
        self.add(at, LoggedEvent::Restored, settings, 0);
    }

    pub(super) fn add(&mut self, at: i64, event: LoggedEvent, settings: ReferenceSettings, jitter: i64) {
        let relative = |events_seen: Option<i64>| events_seen.map(|events_seen| events_seen - self.events_before);
        let event = match event {
            LoggedEvent::Success { events_seen } => LoggedEvent::Success { events_seen: relative(events_seen) },
            LoggedEvent::Failure { events_seen } => LoggedEvent::Failure { events_seen: relative(events_seen) },
            LoggedEvent::Uncounted { events_seen } => LoggedEvent::Uncounted { events_seen: relative(events_seen) },
            other => other,
        };
        self.log.push(Entry { at, event, settings, jitter });
    }

    /// Whether a thread other than this one timed out since the last success.
    pub(super) fn has_other_timeouts(&self, own: usize) -> bool {
        let from = self.segment().timeouts_from;
        self.log[from..].iter().any(
            |entry| matches!(entry.event, LoggedEvent::TimedOut { thread } if thread != own && entry.settings.enabled),
        )
    }

    pub(super) fn evaluate(&self, is_ready: bool, settings: ReferenceSettings, at: i64) -> ExpectedStatus {
        let segment = self.segment();
        let end_of_log = self.log.len();
        let cooling = segment.open_breaker.filter(|_| {
            let (start, end) = self.cool_down(&segment, end_of_log);
            settings.enabled && interval_contains(start, end, at)
        });
        let probation = settings.enabled && segment.open_breaker.is_some() && cooling.is_none();
        let probed = self
            .active_probe(&segment, end_of_log)
            .is_some_and(|(_, taken)| interval_contains(taken, taken + LEASE, at));
        let expected =
            |status, reason: &str| ExpectedStatus { status, reason: reason.into(), probation: false, probed };
        match (self.active_override(at), cooling) {
            (Some(true), _) => expected("maintenance", "in maintenance: message"),
            (_, Some(OpenBreaker { cause: OpenCause::InARow, consecutive_failures: 1, .. })) => {
                expected("failed", "failed once")
            }
            (_, Some(OpenBreaker { cause: OpenCause::InARow, consecutive_failures, .. })) => {
                expected("failed", &format!("failed {consecutive_failures} times in a row"))
            }
            (_, Some(OpenBreaker { cause: OpenCause::Rate(failed, total), .. })) => {
                expected("failed", &format!("{failed} of the last {total} calls failed"))
            }
            (_, Some(_)) => expected("failed", "set to failed by an operator: message"),
            (Some(false), None) => expected("unavailable", "set to unavailable by an operator: message"),
            (None, None) if !is_ready => expected("unavailable", "disabled"),
            (None, None) if probation => ExpectedStatus { probation, ..expected("available", "on probation") },
            (None, None) => expected("available", &self.available_reason(&segment)),
        }
    }

    /// Whether the cool-down begins in the future, beyond the allowed clock skew.
    pub(super) fn is_in_future(&self, at: i64) -> bool {
        let segment = self.segment();
        let (start, end) = self.cool_down(&segment, self.log.len());
        segment.open_breaker.is_some() && start < end && at < start && !interval_contains(start, end, at)
    }

    /// All times at which the status could change without an event.
    pub(super) fn transition_times(&self) -> Vec<i64> {
        let segment = self.segment();
        let override_ends = self.log.iter().filter_map(|entry| match entry.event {
            LoggedEvent::Overridden { until, .. } => until,
            _ => None,
        });
        override_ends.chain(segment.open_breaker.map(|_| self.cool_down(&segment, self.log.len()).1)).collect()
    }

    /// The operator's override: whether it is maintenance.
    fn active_override(&self, at: i64) -> Option<bool> {
        let last = self.log.iter().rev().find_map(|entry| match entry.event {
            LoggedEvent::Overridden { maintenance, until } => Some(Some((maintenance, until))),
            LoggedEvent::ForcedAvailable | LoggedEvent::Reset => Some(None),
            _ => None,
        });
        let (maintenance, until) = last.flatten()?;
        until.is_none_or(|until| until > at).then_some(maintenance)
    }

    fn available_reason(&self, segment: &Segment) -> String {
        // With counting off the breaker may still be open; then the failures it opened with apply.
        let failures = segment.open_breaker.map_or_else(
            || self.count_consecutive_failures(segment.from, self.log.len()),
            |open| open.consecutive_failures,
        );
        let last_reset = self.log.iter().rposition(|entry| matches!(entry.event, LoggedEvent::Reset));
        let last = |is_match: fn(&LoggedEvent) -> bool| {
            self.log[last_reset.unwrap_or(0)..].iter().rev().find(|entry| is_match(&entry.event)).map(|entry| entry.at)
        };
        let success = last(|event| matches!(event, LoggedEvent::Success { .. }));
        let failure = last(|event| matches!(event, LoggedEvent::Failure { .. }));
        match (failures, success, failure) {
            (1, ..) => "the last call failed".into(),
            (2.., ..) => format!("the last {failures} calls failed"),
            (0, None, None) if last_reset.is_some() => "reset, not run since".into(),
            (0, None, None) => "never run".into(),
            (0, Some(success), Some(failure)) if success < failure => "available again".into(),
            (0, None, Some(_)) => "available again".into(),
            (0, Some(_), _) => "executed successfully".into(),
        }
    }

    fn segment(&self) -> Segment {
        let mut segment = Segment { from: 0, timeouts_from: 0, open_breaker: None };
        while let Some(next) = (segment.from..self.log.len()).find_map(|index| self.next_segment(&segment, index)) {
            segment = next;
        }
        segment.timeouts_from = self.timeouts_start(&segment, self.log.len());
        segment
    }

    /// The segment that begins after this entry, if one does.
    fn next_segment(&self, segment: &Segment, index: usize) -> Option<Segment> {
        let entry = self.log[index];
        let from = index + 1;
        let closed = Some(Segment { from, timeouts_from: from, open_breaker: None });
        let open = |length: i64, streak, cause, consecutive_failures| {
            let (start, end) = (entry.at, entry.at + length);
            let open_breaker = Some(OpenBreaker { start, end, streak, cause, consecutive_failures, probe: None });
            Some(Segment { from, timeouts_from: self.timeouts_start(segment, index), open_breaker })
        };
        let failures = segment
            .open_breaker
            .map_or_else(|| self.count_consecutive_failures(segment.from, from), |open| open.consecutive_failures);
        match (entry.event, segment.open_breaker) {
            (LoggedEvent::ForcedAvailable | LoggedEvent::Reset, _) => return closed,
            (LoggedEvent::RestoredForeign { end, streak, failures }, _) => {
                return open(end - entry.at, streak, OpenCause::InARow, failures as usize);
            }
            (LoggedEvent::ForcedFailed { until }, _) => {
                return open(until.map_or(300_000, |until| until - entry.at), 1, OpenCause::Forced, failures);
            }
            (LoggedEvent::Healthy, Some(OpenBreaker { cause, .. }))
                if entry.settings.enabled && cause != OpenCause::Forced =>
            {
                return closed;
            }
            (LoggedEvent::Failure { .. }, None) if entry.settings.enabled && is_current(&entry, segment.from) => {
                if failures >= entry.settings.threshold.max(1) as usize {
                    return open(300_000, 1, OpenCause::InARow, failures);
                }
                let (failed, total) = self.window_counts(segment.from, index);
                let too_often = entry.settings.windowed && total >= 4 && failed * 10 >= total * 6;
                return if too_often { open(300_000, 1, OpenCause::Rate(failed, total), failures) } else { None };
            }
            _ => {}
        }
        let current = segment.open_breaker.filter(|_| entry.settings.enabled)?;
        let (start, end) = self.cool_down(segment, index);
        let probe = self.active_probe(segment, index);
        let on_probation = !interval_contains(start, end, entry.at);
        match entry.event {
            LoggedEvent::ProbeTaken { call } => {
                let is_free =
                    on_probation && !probe.is_some_and(|(_, taken)| interval_contains(taken, taken + LEASE, entry.at));
                let open_breaker = Some(OpenBreaker { start, end, probe: Some((call, entry.at)), ..current });
                is_free.then_some(Segment { from, timeouts_from: self.timeouts_start(segment, index), open_breaker })
            }
            _ if !is_current(&entry, segment.from) || !(on_probation || probe.is_some()) => None,
            LoggedEvent::Success { .. } | LoggedEvent::Uncounted { .. } => closed,
            LoggedEvent::Failure { .. } => {
                let full = (300_000_i64 << current.streak.min(20)).min(3_600_000);
                // A foreign record may hold the largest numbers; counting saturates there.
                let failures = (failures + 1).min(u32::MAX as usize);
                open(full - full * entry.jitter / 5_000, current.streak.saturating_add(1), OpenCause::InARow, failures)
            }
            _ => None,
        }
    }

    /// The number of counted failures in this part of the log after its last success.
    fn count_consecutive_failures(&self, from: usize, to: usize) -> usize {
        let current = self.log[from..to].iter().rev().filter(|entry| is_current(entry, from));
        let since_success = current.take_while(|entry| !matches!(entry.event, LoggedEvent::Success { .. }));
        since_success
            .filter(|entry| entry.settings.enabled && matches!(entry.event, LoggedEvent::Failure { .. }))
            .count()
    }

    /// Failures and results in the ten slices of six seconds up to this entry. A sample that once left the
    /// window, because time jumped either way, does not return.
    fn window_counts(&self, from: usize, to: usize) -> (usize, usize) {
        let samples: Vec<_> = self.log[from..=to]
            .iter()
            .filter(|entry| entry.settings.enabled && entry.settings.windowed && is_current(entry, from))
            .filter(|entry| matches!(entry.event, LoggedEvent::Success { .. } | LoggedEvent::Failure { .. }))
            .map(|entry| (entry.at.div_euclid(6_000), matches!(entry.event, LoggedEvent::Failure { .. })))
            .collect();
        let in_window = samples.iter().enumerate().filter(|(index, (slice, _))| {
            samples[*index..].iter().all(|(later, _)| (0..10).contains(&(later - slice)))
        });
        let failed = in_window.clone().filter(|(_, (_, failed))| *failed).count();
        (failed, in_window.count())
    }

    /// Start and end of the cool-down, after the entries of the segment.
    fn cool_down(&self, segment: &Segment, to: usize) -> (i64, i64) {
        let (start, end) = segment.open_breaker.map_or((0, 0), |open| (open.start, open.end));
        let ends = self.log[segment.from..to].iter().filter(|entry| matches!(entry.event, LoggedEvent::CoolDownEnded));
        // Every such event cuts the rest, so the earliest one decides, if it precedes the regular end.
        ends.map(|entry| entry.at).min().filter(|cut| *cut < end).map_or((start, end), |cut| (cut, cut))
    }

    /// The call that holds the probe lease, unless it released it. A restore drops the lease.
    fn active_probe(&self, segment: &Segment, to: usize) -> Option<(usize, i64)> {
        let (holder, taken) = segment.open_breaker?.probe?;
        let ends_lease = |entry: &Entry| match entry.event {
            LoggedEvent::ProbeReleased { call } => call == holder,
            LoggedEvent::Restored => true,
            _ => false,
        };
        (!self.log[segment.from..to].iter().any(ends_lease)).then_some((holder, taken))
    }

    /// The index from which timeouts matter: after the last success that counted while the breaker was closed.
    fn timeouts_start(&self, segment: &Segment, to: usize) -> usize {
        let is_success =
            |entry: &Entry| matches!(entry.event, LoggedEvent::Success { .. }) && is_current(entry, segment.from);
        let last_success =
            self.log[segment.from..to].iter().rposition(is_success).filter(|_| segment.open_breaker.is_none());
        last_success.map_or(segment.timeouts_from, |index| segment.from + index + 1)
    }
}

/// Whether the call of a result was admitted after the segment began.
fn is_current(entry: &Entry, from: usize) -> bool {
    match entry.event {
        LoggedEvent::Success { events_seen }
        | LoggedEvent::Failure { events_seen }
        | LoggedEvent::Uncounted { events_seen } => events_seen.is_none_or(|events_seen| events_seen >= from as i64),
        _ => false,
    }
}

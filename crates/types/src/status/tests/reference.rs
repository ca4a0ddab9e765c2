//! A second opinion for the tests: a record that keeps everything that ever happened and works out the rest anew.
//!
//! Written against the rules, not against the machine: no counters, no epochs, no stored breaker. The log is cut into
//! segments at the entries where calls began or ceased to flow, and every question is answered by scanning it.

/// What the owner had set when something happened.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReferenceSettings {
    pub(super) enabled: bool,
    pub(super) threshold: u32,
    pub(super) windowed: bool,
}

/// What happened. `seen` is how much of the log the call had behind it when it was let in; none for foreign results. In
/// the log it is counted from the log's beginning, and is below zero for a call of an earlier life. `Alien` begins a log
/// in the middle, blocked after so many waits and failures in a row; `Reborn` says that the log up to here was saved.
#[derive(Debug, Clone, Copy)]
pub(super) enum LoggedEvent {
    Success { seen: Option<i64> },
    Failure { seen: Option<i64> },
    Uncounted { seen: Option<i64> },
    ProbeTaken { call: usize },
    ProbeReleased { call: usize },
    TimedOut { who: usize },
    Healthy,
    Overridden { maintenance: bool, until: Option<i64> },
    ForcedFailed { until: Option<i64> },
    ForcedAvailable,
    CoolDownEnded,
    Reset,
    RestoredForeign { end: i64, streak: u32, row: u32 },
    Restored,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    at: i64,
    event: LoggedEvent,
    settings: ReferenceSettings,
    /// Thousandths.
    jitter: i64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum OpenCause {
    InARow,
    Rate(usize, usize),
    Forced,
}

/// The part of the log since calls last began or ceased to flow.
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

/// What the reference says of a record.
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
    /// How much was behind the record when this log took its place.
    events_before: i64,
}

const LEASE: i64 = 30_000;

fn interval_contains(start: i64, end: i64, at: i64) -> bool {
    let ahead = if at < start { start - at } else { 0 };
    at < end && ahead <= 5_000 && ahead <= end - start
}

impl Record {
    /// How much is behind the record, in this life and those before.
    pub(super) fn total_events(&self) -> i64 {
        self.events_before + self.log.len() as i64
    }

    /// A log that was saved takes the place of this one. Whoever was let in before belongs to another life.
    pub(super) fn restore(&mut self, saved: &Self, at: i64, rules: ReferenceSettings) {
        *self = Self { events_before: self.total_events() + 1, log: saved.log.clone() };
        self.add(at, LoggedEvent::Restored, rules, 0);
    }

    pub(super) fn add(&mut self, at: i64, what: LoggedEvent, rules: ReferenceSettings, jitter: i64) {
        let here = |seen: Option<i64>| seen.map(|seen| seen - self.events_before);
        let what = match what {
            LoggedEvent::Success { seen } => LoggedEvent::Success { seen: here(seen) },
            LoggedEvent::Failure { seen } => LoggedEvent::Failure { seen: here(seen) },
            LoggedEvent::Uncounted { seen } => LoggedEvent::Uncounted { seen: here(seen) },
            other => other,
        };
        self.log.push(Entry { at, event: what, settings: rules, jitter });
    }

    /// Whether a thread other than this one timed out since the tool last worked.
    pub(super) fn has_other_timeouts(&self, own: usize) -> bool {
        let from = self.segment().timeouts_from;
        self.log[from..]
            .iter()
            .any(|entry| matches!(entry.event, LoggedEvent::TimedOut { who } if who != own && entry.settings.enabled))
    }

    pub(super) fn evaluate(&self, present: bool, rules: ReferenceSettings, at: i64) -> ExpectedStatus {
        let segment = self.segment();
        let all = self.log.len();
        let cooling = segment.open_breaker.filter(|_| {
            let (start, end) = self.cool_down(&segment, all);
            rules.enabled && interval_contains(start, end, at)
        });
        let probation = rules.enabled && segment.open_breaker.is_some() && cooling.is_none();
        let probed =
            self.active_probe(&segment, all).is_some_and(|(_, taken)| interval_contains(taken, taken + LEASE, at));
        let told =
            |word, reason: &str| ExpectedStatus { status: word, reason: reason.into(), probation: false, probed };
        match (self.active_override(at), cooling) {
            (Some(true), _) => told("maintenance", "under maintenance: words"),
            (_, Some(OpenBreaker { cause: OpenCause::InARow, consecutive_failures: 1, .. })) => {
                told("failed", "failed once")
            }
            (_, Some(OpenBreaker { cause: OpenCause::InARow, consecutive_failures: row, .. })) => {
                told("failed", &format!("failed {row} times in a row"))
            }
            (_, Some(OpenBreaker { cause: OpenCause::Rate(bad, total), .. })) => {
                told("failed", &format!("{bad} of the last {total} calls failed"))
            }
            (_, Some(_)) => told("failed", "set to failed by an operator: words"),
            (Some(false), None) => told("unavailable", "switched off by an operator: words"),
            (None, None) if !present => told("unavailable", "disabled"),
            (None, None) if probation => ExpectedStatus { probation, ..told("available", "on probation") },
            (None, None) => told("available", &self.available_reason(&segment)),
        }
    }

    /// Whether the wait seems to begin later, and not just a little.
    pub(super) fn is_in_future(&self, at: i64) -> bool {
        let segment = self.segment();
        let (start, end) = self.cool_down(&segment, self.log.len());
        segment.open_breaker.is_some() && start < end && at < start && !interval_contains(start, end, at)
    }

    /// Every moment at which a word could change by itself.
    pub(super) fn transition_times(&self) -> Vec<i64> {
        let segment = self.segment();
        let held = self.log.iter().filter_map(|entry| match entry.event {
            LoggedEvent::Overridden { until, .. } => until,
            _ => None,
        });
        held.chain(segment.open_breaker.map(|_| self.cool_down(&segment, self.log.len()).1)).collect()
    }

    /// The operator's word: maintenance or not.
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
        // With counting off a blocked record may be asked too; the row it was blocked with is still true.
        let row = segment.open_breaker.map_or_else(
            || self.count_consecutive_failures(segment.from, self.log.len()),
            |blocked| blocked.consecutive_failures,
        );
        let born = self.log.iter().rposition(|entry| matches!(entry.event, LoggedEvent::Reset)).unwrap_or(0);
        let last = |wanted: fn(&LoggedEvent) -> bool| {
            self.log[born..].iter().rev().find(|it| wanted(&it.event)).map(|it| it.at)
        };
        let good = last(|what| matches!(what, LoggedEvent::Success { .. }));
        let bad = last(|what| matches!(what, LoggedEvent::Failure { .. }));
        match (row, good, bad) {
            (1, ..) => "the last call failed".into(),
            (2.., ..) => format!("the last {row} calls failed"),
            (0, None, None) => "never run".into(),
            (0, Some(good), Some(bad)) if good < bad => "available again".into(),
            (0, None, Some(_)) => "available again".into(),
            (0, Some(_), _) => "executed successfully".into(),
        }
    }

    fn segment(&self) -> Segment {
        let mut segment = Segment { from: 0, timeouts_from: 0, open_breaker: None };
        while let Some(next) = (segment.from..self.log.len()).find_map(|at| self.next_segment(&segment, at)) {
            segment = next;
        }
        segment.timeouts_from = self.timeouts_start(&segment, self.log.len());
        segment
    }

    /// The segment that begins after this entry, if one does.
    fn next_segment(&self, segment: &Segment, at: usize) -> Option<Segment> {
        let entry = self.log[at];
        let from = at + 1;
        let flowing = Some(Segment { from, timeouts_from: from, open_breaker: None });
        let blocked = |length: i64, streak, why, row| {
            let (start, end) = (entry.at, entry.at + length);
            let blocked = Some(OpenBreaker { start, end, streak, cause: why, consecutive_failures: row, probe: None });
            Some(Segment { from, timeouts_from: self.timeouts_start(segment, at), open_breaker: blocked })
        };
        let row = segment.open_breaker.map_or_else(
            || self.count_consecutive_failures(segment.from, from),
            |blocked| blocked.consecutive_failures,
        );
        match (entry.event, segment.open_breaker) {
            (LoggedEvent::ForcedAvailable | LoggedEvent::Reset, _) => return flowing,
            (LoggedEvent::RestoredForeign { end, streak, row }, _) => {
                return blocked(end - entry.at, streak, OpenCause::InARow, row as usize);
            }
            (LoggedEvent::ForcedFailed { until }, _) => {
                return blocked(until.map_or(300_000, |until| until - entry.at), 1, OpenCause::Forced, row);
            }
            (LoggedEvent::Healthy, Some(OpenBreaker { cause: why, .. }))
                if entry.settings.enabled && why != OpenCause::Forced =>
            {
                return flowing;
            }
            (LoggedEvent::Failure { .. }, None) if entry.settings.enabled && is_current(&entry, segment.from) => {
                if row >= entry.settings.threshold.max(1) as usize {
                    return blocked(300_000, 1, OpenCause::InARow, row);
                }
                let (bad, total) = self.window_counts(segment.from, at);
                let often = entry.settings.windowed && total >= 4 && bad * 10 >= total * 6;
                return if often { blocked(300_000, 1, OpenCause::Rate(bad, total), row) } else { None };
            }
            _ => {}
        }
        let now = segment.open_breaker.filter(|_| entry.settings.enabled)?;
        let (start, end) = self.cool_down(segment, at);
        let asker = self.active_probe(segment, at);
        let over = !interval_contains(start, end, entry.at);
        match entry.event {
            LoggedEvent::ProbeTaken { call } => {
                let free = over && !asker.is_some_and(|(_, taken)| interval_contains(taken, taken + LEASE, entry.at));
                let blocked = Some(OpenBreaker { start, end, probe: Some((call, entry.at)), ..now });
                free.then_some(Segment { from, timeouts_from: self.timeouts_start(segment, at), open_breaker: blocked })
            }
            _ if !is_current(&entry, segment.from) || !(over || asker.is_some()) => None,
            LoggedEvent::Success { .. } | LoggedEvent::Uncounted { .. } => flowing,
            LoggedEvent::Failure { .. } => {
                let full = (300_000_i64 << now.streak.min(20)).min(3_600_000);
                // Numbers that somebody else wrote may be as large as numbers get; there they stay.
                let row = (row + 1).min(u32::MAX as usize);
                blocked(full - full * entry.jitter / 5_000, now.streak.saturating_add(1), OpenCause::InARow, row)
            }
            _ => None,
        }
    }

    /// How many counted failures stand at the end of this part of the log, with no success behind them.
    fn count_consecutive_failures(&self, from: usize, to: usize) -> usize {
        let heard = self.log[from..to].iter().rev().filter(|entry| is_current(entry, from));
        let since_good = heard.take_while(|entry| !matches!(entry.event, LoggedEvent::Success { .. }));
        since_good.filter(|entry| entry.settings.enabled && matches!(entry.event, LoggedEvent::Failure { .. })).count()
    }

    /// Failures and results in the ten slices of six seconds up to this entry. A sample that once fell out of the
    /// window, because time jumped either way, does not return.
    fn window_counts(&self, from: usize, to: usize) -> (usize, usize) {
        let samples: Vec<_> = self.log[from..=to]
            .iter()
            .filter(|entry| entry.settings.enabled && entry.settings.windowed && is_current(entry, from))
            .filter(|entry| matches!(entry.event, LoggedEvent::Success { .. } | LoggedEvent::Failure { .. }))
            .map(|entry| (entry.at.div_euclid(6_000), matches!(entry.event, LoggedEvent::Failure { .. })))
            .collect();
        let kept = samples.iter().enumerate().filter(|(index, (slice, _))| {
            samples[*index..].iter().all(|(later, _)| (0..10).contains(&(later - slice)))
        });
        let bad = kept.clone().filter(|(_, (_, bad))| *bad).count();
        (bad, kept.count())
    }

    /// Start and end of the wait, as the entries of the segment left it.
    fn cool_down(&self, segment: &Segment, to: usize) -> (i64, i64) {
        let (start, end) = segment.open_breaker.map_or((0, 0), |blocked| (blocked.start, blocked.end));
        let ends = self.log[segment.from..to].iter().filter(|entry| matches!(entry.event, LoggedEvent::CoolDownEnded));
        // Every end cuts what is left, so the earliest one decides, if it is earlier than the wait's own.
        ends.map(|entry| entry.at).min().filter(|cut| *cut < end).map_or((start, end), |cut| (cut, cut))
    }

    /// Who probes: the call that took the permit, unless it gave it back. A permit is not saved: it was not taken here.
    fn active_probe(&self, segment: &Segment, to: usize) -> Option<(usize, i64)> {
        let (asker, taken) = segment.open_breaker?.probe?;
        let over = |entry: &Entry| match entry.event {
            LoggedEvent::ProbeReleased { call } => call == asker,
            LoggedEvent::Restored => true,
            _ => false,
        };
        (!self.log[segment.from..to].iter().any(over)).then_some((asker, taken))
    }

    /// Where timeouts begin to matter: after the last success that was heard while calls flowed.
    fn timeouts_start(&self, segment: &Segment, to: usize) -> usize {
        let heard =
            |entry: &Entry| matches!(entry.event, LoggedEvent::Success { .. }) && is_current(entry, segment.from);
        let good = self.log[segment.from..to].iter().rposition(heard).filter(|_| segment.open_breaker.is_none());
        good.map_or(segment.timeouts_from, |good| segment.from + good + 1)
    }
}

/// Whether a result was let in after the last turn.
fn is_current(entry: &Entry, from: usize) -> bool {
    match entry.event {
        LoggedEvent::Success { seen } | LoggedEvent::Failure { seen } | LoggedEvent::Uncounted { seen } => {
            seen.is_none_or(|seen| seen >= from as i64)
        }
        _ => false,
    }
}

//! A second opinion for the tests: a record that keeps everything that ever happened and works out the rest anew.
//!
//! Written against the rules, not against the machine: no counters, no epochs, no stored breaker. The log is cut into
//! segments at the entries where calls began or ceased to flow, and every question is answered by scanning it.

/// What the owner had set when something happened.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    pub(super) on: bool,
    pub(super) threshold: u32,
    pub(super) windowed: bool,
}

/// What happened. `seen` is how much of the log the call had behind it when it was let in; none for foreign results. In
/// the log it is counted from the log's beginning, and is below zero for a call of an earlier life. `Alien` begins a log
/// in the middle, blocked after so many waits and failures in a row; `Reborn` says that the log up to here was saved.
#[derive(Debug, Clone, Copy)]
pub(super) enum What {
    Good { seen: Option<i64> },
    Bad { seen: Option<i64> },
    Neutral { seen: Option<i64> },
    Take { call: usize },
    GiveBack { call: usize },
    Slow { who: usize },
    Well,
    Hold { maintenance: bool, until: Option<i64> },
    FailByHand { until: Option<i64> },
    Clear,
    EndWait,
    Forget,
    Alien { end: i64, streak: u32, row: u32 },
    Reborn,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    at: i64,
    what: What,
    rules: Rules,
    /// Thousandths.
    jitter: i64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Why {
    Row,
    Rate(usize, usize),
    Hand,
}

/// The part of the log since calls last began or ceased to flow.
#[derive(Debug, Clone, Copy)]
struct Segment {
    from: usize,
    slow_from: usize,
    blocked: Option<Blocked>,
}

#[derive(Debug, Clone, Copy)]
struct Blocked {
    start: i64,
    end: i64,
    streak: u32,
    why: Why,
    row: usize,
    asker: Option<(usize, i64)>,
}

/// What the reference says of a record.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Seen {
    pub(super) word: &'static str,
    pub(super) reason: String,
    pub(super) probation: bool,
    pub(super) probed: bool,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Record {
    log: Vec<Entry>,
    /// How much was behind the record when this log took its place.
    before: i64,
}

const LEASE: i64 = 30_000;

fn holds(start: i64, end: i64, at: i64) -> bool {
    let ahead = if at < start { start - at } else { 0 };
    at < end && ahead <= 5_000 && ahead <= end - start
}

impl Record {
    /// How much is behind the record, in this life and those before.
    pub(super) fn age(&self) -> i64 {
        self.before + self.log.len() as i64
    }

    /// A log that was saved takes the place of this one. Whoever was let in before belongs to another life.
    pub(super) fn restore(&mut self, saved: &Self, at: i64, rules: Rules) {
        *self = Self { before: self.age() + 1, log: saved.log.clone() };
        self.add(at, What::Reborn, rules, 0);
    }

    pub(super) fn add(&mut self, at: i64, what: What, rules: Rules, jitter: i64) {
        let here = |seen: Option<i64>| seen.map(|seen| seen - self.before);
        let what = match what {
            What::Good { seen } => What::Good { seen: here(seen) },
            What::Bad { seen } => What::Bad { seen: here(seen) },
            What::Neutral { seen } => What::Neutral { seen: here(seen) },
            other => other,
        };
        self.log.push(Entry { at, what, rules, jitter });
    }

    /// Whether a thread other than this one timed out since the tool last worked.
    pub(super) fn others_slow(&self, own: usize) -> bool {
        let from = self.segment().slow_from;
        self.log[from..].iter().any(|entry| matches!(entry.what, What::Slow { who } if who != own && entry.rules.on))
    }

    pub(super) fn see(&self, present: bool, rules: Rules, at: i64) -> Seen {
        let segment = self.segment();
        let all = self.log.len();
        let cooling = segment.blocked.filter(|_| {
            let (start, end) = self.wait(&segment, all);
            rules.on && holds(start, end, at)
        });
        let probation = rules.on && segment.blocked.is_some() && cooling.is_none();
        let probed = self.asker(&segment, all).is_some_and(|(_, taken)| holds(taken, taken + LEASE, at));
        let told = |word, reason: &str| Seen { word, reason: reason.into(), probation: false, probed };
        match (self.hold(at), cooling) {
            (Some(true), _) => told("maintenance", "under maintenance: words"),
            (_, Some(Blocked { why: Why::Row, row: 1, .. })) => told("failed", "failed once"),
            (_, Some(Blocked { why: Why::Row, row, .. })) => told("failed", &format!("failed {row} times in a row")),
            (_, Some(Blocked { why: Why::Rate(bad, total), .. })) => {
                told("failed", &format!("{bad} of the last {total} calls failed"))
            }
            (_, Some(_)) => told("failed", "set to failed by an operator: words"),
            (Some(false), None) => told("unavailable", "switched off by an operator: words"),
            (None, None) if !present => told("unavailable", "disabled"),
            (None, None) if probation => Seen { probation, ..told("available", "on probation") },
            (None, None) => told("available", &self.history(&segment)),
        }
    }

    /// Whether the wait seems to begin later, and not just a little.
    pub(super) fn lies_ahead(&self, at: i64) -> bool {
        let segment = self.segment();
        let (start, end) = self.wait(&segment, self.log.len());
        segment.blocked.is_some() && start < end && at < start && !holds(start, end, at)
    }

    /// Every moment at which a word could change by itself.
    pub(super) fn moments(&self) -> Vec<i64> {
        let segment = self.segment();
        let held = self.log.iter().filter_map(|entry| match entry.what {
            What::Hold { until, .. } => until,
            _ => None,
        });
        held.chain(segment.blocked.map(|_| self.wait(&segment, self.log.len()).1)).collect()
    }

    /// The operator's word: maintenance or not.
    fn hold(&self, at: i64) -> Option<bool> {
        let last = self.log.iter().rev().find_map(|entry| match entry.what {
            What::Hold { maintenance, until } => Some(Some((maintenance, until))),
            What::Clear | What::Forget => Some(None),
            _ => None,
        });
        let (maintenance, until) = last.flatten()?;
        until.is_none_or(|until| until > at).then_some(maintenance)
    }

    fn history(&self, segment: &Segment) -> String {
        // With counting off a blocked record may be asked too; the row it was blocked with is still true.
        let row = segment.blocked.map_or_else(|| self.row(segment.from, self.log.len()), |blocked| blocked.row);
        let born = self.log.iter().rposition(|entry| matches!(entry.what, What::Forget)).unwrap_or(0);
        let last =
            |wanted: fn(&What) -> bool| self.log[born..].iter().rev().find(|it| wanted(&it.what)).map(|it| it.at);
        let good = last(|what| matches!(what, What::Good { .. }));
        let bad = last(|what| matches!(what, What::Bad { .. }));
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
        let mut segment = Segment { from: 0, slow_from: 0, blocked: None };
        while let Some(next) = (segment.from..self.log.len()).find_map(|at| self.turn(&segment, at)) {
            segment = next;
        }
        segment.slow_from = self.slow_from(&segment, self.log.len());
        segment
    }

    /// The segment that begins after this entry, if one does.
    fn turn(&self, segment: &Segment, at: usize) -> Option<Segment> {
        let entry = self.log[at];
        let from = at + 1;
        let flowing = Some(Segment { from, slow_from: from, blocked: None });
        let blocked = |length: i64, streak, why, row| {
            let (start, end) = (entry.at, entry.at + length);
            let blocked = Some(Blocked { start, end, streak, why, row, asker: None });
            Some(Segment { from, slow_from: self.slow_from(segment, at), blocked })
        };
        let row = segment.blocked.map_or_else(|| self.row(segment.from, from), |blocked| blocked.row);
        match (entry.what, segment.blocked) {
            (What::Clear | What::Forget, _) => return flowing,
            (What::Alien { end, streak, row }, _) => return blocked(end - entry.at, streak, Why::Row, row as usize),
            (What::FailByHand { until }, _) => {
                return blocked(until.map_or(300_000, |until| until - entry.at), 1, Why::Hand, row);
            }
            (What::Well, Some(Blocked { why, .. })) if entry.rules.on && why != Why::Hand => return flowing,
            (What::Bad { .. }, None) if entry.rules.on && accepted(&entry, segment.from) => {
                if row >= entry.rules.threshold.max(1) as usize {
                    return blocked(300_000, 1, Why::Row, row);
                }
                let (bad, total) = self.sampled(segment.from, at);
                let often = entry.rules.windowed && total >= 4 && bad * 10 >= total * 6;
                return if often { blocked(300_000, 1, Why::Rate(bad, total), row) } else { None };
            }
            _ => {}
        }
        let now = segment.blocked.filter(|_| entry.rules.on)?;
        let (start, end) = self.wait(segment, at);
        let asker = self.asker(segment, at);
        let over = !holds(start, end, entry.at);
        match entry.what {
            What::Take { call } => {
                let free = over && !asker.is_some_and(|(_, taken)| holds(taken, taken + LEASE, entry.at));
                let blocked = Some(Blocked { start, end, asker: Some((call, entry.at)), ..now });
                free.then_some(Segment { from, slow_from: self.slow_from(segment, at), blocked })
            }
            _ if !accepted(&entry, segment.from) || !(over || asker.is_some()) => None,
            What::Good { .. } | What::Neutral { .. } => flowing,
            What::Bad { .. } => {
                let full = (300_000_i64 << now.streak.min(20)).min(3_600_000);
                // Numbers that somebody else wrote may be as large as numbers get; there they stay.
                let row = (row + 1).min(u32::MAX as usize);
                blocked(full - full * entry.jitter / 5_000, now.streak.saturating_add(1), Why::Row, row)
            }
            _ => None,
        }
    }

    /// How many counted failures stand at the end of this part of the log, with no success behind them.
    fn row(&self, from: usize, to: usize) -> usize {
        let heard = self.log[from..to].iter().rev().filter(|entry| accepted(entry, from));
        let since_good = heard.take_while(|entry| !matches!(entry.what, What::Good { .. }));
        since_good.filter(|entry| entry.rules.on && matches!(entry.what, What::Bad { .. })).count()
    }

    /// Failures and results in the ten slices of six seconds up to this entry. A sample that once fell out of the
    /// window, because time jumped either way, does not return.
    fn sampled(&self, from: usize, to: usize) -> (usize, usize) {
        let samples: Vec<_> = self.log[from..=to]
            .iter()
            .filter(|entry| entry.rules.on && entry.rules.windowed && accepted(entry, from))
            .filter(|entry| matches!(entry.what, What::Good { .. } | What::Bad { .. }))
            .map(|entry| (entry.at.div_euclid(6_000), matches!(entry.what, What::Bad { .. })))
            .collect();
        let kept = samples.iter().enumerate().filter(|(index, (slice, _))| {
            samples[*index..].iter().all(|(later, _)| (0..10).contains(&(later - slice)))
        });
        let bad = kept.clone().filter(|(_, (_, bad))| *bad).count();
        (bad, kept.count())
    }

    /// Start and end of the wait, as the entries of the segment left it.
    fn wait(&self, segment: &Segment, to: usize) -> (i64, i64) {
        let (start, end) = segment.blocked.map_or((0, 0), |blocked| (blocked.start, blocked.end));
        let ends = self.log[segment.from..to].iter().filter(|entry| matches!(entry.what, What::EndWait));
        // Every end cuts what is left, so the earliest one decides, if it is earlier than the wait's own.
        ends.map(|entry| entry.at).min().filter(|cut| *cut < end).map_or((start, end), |cut| (cut, cut))
    }

    /// Who probes: the call that took the permit, unless it gave it back. A permit is not saved: it was not taken here.
    fn asker(&self, segment: &Segment, to: usize) -> Option<(usize, i64)> {
        let (asker, taken) = segment.blocked?.asker?;
        let over = |entry: &Entry| match entry.what {
            What::GiveBack { call } => call == asker,
            What::Reborn => true,
            _ => false,
        };
        (!self.log[segment.from..to].iter().any(over)).then_some((asker, taken))
    }

    /// Where timeouts begin to matter: after the last success that was heard while calls flowed.
    fn slow_from(&self, segment: &Segment, to: usize) -> usize {
        let heard = |entry: &Entry| matches!(entry.what, What::Good { .. }) && accepted(entry, segment.from);
        let good = self.log[segment.from..to].iter().rposition(heard).filter(|_| segment.blocked.is_none());
        good.map_or(segment.slow_from, |good| segment.from + good + 1)
    }
}

/// Whether a result was let in after the last turn.
fn accepted(entry: &Entry, from: usize) -> bool {
    match entry.what {
        What::Good { seen } | What::Bad { seen } | What::Neutral { seen } => {
            seen.is_none_or(|seen| seen >= from as i64)
        }
        _ => false,
    }
}

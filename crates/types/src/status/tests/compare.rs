//! Asks both sides of a story the same questions: words, reasons, changes to come, admissions.

use super::{HOUR, SHARED, reference::ExpectedStatus, scenario::Scenario};
use crate::{
    error::ErrorKind,
    language::Language,
    status::{Admission, Breaker, BreakerCause, evaluate, worst},
    timestamp::Timestamp,
};

impl Scenario {
    pub(super) fn compare(&mut self) {
        for thread in [None, Some(0), Some(1)] {
            self.compare_readings(thread);
        }
        for facts in &self.facts {
            let (now, later) = (Timestamp::from_millis(self.now), |millis| Timestamp::from_millis(self.now + millis));
            let withheld = facts.breaker.is_blocking(now) && facts.breaker.is_blocking(later(2 * HOUR + 5_000));
            assert!(!withheld, "every wait ends, whatever the clock did");
            let probed = facts.breaker.has_active_probe(now) && facts.breaker.has_active_probe(later(35_000));
            assert!(!probed, "every lease ends, whatever the clock did");
        }
        for record in 0..3 {
            match &self.facts[record].breaker {
                Breaker::Open { openings: 2.., .. } => self.record_coverage("opened again"),
                Breaker::Open { cause: BreakerCause::TooOften { .. }, .. } => self.record_coverage("opened by rate"),
                Breaker::Open { cause: BreakerCause::InARow, .. } => self.record_coverage("opened in a row"),
                _ => {}
            }
        }
    }

    fn compare_readings(&self, thread: Option<usize>) {
        let (now, rules) = (Timestamp::from_millis(self.now), self.reference_settings());
        let which: Vec<usize> = thread.into_iter().chain([SHARED]).collect();
        let at =
            |at: i64| which.iter().map(|it| self.records[*it].evaluate(self.is_ready, rules, at)).collect::<Vec<_>>();
        let rank = |word: &str| ["available", "unavailable", "failed", "maintenance"].iter().position(|it| *it == word);
        let word_at = |moment| at(moment).into_iter().map(|seen| seen.status).max_by_key(|word| rank(word)).unwrap();

        let read = |it: &usize| evaluate(&self.facts[*it], &self.readiness(), &self.settings, now);
        let got = which.iter().map(read).reduce(worst).unwrap();
        let all: Vec<ExpectedStatus> = at(self.now);
        let word = word_at(self.now);
        let told: Vec<&ExpectedStatus> = all.iter().filter(|seen| seen.status == word).collect();
        let reason = told.iter().find(|seen| seen.probation).unwrap_or(&told[0]).reason.clone();
        let mut moments: Vec<i64> = which.iter().flat_map(|it| self.records[*it].transition_times()).collect();
        moments.sort_unstable();
        // A wait that lies ahead and was not settled comes back when the clock gets there; no change is told for that.
        let settled = !which.iter().any(|it| self.records[*it].is_in_future(self.now));
        let change = moments.into_iter().find(|moment| *moment > self.now && word_at(*moment) != word);

        assert_eq!(serde_json::to_value(got.status).unwrap(), word, "the word for {thread:?}");
        assert_eq!(got.reason.text(Language::English), reason, "the reason for {thread:?}");
        assert_eq!(got.probation, told.iter().any(|seen| seen.probation), "probation for {thread:?}");
        let change = if settled { change } else { got.next_change.map(Timestamp::millis) };
        assert_eq!(got.next_change.map(Timestamp::millis), change, "the next change for {thread:?}");

        let expected = match word {
            "available" if !got.probation => "pass".into(),
            "available" if all.iter().any(|seen| seen.probation && seen.probed) => "wait".into(),
            "available" => format!("probe {:?}", all.iter().map(|seen| seen.probation).collect::<Vec<_>>()),
            _ => format!("refuse {word} {:?}", change.map(|change| change - self.now)),
        };
        let got = match self.admission(thread) {
            Admission::Pass => "pass".into(),
            Admission::WaitForProbe => "wait".into(),
            Admission::Probe { thread: own, shared } if thread.is_some() => format!("probe {:?}", [own, shared]),
            Admission::Probe { shared, .. } => format!("probe {:?}", [shared]),
            Admission::Refuse { kind, retry_after, .. } => {
                let word = match kind {
                    ErrorKind::ToolMaintenance => "maintenance",
                    ErrorKind::ToolFailedStatus => "failed",
                    ErrorKind::ToolUnavailable => "unavailable",
                    _ => "something else",
                };
                format!("refuse {word} {:?}", retry_after.map(|time| time.as_millis()))
            }
        };
        assert_eq!(got, expected, "admission for {thread:?}");
    }
}

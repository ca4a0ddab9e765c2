//! Compares both sides of a scenario: statuses, reasons, next changes, admissions.

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
            self.compare_statuses(thread);
        }
        for record in &self.actual {
            let (now, later) = (Timestamp::from_millis(self.now), |millis| Timestamp::from_millis(self.now + millis));
            let stays_blocked = record.breaker.is_blocking(now) && record.breaker.is_blocking(later(2 * HOUR + 5_000));
            assert!(!stays_blocked, "every cool-down ends, whatever the clock did");
            let stays_leased = record.breaker.has_active_probe(now) && record.breaker.has_active_probe(later(35_000));
            assert!(!stays_leased, "every lease ends, whatever the clock did");
        }
        for record in 0..3 {
            match &self.actual[record].breaker {
                Breaker::Open { openings: 2.., .. } => self.record_coverage("opened again"),
                Breaker::Open { cause: BreakerCause::TooOften { .. }, .. } => self.record_coverage("opened by rate"),
                Breaker::Open { cause: BreakerCause::InARow, .. } => self.record_coverage("opened in a row"),
                _ => {}
            }
        }
    }

    fn compare_statuses(&self, thread: Option<usize>) {
        let (now, settings) = (Timestamp::from_millis(self.now), self.reference_settings());
        let records: Vec<usize> = thread.into_iter().chain([SHARED]).collect();
        let expected_at = |at: i64| {
            records
                .iter()
                .map(|index| self.reference[*index].evaluate(self.is_ready, settings, at))
                .collect::<Vec<ExpectedStatus>>()
        };
        let severity = |status: &str| {
            ["available", "unavailable", "failed", "maintenance"].iter().position(|name| *name == status)
        };
        let status_at = |at| {
            expected_at(at).into_iter().map(|expected| expected.status).max_by_key(|status| severity(status)).unwrap()
        };

        let evaluate_actual = |index: &usize| evaluate(&self.actual[*index], &self.readiness(), &self.settings, now);
        let actual = records.iter().map(evaluate_actual).reduce(worst).unwrap();
        let all = expected_at(self.now);
        let status = status_at(self.now);
        let deciding: Vec<&ExpectedStatus> = all.iter().filter(|expected| expected.status == status).collect();
        let reason = deciding.iter().find(|expected| expected.probation).unwrap_or(&deciding[0]).reason.clone();
        let mut times: Vec<i64> = records.iter().flat_map(|index| self.reference[*index].transition_times()).collect();
        times.sort_unstable();
        // An unsettled cool-down in the future applies again when the clock gets there; the machine reports no change for that.
        let settled = !records.iter().any(|index| self.reference[*index].is_in_future(self.now));
        let change = times.into_iter().find(|at| *at > self.now && status_at(*at) != status);

        assert_eq!(serde_json::to_value(actual.status).unwrap(), status, "the status for {thread:?}");
        assert_eq!(actual.reason.text(Language::English), reason, "the reason for {thread:?}");
        assert_eq!(actual.probation, deciding.iter().any(|expected| expected.probation), "probation for {thread:?}");
        let change = if settled { change } else { actual.next_change.map(Timestamp::millis) };
        assert_eq!(actual.next_change.map(Timestamp::millis), change, "the next change for {thread:?}");

        let expected = match status {
            "available" if !actual.probation => "pass".into(),
            "available" if all.iter().any(|expected| expected.probation && expected.probed) => "wait".into(),
            "available" => format!("probe {:?}", all.iter().map(|expected| expected.probation).collect::<Vec<_>>()),
            _ => format!("refuse {status} {:?}", change.map(|change| change - self.now)),
        };
        let admission = match self.admission(thread) {
            Admission::Pass => "pass".into(),
            Admission::WaitForProbe => "wait".into(),
            Admission::Probe { thread: own, shared } if thread.is_some() => format!("probe {:?}", [own, shared]),
            Admission::Probe { shared, .. } => format!("probe {:?}", [shared]),
            Admission::Refuse { kind, retry_after, .. } => {
                let status = match kind {
                    ErrorKind::ToolMaintenance => "maintenance",
                    ErrorKind::ToolFailedStatus => "failed",
                    ErrorKind::ToolUnavailable => "unavailable",
                    _ => "something else",
                };
                format!("refuse {status} {:?}", retry_after.map(|delay| delay.as_millis()))
            }
        };
        assert_eq!(admission, expected, "admission for {thread:?}");
    }
}

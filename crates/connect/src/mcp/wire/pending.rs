//! The ids of requests: which are in flight, and which answers are legal.
//!
//! In: requests and cancellations as they are sent, and ids of answers. Out: the request that an answer belongs to, or a violation.
//! A late answer to a cancelled request is legal, so cancelled ids are remembered, within a limit.

use std::collections::{BTreeSet, HashMap};

use rmcp::model::RequestId;
use tokio::time::Instant;

use super::{
    exchange::Exchange,
    message::{Violation, number},
};

/// How many cancelled requests without an answer are remembered.
const MAX_CANCELLED: usize = 1_024;

/// The first id of requests that are sent without `rmcp`, which counts from zero. Some servers read ids as 32 bits.
pub(crate) const FIRST_DIRECT_ID: i64 = 1 << 30;

/// Whether a request was sent without `rmcp`.
pub(super) fn is_direct(id: i64) -> bool {
    id >= FIRST_DIRECT_ID
}

/// A request in flight.
pub(super) struct InFlight {
    /// `None`: a request of `rmcp` itself, which reads the answer.
    pub(super) exchange: Option<Exchange>,
    /// The progress token it was sent with.
    pub(super) token: Option<i64>,
    /// Whether it subscribes to changes of lists.
    pub(super) is_listen: bool,
    /// Whether it asks for a list that `rmcp` has to see.
    pub(super) is_shown_list: bool,
    pub(super) sent: Instant,
}

impl InFlight {
    /// The exchange of a call.
    fn call(&self) -> Option<&Exchange> {
        self.exchange.as_ref().filter(|call| call.updates().is_some())
    }
}

#[derive(Default)]
pub(super) struct PendingRequests {
    in_flight: HashMap<i64, InFlight>,
    /// Progress tokens, with the id of their request.
    tokens: HashMap<i64, i64>,
    cancelled: BTreeSet<i64>,
    /// The ids of `rmcp`, and those of direct requests.
    ranges: [IdRange; 2],
}

/// Ids that are counted up.
#[derive(Default)]
struct IdRange {
    /// The highest cancelled id that was forgotten: an answer to this or a lower one may be late.
    forgotten: Option<i64>,
    /// The highest id that was sent.
    highest: Option<i64>,
}

impl PendingRequests {
    pub(super) fn insert(&mut self, id: i64, request: InFlight) {
        if let Some(token) = request.token {
            self.tokens.insert(token, id);
        }
        let range = self.range(id);
        range.highest = range.highest.max(Some(id));
        self.in_flight.insert(id, request);
    }

    /// Takes the request that an answer belongs to; `None` if the answer is late and to be ignored.
    pub(super) fn take_answered(&mut self, id: &RequestId) -> Result<Option<(i64, InFlight)>, Violation> {
        let unknown = || Violation::UnknownId(number(id).map_or("(text)".into(), |id| id.to_string()));
        let id = number(id).ok_or_else(unknown)?;
        if let Some(request) = self.remove(id) {
            return Ok(Some((id, request)));
        }
        let IdRange { forgotten, highest } = *self.range(id);
        if self.cancelled.remove(&id) || (id >= 0 && Some(id) <= forgotten) {
            return Ok(None);
        }
        if id >= 0 && Some(id) <= highest { Err(Violation::AnsweredTwice(id)) } else { Err(unknown()) }
    }

    /// Takes the request that an error without an id belongs to; `None` if no request is in flight.
    pub(super) fn take_only(&mut self) -> Result<Option<(i64, InFlight)>, Violation> {
        let mut ids = self.in_flight.keys();
        match (ids.next().copied(), ids.next()) {
            (None, _) => Ok(None),
            (Some(id), None) => Ok(self.remove(id).map(|request| (id, request))),
            (Some(_), Some(_)) => Err(Violation::FailureWithoutId),
        }
    }

    /// The request was cancelled: an answer is optional from now on.
    pub(super) fn cancel(&mut self, id: i64) -> Option<InFlight> {
        let request = self.remove(id)?;
        self.cancelled.insert(id);
        if self.cancelled.len() > MAX_CANCELLED
            && let Some(oldest) = self.cancelled.pop_first()
        {
            let range = self.range(oldest);
            range.forgotten = range.forgotten.max(Some(oldest));
        }
        Some(request)
    }

    fn range(&mut self, id: i64) -> &mut IdRange {
        &mut self.ranges[usize::from(is_direct(id))]
    }

    /// The request was not sent.
    pub(super) fn remove(&mut self, id: i64) -> Option<InFlight> {
        let request = self.in_flight.remove(&id)?;
        if let Some(token) = request.token {
            self.tokens.remove(&token);
        }
        Some(request)
    }

    pub(super) fn get(&self, id: i64) -> Option<&InFlight> {
        self.in_flight.get(&id)
    }

    /// The request with this progress token.
    pub(super) fn by_token(&self, token: i64) -> Option<&InFlight> {
        self.in_flight.get(self.tokens.get(&token)?)
    }

    /// The calls in flight.
    pub(super) fn calls(&self) -> impl Iterator<Item = &Exchange> {
        self.in_flight.values().filter_map(InFlight::call)
    }

    /// Whether a call in flight was sent before this time.
    pub(super) fn has_call_sent_before(&self, time: Instant) -> bool {
        self.in_flight.values().any(|request| request.call().is_some() && request.sent < time)
    }

    /// The only call in flight; `None` if there are several.
    pub(super) fn only_call(&self) -> Option<&Exchange> {
        let mut calls = self.calls();
        calls.next().filter(|_| calls.next().is_none())
    }

    pub(super) fn len(&self) -> usize {
        self.in_flight.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(ids: std::ops::Range<i64>) -> PendingRequests {
        let mut pending = PendingRequests::default();
        ids.for_each(|id| {
            let (exchange, token, sent) = (None, Some(id), Instant::now());
            pending.insert(id, InFlight { exchange, token, is_listen: false, is_shown_list: false, sent });
        });
        pending
    }

    #[track_caller]
    fn check(pending: &mut PendingRequests, id: i64, expected: &str) {
        let got = match pending.take_answered(&RequestId::Number(id)) {
            Ok(Some(_)) => "answered".to_owned(),
            Ok(None) => "late".to_owned(),
            Err(violation) => violation.to_string(),
        };
        assert!(got.contains(expected), "{id}: {got}");
    }

    #[test]
    fn an_id_is_answered_once_and_a_cancelled_one_at_most_once() {
        let mut pending = requests(0..3);
        check(&mut pending, 0, "answered");
        check(&mut pending, 0, "answered request 0 twice");
        check(&mut pending, 7, "request 7, which was never sent");
        pending.cancel(1);
        check(&mut pending, 1, "late");
        check(&mut pending, 1, "answered request 1 twice");
        assert!(pending.take_answered(&RequestId::String("2".into())).unwrap().is_some());
        assert!(pending.take_answered(&RequestId::String("x".into())).is_err());
        assert!(pending.tokens.is_empty());
    }

    #[test]
    fn many_cancelled_requests_leave_a_bounded_memory_and_late_answers_stay_legal() {
        let mut pending = requests(0..10_000);
        (0..10_000).for_each(|id| drop(pending.cancel(id)));
        assert_eq!((pending.len(), pending.tokens.len(), pending.cancelled.len()), (0, 0, MAX_CANCELLED));
        check(&mut pending, 3, "late");
        check(&mut pending, 9_999, "late");
        check(&mut pending, 9_999, "twice");
        check(&mut pending, 10_000, "never sent");
    }

    #[test]
    fn an_error_without_an_id_belongs_to_the_only_request() {
        assert!(requests(0..0).take_only().unwrap().is_none());
        assert_eq!(requests(5..6).take_only().unwrap().unwrap().0, 5);
        assert_eq!(requests(0..2).take_only().err(), Some(Violation::FailureWithoutId));
    }
}

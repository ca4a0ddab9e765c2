//! The delivery of a message: its stored entry, and when the next attempt is due.
//!
//! In: the result of an attempt. Out: the entry afterwards: delivered, waiting for the next attempt, or given up. Pure; `hub/alerts`
//! makes the attempts. A target that does not answer is asked again after 1 second, then after twice as long each time, up to an
//! hour, for a day in all.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::{AlertMessage, AlertResponse, AlertSendError, MAX_DELIVERY};
use toolhub_types::timestamp::Timestamp;

/// Delay before the second attempt; doubles with each further one.
const FIRST_DELAY: Duration = Duration::from_secs(1);
const MAX_DELAY: Duration = Duration::from_secs(3600);
/// A status with which a target says that it wants no message any more.
const GONE: u16 = 410;
/// Client errors that are no matter of the message: wrong credentials or address, too many requests.
const ABOUT_TARGET: [u16; 8] = [401, 403, 404, 407, 408, 425, 429, GONE];
/// Maximum time of an attempt.
pub(crate) const MAX_ATTEMPT: Duration = Duration::from_secs(30);
/// How long storing the result of an attempt may take.
const CLAIM_GRACE: Duration = Duration::from_secs(5);

/// A message and its delivery.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct AlertDelivery {
    /// The message.
    pub message: AlertMessage,
    /// Where its delivery stands.
    pub state: DeliveryState,
    /// The number of attempts.
    pub attempts: u32,
    /// When the next attempt is due.
    pub next_attempt: Timestamp,
    /// The last attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<DeliveryAttempt>,
}

/// A delivery as it waits in the store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WaitingDelivery {
    #[serde(flatten)]
    pub(crate) delivery: AlertDelivery,
    /// Whether the last attempt says that the target is down, so that later messages wait too.
    #[serde(default)]
    pub(crate) holds_target: bool,
    /// The attempt that is being made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    claim: Option<AttemptClaim>,
}

/// That a node makes an attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct AttemptClaim {
    node: SmolStr,
    /// When the attempt has ended, whether or not its result could be stored.
    until: Timestamp,
}

/// Where a delivery stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum DeliveryState {
    /// It waits for an attempt.
    Waiting,
    /// The target has the message.
    Delivered,
    /// The target did not take the message within a day.
    Failed,
}

/// One attempt to deliver a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct DeliveryAttempt {
    /// When it began.
    pub at: Timestamp,
    /// How long it took.
    #[serde(rename = "durationMs", with = "toolhub_types::millis")]
    #[schemars(with = "u64")]
    pub duration: Duration,
    /// The status of the response, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The first line of the response, or why there was none.
    pub answer: String,
}

impl DeliveryAttempt {
    pub(crate) fn new(at: Timestamp, duration: Duration, result: &Result<AlertResponse, AlertSendError>) -> Self {
        let (status, answer) = match result {
            Ok(response) => (Some(response.status), response.first_line.clone()),
            Err(error) => (None, error.to_string()),
        };
        Self { at, duration, status, answer }
    }

    /// Whether the target took the message.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.status.is_some_and(|status| (200..300).contains(&status))
    }
}

/// What an attempt means for the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Delivered,
    Retry,
    /// The message is given up.
    GivenUp,
    /// The target wants no message any more.
    Disabled,
}

impl AlertDelivery {
    pub(crate) fn new(message: AlertMessage) -> Self {
        let next_attempt = message.at;
        Self { message, state: DeliveryState::Waiting, attempts: 0, next_attempt, last: None }
    }
}

impl WaitingDelivery {
    pub(crate) fn new(message: AlertMessage) -> Self {
        Self { delivery: AlertDelivery::new(message), holds_target: false, claim: None }
    }

    /// Makes the next attempt due.
    pub(crate) fn retry_at(&mut self, now: Timestamp) {
        (self.delivery.next_attempt, self.holds_target) = (now, false);
        self.claim = None;
    }

    /// Claims the next attempt for a node.
    pub(crate) fn claim(&mut self, node: SmolStr, now: Timestamp) {
        self.claim = Some(AttemptClaim { node, until: now + MAX_ATTEMPT + CLAIM_GRACE });
    }

    /// Whether another node makes an attempt, as far as is known.
    pub(crate) fn is_claimed_elsewhere(&self, own: &str, is_alive: impl Fn(&str) -> bool, now: Timestamp) -> bool {
        self.claim.as_ref().is_some_and(|claim| claim.node != own && now < claim.until && is_alive(&claim.node))
    }

    /// Takes note of an attempt that ended at `now`. `jitter` is from 0 to 1.
    pub(crate) fn finish_attempt(
        &mut self,
        attempt: DeliveryAttempt,
        retry_after: Option<Duration>,
        (now, jitter): (Timestamp, f64),
    ) -> Verdict {
        let delivery = &mut self.delivery;
        delivery.attempts += 1;
        self.claim = None;
        let (is_success, status) = (attempt.is_success(), attempt.status);
        delivery.last = Some(attempt);
        if is_success {
            delivery.state = DeliveryState::Delivered;
            return Verdict::Delivered;
        }
        // Other client errors are about this message alone: the others need not wait for it.
        self.holds_target = status.is_none_or(|status| status >= 500 || ABOUT_TARGET.contains(&status));
        let delay = retry_after.unwrap_or_else(|| backoff(delivery.attempts, jitter));
        delivery.next_attempt = now + delay;
        if status == Some(GONE) {
            return Verdict::Disabled;
        }
        let end = delivery.message.at + MAX_DELIVERY;
        if now >= end {
            delivery.state = DeliveryState::Failed;
            return Verdict::GivenUp;
        }
        // There is one attempt at the very end.
        delivery.next_attempt = delivery.next_attempt.min(end);
        Verdict::Retry
    }
}

fn backoff(attempts: u32, jitter: f64) -> Duration {
    let doubled = FIRST_DELAY.saturating_mul(2u32.saturating_pow(attempts.saturating_sub(1)));
    doubled.min(MAX_DELAY).mul_f64(0.8 + 0.2 * jitter.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alerts::AlertPhase;

    fn delivery() -> WaitingDelivery {
        WaitingDelivery::new(AlertMessage {
            id: "msg_1".into(),
            target: "ops".into(),
            phase: AlertPhase::Test,
            condition: None,
            at: Timestamp::from_millis(0),
            alerts: Vec::new(),
            valid_until: None,
            link: None,
        })
    }

    fn finish(
        delivery: &mut WaitingDelivery,
        status: Option<u16>,
        retry_after: Option<u64>,
        now: Timestamp,
    ) -> Verdict {
        let attempt = DeliveryAttempt { at: now, duration: Duration::ZERO, status, answer: String::new() };
        delivery.finish_attempt(attempt, retry_after.map(Duration::from_secs), (now, 1.0))
    }

    #[test]
    fn the_delay_grows_from_a_second_to_an_hour_and_ends_after_a_day() {
        let (mut delivery, mut now, mut delays) = (delivery(), Timestamp::from_millis(0), Vec::new());
        while finish(&mut delivery, None, None, now) == Verdict::Retry {
            delays.push(delivery.delivery.next_attempt.since(now).as_secs());
            now = delivery.delivery.next_attempt;
        }
        assert_eq!(delays[..13], [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 3600]);
        assert_eq!((now, delivery.delivery.state), (Timestamp::from_millis(0) + MAX_DELIVERY, DeliveryState::Failed));
        assert!(backoff(1, 0.0) < backoff(1, 1.0));
    }

    #[test]
    fn the_target_says_when_to_come_again_and_that_it_is_gone() {
        let (mut delivery, now) = (delivery(), Timestamp::from_millis(0));
        assert_eq!(finish(&mut delivery, Some(429), Some(90), now), Verdict::Retry);
        assert_eq!((delivery.delivery.next_attempt.since(now).as_secs(), delivery.holds_target), (90, true));
        assert_eq!(finish(&mut delivery, Some(400), None, now), Verdict::Retry);
        assert!(!delivery.holds_target, "other messages go on");
        assert_eq!(finish(&mut delivery, Some(401), None, now), Verdict::Retry);
        assert!(delivery.holds_target, "no message gets through with a wrong secret");
        assert_eq!(finish(&mut delivery, Some(410), None, now), Verdict::Disabled);
        assert_eq!(finish(&mut delivery, Some(204), None, now), Verdict::Delivered);
    }

    #[test]
    fn a_claim_of_another_node_ends_with_its_time_with_its_node_and_with_a_retry() {
        let (mut delivery, now) = (delivery(), Timestamp::from_millis(0));
        let is_claimed = |delivery: &WaitingDelivery, alive: bool, seconds: u64| {
            delivery.is_claimed_elsewhere("b", |_| alive, now + Duration::from_secs(seconds))
        };
        delivery.claim("a".into(), now);
        assert!(is_claimed(&delivery, true, 30) && !delivery.is_claimed_elsewhere("a", |_| true, now));
        assert!(!is_claimed(&delivery, false, 0) && !is_claimed(&delivery, true, 35));
        delivery.retry_at(now);
        assert!(!is_claimed(&delivery, true, 0));
    }
}

//! Finds out whether a server still answers.
//!
//! In: a connection. Out: whether the server answers on it; a connection without an answer is ended, unless calls run that the server
//! may be busy with.

use std::{sync::Arc, time::Duration};

use futures_util::TryFutureExt;
use tokio::time::Instant;

use super::{connection::Connection, error, list_kind::ListKind, wire::RequestError};

/// How long the server may take to answer a probe, and again a list if it does not; how long the answer counts.
const PROBE_TIMEOUT: Duration = Duration::from_secs(9);
const PROBE_VALIDITY: Duration = Duration::from_secs(1);
/// The longest time without a probe that a busy server may ask for.
const MAX_PROBE_DELAY: Duration = Duration::from_secs(60);
/// So many times in a row a server may be too busy for a probe; then it counts as gone.
const MAX_BUSY_PROBES: u32 = 5;

/// The last probe of a server.
#[derive(Default)]
pub(super) struct LastProbe {
    is_healthy: bool,
    /// Until when it counts.
    until: Option<Instant>,
    /// How many of the last ones found the server busy.
    busy_in_a_row: u32,
}

impl LastProbe {
    /// Whether the server answered, while that counts.
    pub(super) fn current(&self) -> Option<bool> {
        self.until.filter(|until| Instant::now() < *until).map(|_| self.is_healthy)
    }

    /// Probes the server. A connection without an answer ends.
    pub(super) async fn check(&mut self, connection: &Connection) -> bool {
        let (began, received) = (Instant::now(), connection.messages_received());
        let answer = match probe_twice(connection).await {
            ProbeAnswer::Busy(_) if self.busy_in_a_row + 1 >= MAX_BUSY_PROBES => ProbeAnswer::Missing,
            answer => answer,
        };
        self.busy_in_a_row = if matches!(answer, ProbeAnswer::Busy(_)) { self.busy_in_a_row + 1 } else { 0 };
        if answer == ProbeAnswer::Missing {
            end_unless_busy(connection, connection.silent_since(began, received), received);
        }
        let validity = match answer {
            ProbeAnswer::Busy(Some(delay)) => delay.clamp(PROBE_VALIDITY, MAX_PROBE_DELAY),
            _ => PROBE_VALIDITY,
        };
        (self.is_healthy, self.until) = (answer == ProbeAnswer::Healthy, Some(Instant::now() + validity));
        self.is_healthy
    }
}

/// Checks a connection on which a call was given up that was sent at this time or later. One check at a time.
pub(super) async fn check_abandoned(connection: &Arc<Connection>, sent: Instant) {
    if let Ok(_checking) = connection.checking.try_lock()
        && !connection.has_ended()
    {
        let received = connection.messages_received();
        if probe_twice(connection).await == ProbeAnswer::Missing {
            end_unless_busy(connection, sent, received);
        }
    }
}

/// Ends a connection whose server has not answered a probe, unless it may be busy with a call: other messages have arrived since there
/// were this many, or the call was sent before a time since which nothing is answered. A later call is no reason to wait: where there
/// always is one, the connection would never end.
fn end_unless_busy(connection: &Connection, since: Instant, received: u64) {
    let is_silent = connection.messages_received() == received;
    if connection.calls_in_flight() == 0 || is_silent && !connection.has_call_sent_before(since) {
        connection.end_unresponsive();
    }
}

/// What a server says to a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProbeAnswer {
    Healthy,
    /// It lives, and wants to be asked later.
    Busy(Option<Duration>),
    Missing,
}

/// Sends a probe and, without an answer, reads the list.
async fn probe_twice(connection: &Connection) -> ProbeAnswer {
    match probe(connection.probe()).await {
        ProbeAnswer::Missing => probe(connection.list_page(ListKind::Tools, None).map_ok(drop)).await,
        answer => answer,
    }
}

/// Sends a probe. A refusal is an answer.
async fn probe(request: impl Future<Output = Result<(), RequestError>>) -> ProbeAnswer {
    match tokio::time::timeout(PROBE_TIMEOUT, request).await {
        Ok(Ok(()) | Err(RequestError::Refused(_))) => ProbeAnswer::Healthy,
        Ok(Err(error)) if error.is_busy() => ProbeAnswer::Busy(error::request_error(error, true).retry_after),
        Ok(Err(_)) | Err(_) => ProbeAnswer::Missing,
    }
}

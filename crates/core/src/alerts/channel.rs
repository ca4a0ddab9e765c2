//! `AlertChannel`: how the messages of a target are sent.
//!
//! In: a message, and the time of the attempt. Out: the response of the target, or why there is none. The channel sends one request
//! and decides nothing: `hub/alerts` tries again.

use std::time::Duration;

use futures_core::future::BoxFuture;

use super::AlertMessage;
use toolhub_types::timestamp::Timestamp;

/// Sends the messages of a target.
///
/// An implementation promises that every attempt to send one message carries the [id](AlertMessage::id) of the message, that it ends
/// within a minute, and that neither its texts nor its errors contain a secret.
pub trait AlertChannel: Send + Sync + 'static {
    /// The format of its messages, such as `json`.
    fn format(&self) -> &'static str;

    /// The host that it sends to, without user, path and query, which may be secret.
    fn host(&self) -> String;

    /// A digest of its whole address. A target that was disabled is enabled when this changes.
    fn fingerprint(&self) -> String;

    /// Sends a message.
    fn send<'a>(
        &'a self,
        message: &'a AlertMessage,
        at: Timestamp,
    ) -> BoxFuture<'a, Result<AlertResponse, AlertSendError>>;
}

/// What a target answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertResponse {
    /// The HTTP status, or its equivalent.
    pub status: u16,
    /// The first line of the body, shortened.
    pub first_line: String,
    /// How long the target asks to wait before the next attempt.
    pub retry_after: Option<Duration>,
}

/// Why a target did not answer. The text contains no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AlertSendError(pub String);

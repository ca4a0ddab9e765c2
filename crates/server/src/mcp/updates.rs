//! Progress and log lines of a call, as notifications to its client.
//!
//! In: what a running tool reports. Out: notifications, as far as the client asked for them: progress with its token, log lines from a
//! level on. More than ten a second are left out.
#![allow(deprecated, reason = "log lines are deprecated, but most clients still show them")]

use std::time::Duration;

use rmcp::model::{
    LoggingLevel, LoggingMessageNotification, LoggingMessageNotificationParam, ProgressNotification,
    ProgressNotificationParam, ProgressToken,
};
use serde_json::Value;
use tokio::time::Instant;
use toolhub_core::{CallUpdate, LogLine, Progress};

use super::request::ClientChannel;

/// Maximum number of notifications of a call within a second.
const MAX_PER_SECOND: usize = 10;

/// Sends the notifications of one call.
pub(super) struct UpdateNotifier {
    client: ClientChannel,
    token: Option<ProgressToken>,
    level: Option<LoggingLevel>,
    done: f64,
    /// When those of the last second were sent.
    sent_at: Vec<Instant>,
}

impl UpdateNotifier {
    /// For a client that wants progress with this token, and log lines from this level on.
    pub(super) fn new(client: ClientChannel, token: Option<ProgressToken>, level: Option<LoggingLevel>) -> Self {
        Self { client, token, level, done: 0.0, sent_at: Vec::new() }
    }

    /// Whether the client wants nothing.
    pub(super) fn is_silent(&self) -> bool {
        self.token.is_none() && self.level.is_none()
    }

    pub(super) async fn notify(&mut self, update: CallUpdate) {
        match update {
            CallUpdate::Progress(progress) => self.progress(progress).await,
            CallUpdate::Log(line) => self.log(line).await,
            _ => {}
        }
    }

    async fn progress(&mut self, progress: Progress) {
        let Some(token) = self.token.clone().filter(|_| self.may_send()) else { return };
        let (done, total) = match (progress.done, progress.fraction) {
            (None, Some(fraction)) => (Some(fraction), Some(1.0)),
            (done, _) => (done, progress.total),
        };
        // The protocol requires a number that grows; a tool may report none.
        let done = done.filter(|done| done.is_finite() && *done > self.done);
        self.done = done.unwrap_or(self.done + 1.0);
        let mut notification = ProgressNotificationParam::new(token, self.done);
        notification.total = total.filter(|_| done.is_some());
        notification.message = (!progress.message.is_empty()).then_some(progress.message);
        self.client.notify(ProgressNotification::new(notification).into()).await;
    }

    async fn log(&mut self, line: LogLine) {
        let level = serde_json::from_value(Value::from(line.level)).unwrap_or(LoggingLevel::Info);
        if self.level.is_some_and(|least| rank(level) >= rank(least)) && self.may_send() {
            let notification = LoggingMessageNotificationParam::new(level, Value::from(line.message));
            self.client.notify(LoggingMessageNotification::new(notification).into()).await;
        }
    }

    /// Whether another notification may be sent now.
    fn may_send(&mut self) -> bool {
        let now = Instant::now();
        self.sent_at.retain(|at| now.duration_since(*at) < Duration::from_secs(1));
        let may = self.sent_at.len() < MAX_PER_SECOND;
        if may {
            self.sent_at.push(now);
        }
        may
    }
}

/// The order of the levels.
fn rank(level: LoggingLevel) -> u8 {
    match level {
        LoggingLevel::Debug => 0,
        LoggingLevel::Info => 1,
        LoggingLevel::Notice => 2,
        LoggingLevel::Warning => 3,
        LoggingLevel::Error => 4,
        LoggingLevel::Critical => 5,
        LoggingLevel::Alert => 6,
        LoggingLevel::Emergency => 7,
    }
}

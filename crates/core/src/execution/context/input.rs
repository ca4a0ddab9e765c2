//! Input requests of a running tool, and the time they take.
//!
//! In: a request. Out: the caller's answer. While a request is open, the clock of the call is paused: the time that a person needs
//! does not count as time of the tool.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::Value;

use super::CallContext;
use crate::call::{InputError, InputKind, InputRequest};
use toolhub_storage::clock::Instant;

/// How long an input request may be open, and the clock of its call paused.
pub const INPUT_TIMEOUT: Duration = Duration::from_secs(2 * 60);

/// How long the input requests of a call may be open together.
const MAX_INPUT_TIME: Duration = Duration::from_secs(10 * 60);

impl CallContext {
    /// Whether the caller answers input requests of this kind.
    #[must_use]
    pub fn accepts_input(&self, kind: InputKind) -> bool {
        self.call().input.as_ref().is_some_and(|handler| handler.accepts(kind))
    }

    /// Says that the tool needs answers to requests of this kind, which the caller does not give.
    pub fn miss_input(&self, kind: InputKind) {
        if let Some(handler) = &self.call().input {
            handler.missed(kind);
        }
    }

    /// Asks the caller, and waits for the answer for at most two minutes, and at most ten for all requests of a call. The timeouts of
    /// the call are paused meanwhile.
    ///
    /// # Errors
    /// When there is no answer: the caller cannot give one, declines, takes too long, or the call has ended.
    pub async fn request_input(&self, request: InputRequest) -> Result<Value, InputError> {
        let handler = self.call().input.as_ref().filter(|handler| handler.accepts(request.kind));
        let Some(handler) = handler else {
            self.miss_input(request.kind);
            return Err(InputError::Unsupported);
        };
        let left = MAX_INPUT_TIME.saturating_sub(self.paused_time());
        if left.is_zero() {
            return Err(InputError::TimedOut);
        }
        let _paused = self.0.paused.pause(self);
        let answer = tokio::time::timeout(INPUT_TIMEOUT.min(left), handler.answer(request));
        match self.cancel_token().run_until_cancelled(answer).await {
            Some(Ok(Some(answer))) => Ok(answer),
            Some(Ok(None)) => Err(InputError::Declined),
            Some(Err(_)) => Err(InputError::TimedOut),
            None => Err(InputError::Cancelled),
        }
    }

    /// For how long the clock of the call has been paused in this attempt, up to now.
    pub(super) fn paused_time(&self) -> Duration {
        self.0.paused.total(self.services().clock.instant())
    }

    /// Since when the idle timeout counts: the last progress or the last answer, now while an input request is open.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        let paused = self.0.paused.lock();
        if paused.open > 0 {
            return Some(self.services().clock.instant());
        }
        self.last_progress_at().max(paused.last_resumed)
    }
}

/// How long the clock of a call was paused.
#[derive(Default)]
pub(super) struct PausedTime(Mutex<Pauses>);

#[derive(Default)]
struct Pauses {
    /// How many input requests are open.
    open: usize,
    /// Since when at least one is open.
    since: Option<Instant>,
    /// The time of the earlier pauses.
    earlier: Duration,
    last_resumed: Option<Instant>,
}

impl PausedTime {
    fn pause<'a>(&'a self, context: &'a CallContext) -> Pause<'a> {
        let now = context.services().clock.instant();
        let mut pauses = self.lock();
        pauses.open += 1;
        pauses.since.get_or_insert(now);
        Pause { time: self, context }
    }

    fn total(&self, now: Instant) -> Duration {
        let pauses = self.lock();
        pauses.earlier + pauses.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    fn lock(&self) -> MutexGuard<'_, Pauses> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Pauses the clock until it is dropped.
struct Pause<'a> {
    time: &'a PausedTime,
    context: &'a CallContext,
}

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        let now = self.context.services().clock.instant();
        let mut pauses = self.time.lock();
        pauses.open -= 1;
        pauses.last_resumed = Some(now);
        if pauses.open == 0 {
            let since = pauses.since.take();
            pauses.earlier += since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        }
    }
}

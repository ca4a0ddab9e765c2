//! When the parts of a call happened, beyond its arrival, first start and end. Most calls have none of these.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    error::{CallError, ErrorKind},
    millis::Millis,
};

/// When the parts of a call happened, as times since its arrival.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CallTiming {
    /// When it began to wait for a rate limit or a slot.
    #[serde(rename = "scheduledMs", skip_serializing_if = "Option::is_none")]
    pub scheduled: Option<Millis>,
    /// The attempts of a call that failed in a way that may be repeated, in their order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<AttemptTiming>,
    /// When the tool was done, and the hooks after it began.
    #[serde(rename = "doneMs", skip_serializing_if = "Option::is_none")]
    pub done: Option<Millis>,
}

/// One attempt of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AttemptTiming {
    /// When it began.
    #[serde(rename = "startMs")]
    pub start: Millis,
    /// When it failed; absent if it was the last one and its end was that of the call.
    #[serde(rename = "endMs", skip_serializing_if = "Option::is_none", default)]
    pub end: Option<Millis>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<AttemptError>,
}

/// Why an attempt failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AttemptError {
    /// The stable error code.
    pub code: ErrorKind,
    /// The error text for operators.
    pub detail: String,
}

impl CallTiming {
    /// Notes the end of a failed attempt that began at `start`.
    pub fn end_attempt(&mut self, start: Duration, end: Duration, error: &CallError) {
        let (end, error) = (Some(Millis(end)), Some(AttemptError::from(error)));
        match self.attempts.last_mut().filter(|attempt| attempt.end.is_none()) {
            Some(attempt) => (attempt.end, attempt.error) = (end, error),
            None => self.attempts.push(AttemptTiming { start: Millis(start), end, error }),
        }
    }

    /// Notes the start of another attempt.
    pub fn begin_attempt(&mut self, start: Duration) {
        self.attempts.push(AttemptTiming { start: Millis(start), end: None, error: None });
    }
}

impl From<&CallError> for AttemptError {
    fn from(error: &CallError) -> Self {
        Self { code: error.kind, detail: error.operator.clone() }
    }
}

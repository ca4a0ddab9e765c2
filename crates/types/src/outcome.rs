//! The terminal outcome of a call.
//!
//! The pipeline creates exactly one per call, whatever happens. The journal stores it and the caller receives it.

use std::{borrow::Cow, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use smol_str::SmolStr;

use crate::{
    content::Content,
    effect::Effect,
    error::{CallError, ErrorKind},
    ids::{ApprovalId, CallId, ThreadId},
    timestamp::Timestamp,
    timing::CallTiming,
    trace::TraceId,
};

/// The status of a call. The last three are terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "CallStatus")]
pub enum Status {
    /// The call is being validated.
    Validating,
    /// The call waits for the approval of a person.
    AwaitingApproval,
    /// The call waits in the queue.
    Scheduled,
    /// The tool is running.
    Executing,
    /// The tool succeeded.
    Success,
    /// The call was refused or failed.
    Error,
    /// The call was cancelled.
    Cancelled,
}

impl Status {
    /// The name in records and responses.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Validating => "validating",
            Self::AwaitingApproval => "awaiting_approval",
            Self::Scheduled => "scheduled",
            Self::Executing => "executing",
            Self::Success => "success",
            Self::Error => "error",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether the call has ended.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Success | Self::Error | Self::Cancelled)
    }
}

/// Whether an acknowledged write is durable already.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WriteDurability {
    /// It is durable, as far as its store promises.
    #[default]
    Durable,
    /// It is durable on its server, but fewer replicas than configured had it in time: a fail-over may lose it.
    Unreplicated,
    /// Write-behind: it will be flushed later, and a crash before that loses it.
    #[serde(rename = "behind")]
    WriteBehind,
}

impl WriteDurability {
    fn is_durable(&self) -> bool {
        *self == Self::Durable
    }
}

/// The terminal outcome of a call: its result or error, and its side effect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// The call that ended.
    pub id: CallId,
    /// The tool's name as the caller wrote it.
    pub tool: SmolStr,
    /// The thread; created if the tool needs one and the caller named none.
    #[serde(rename = "threadId")]
    pub thread: Option<ThreadId>,
    /// The id that the model gave its tool call.
    #[serde(rename = "modelCallId", skip_serializing_if = "Option::is_none", default)]
    pub model_call: Option<SmolStr>,
    /// One of the three terminal statuses.
    pub status: Status,
    /// The side effect of the call.
    pub effect: Effect,
    /// The tool's result. Kept even if the call failed after the tool had finished.
    #[serde(skip_serializing_if = "Value::is_null", default)]
    pub output: Value,
    /// The content for a model; empty if that is just the output.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub content: Vec<Content>,
    /// Why the call did not succeed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<CallError>,
    /// How often the tool was started.
    pub attempts: u32,
    /// Whether this is the stored outcome of an earlier call with the same idempotency key.
    pub replayed: bool,
    /// Whether this is the cached result of an earlier call with the same arguments.
    #[serde(default)]
    pub cached: bool,
    /// Whether the end of the call and its state are durable already; omitted if they are. The stored outcome does not say `unreplicated`,
    /// because it is written before the replicas have it.
    #[serde(skip_serializing_if = "WriteDurability::is_durable", default)]
    pub durability: WriteDurability,
    /// The approval that allowed the call.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub approval: Option<ApprovalId>,
    /// The trace the call belongs to.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub trace_id: Option<TraceId>,
    /// Time from arrival to the first start of the tool, or to the refusal.
    #[serde(rename = "queuedMs", with = "crate::millis::fractional")]
    #[schemars(with = "f64", range(min = 0))]
    pub queued: Duration,
    /// Time from the first start of the tool, or from its result cache, to the end.
    #[serde(rename = "durationMs", with = "crate::millis::fractional")]
    #[schemars(with = "f64", range(min = 0))]
    pub duration: Duration,
    /// When it waited for a slot, the attempts before the last one, and when its hooks began; absent for most calls.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub timing: Option<Box<CallTiming>>,
    /// When the call arrived.
    pub started_at: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
}

impl Outcome {
    /// Whether the call succeeded.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.status == Status::Success
    }

    /// The error kind, if the call did not succeed.
    #[must_use]
    pub fn error_kind(&self) -> Option<ErrorKind> {
        self.error.as_ref().map(|error| error.kind)
    }

    /// The output, or the error.
    ///
    /// # Errors
    /// When the call did not succeed.
    pub fn into_result(self) -> Result<Value, CallError> {
        match self.error {
            None => Ok(self.output),
            Some(error) => Err(error),
        }
    }

    /// The output, deserialized.
    ///
    /// # Errors
    /// When the call did not succeed, or the output does not deserialize into `T`.
    pub fn output_as<T: DeserializeOwned>(&self) -> Result<T, CallError> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        T::deserialize(&self.output).map_err(|error| {
            CallError::new(ErrorKind::Internal)
                .operator(format!("the output of `{}` does not match the requested type: {error}", self.tool))
        })
    }

    /// The text of this outcome for a model.
    #[must_use]
    pub fn model_text(&self) -> Cow<'_, str> {
        let Some(error) = &self.error else {
            return self.output_text();
        };
        let mut text = error.model.clone();
        match self.effect {
            Effect::None => {}
            Effect::Done => {
                text.push_str("\nThe tool itself had finished before; do not repeat the call.");
                if !self.output.is_null() || !self.content.is_empty() {
                    text.push_str(" It returned:\n");
                    text.push_str(&self.output_text());
                }
            }
            Effect::Unknown if error.kind == ErrorKind::Interrupted => {}
            Effect::Unknown => {
                text.push_str("\nWhether the call took effect is not known; check before you repeat it.");
            }
        }
        Cow::Owned(text)
    }

    fn output_text(&self) -> Cow<'_, str> {
        let mut texts: Vec<Cow<'_, str>> = self.content.iter().filter_map(Content::model_text).collect();
        let unread = self.unread_blocks();
        if texts.is_empty() {
            match &self.output {
                Value::Null if unread.is_some() => {}
                Value::Null => return Cow::Borrowed("done"),
                Value::String(text) => texts.push(Cow::Borrowed(text)),
                output => texts.push(Cow::Owned(output.to_string())),
            }
        }
        texts.extend(unread.map(Cow::Owned));
        if texts.len() > 1 { Cow::Owned(texts.join("\n")) } else { texts.pop().unwrap_or_default() }
    }

    /// Names the blocks that no model gets: sounds and bytes of resources.
    fn unread_blocks(&self) -> Option<String> {
        const MAX_LABELS: usize = 5;
        let is_unread = |block: &&Content| !matches!(block, Content::Image { .. });
        let mut blocks = self.content.iter().filter(is_unread);
        let labels: Vec<String> = blocks.by_ref().filter_map(Content::binary_label).take(MAX_LABELS).collect();
        let more = match blocks.filter(|block| block.binary().is_some()).count() {
            0 => String::new(),
            count => format!(" and {count} more"),
        };
        (!labels.is_empty()).then(|| format!("[not shown: {}{more}]", labels.join(", ")))
    }
}

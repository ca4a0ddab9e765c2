//! The one end of a call.
//!
//! Made by the pipeline exactly once per call, whatever happened; kept in the journal, given to the caller.

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
    trace::TraceId,
};

/// Where a call is on its way. The last three are ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "CallStatus")]
pub enum Status {
    /// It is being checked.
    Validating,
    /// A person must say yes.
    AwaitingApproval,
    /// It waits for its turn.
    Scheduled,
    /// The tool runs.
    Executing,
    /// The tool did what was asked.
    Success,
    /// It was refused, or it failed.
    Error,
    /// The caller did not want it any more.
    Cancelled,
}

impl Status {
    /// Whether the call has ended.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Success | Self::Error | Self::Cancelled)
    }
}

/// Whether what was acknowledged is written down already.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Acknowledged {
    /// It is, as safely as its store promises.
    #[default]
    Durable,
    /// It will be, a moment later: a crash may lose it.
    Behind,
}

impl Acknowledged {
    fn is_durable(&self) -> bool {
        *self == Self::Durable
    }
}

/// The end of a call: what came out, and what it did to the world.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// The call that ended.
    pub id: CallId,
    /// The tool's name as the caller wrote it.
    pub tool: SmolStr,
    /// The conversation; minted where the tool needs one and the caller named none.
    #[serde(rename = "threadId")]
    pub thread: Option<ThreadId>,
    /// The id the model gave its request.
    #[serde(rename = "modelCallId", skip_serializing_if = "Option::is_none", default)]
    pub model_call: Option<SmolStr>,
    /// One of the three ends.
    pub status: Status,
    /// What it did to the world.
    pub effect: Effect,
    /// What the tool returned. Kept even where the call failed after the tool was done.
    #[serde(skip_serializing_if = "Value::is_null", default)]
    pub output: Value,
    /// What a model is shown; empty where that is just the output.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub content: Vec<Content>,
    /// Why it did not succeed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<CallError>,
    /// How often the tool was started.
    pub attempts: u32,
    /// Whether this is the kept answer of an earlier call with the same idempotency key.
    pub replayed: bool,
    /// Whether this is the kept answer of an earlier call with the same arguments.
    #[serde(default)]
    pub cached: bool,
    /// Whether what the tool remembers of this call is written down already; told where it is not.
    #[serde(skip_serializing_if = "Acknowledged::is_durable", default)]
    pub durability: Acknowledged,
    /// The approval the call was made on.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub approval: Option<ApprovalId>,
    /// The trace it belongs to.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub trace_id: Option<TraceId>,
    /// From arrival to the first start of the tool, or to the refusal.
    #[serde(rename = "queuedMs", with = "crate::millis")]
    #[schemars(with = "u64")]
    pub queued: Duration,
    /// From the first start of the tool to the end.
    #[serde(rename = "durationMs", with = "crate::millis")]
    #[schemars(with = "u64")]
    pub duration: Duration,
    /// When the call arrived.
    pub started_at: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
}

impl Outcome {
    /// Whether the tool did what was asked.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.status == Status::Success
    }

    /// What went wrong, if anything did.
    #[must_use]
    pub fn error_kind(&self) -> Option<ErrorKind> {
        self.error.as_ref().map(|error| error.kind)
    }

    /// The output, or why there is none.
    ///
    /// # Errors
    /// When the call did not succeed.
    pub fn into_result(self) -> Result<Value, CallError> {
        match self.error {
            None => Ok(self.output),
            Some(error) => Err(error),
        }
    }

    /// The output as the type the tool returned.
    ///
    /// # Errors
    /// When the call did not succeed, or the output is of another shape.
    pub fn output_as<T: DeserializeOwned>(&self) -> Result<T, CallError> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        T::deserialize(&self.output).map_err(|wrong| {
            CallError::new(ErrorKind::Internal)
                .operator(format!("the output of `{}` is another type: {wrong}", self.tool))
        })
    }

    /// What a model is told about this call.
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
        let texts: Vec<&str> = self
            .content
            .iter()
            .filter_map(|piece| if let Content::Text { text } = piece { Some(text.as_str()) } else { None })
            .collect();
        match (texts.as_slice(), &self.output) {
            ([one], _) => Cow::Borrowed(one),
            ([], Value::String(text)) => Cow::Borrowed(text),
            ([], Value::Null) => Cow::Borrowed("done"),
            ([], output) => Cow::Owned(output.to_string()),
            (many, _) => Cow::Owned(many.join("\n")),
        }
    }
}

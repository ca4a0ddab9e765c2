//! What happened to a context, entry by entry.
//!
//! In: what happened. Out: rows whose ids grow with time, and the entries read back, the oldest first. Secrets are taken
//! out before anything is written, and what is too long is told by its size. Who trims is `manager/past.rs`.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use smol_str::{SmolStr, format_smolstr};

use super::{ContextId, data};
use crate::redact;
use toolhub_storage::backend::{Change, Durability, Expect, Row, StoreError, Table, Write, decode, encode};
use toolhub_types::{error::CallError, timestamp::Timestamp};

/// The layout of these records.
const LAYOUT: u32 = 1;
/// A thousand entries are kept for each context; a large state written often must not be kept a thousand times.
const MAX_ENTRY_BYTES: usize = 16 * 1024;

/// One thing that happened to a context.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct HistoryEntry {
    /// When.
    pub timestamp: Timestamp,
    /// What.
    #[serde(flatten)]
    pub event: HistoryEvent,
}

/// What happened to a context.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum HistoryEvent {
    /// A tool that uses the state began.
    ExecutionStart {
        /// What it was given, without secrets.
        parameters: Value,
    },
    /// It succeeded.
    ExecutionSuccess {
        /// What sort of result it had.
        result_type: String,
    },
    /// It failed.
    ExecutionError {
        /// What went wrong.
        error: String,
        /// The kind of error.
        error_type: String,
    },
    /// The business state was written.
    Update {
        /// What was written, without secrets.
        updates: Value,
        /// The version it has since.
        version: u64,
    },
    /// Something the tool found worth noting.
    Note {
        /// What, without secrets.
        what: Value,
    },
}

impl HistoryEvent {
    /// What a tool was given, as it is told.
    pub(crate) fn redact_parameters(arguments: &Value) -> Value {
        redact_and_truncate(arguments)
    }

    /// A tool succeeded.
    pub(crate) fn success(output: &Value) -> Self {
        Self::ExecutionSuccess { result_type: data::json_type_name(output).into() }
    }

    /// A tool failed.
    pub(crate) fn error(error: &CallError) -> Self {
        Self::ExecutionError { error: truncate_text(&error.operator), error_type: error.kind.to_string() }
    }

    /// The same, fit to be kept.
    pub(crate) fn sanitize(self) -> Self {
        match self {
            Self::ExecutionStart { parameters } => {
                Self::ExecutionStart { parameters: redact_and_truncate(&parameters) }
            }
            Self::Update { updates, version } => Self::Update { updates: redact_and_truncate(&updates), version },
            Self::Note { what } => Self::Note { what: redact_and_truncate(&what) },
            Self::ExecutionError { error, error_type } => {
                Self::ExecutionError { error: truncate_text(&error), error_type: truncate_text(&error_type) }
            }
            Self::ExecutionSuccess { result_type } => {
                Self::ExecutionSuccess { result_type: truncate_text(&result_type) }
            }
        }
    }
}

/// A value as it is told: without secrets, and not too long.
pub(crate) fn redact_and_truncate(value: &Value) -> Value {
    let told = redact::redact(value);
    let bytes = told.to_string().len();
    if bytes > MAX_ENTRY_BYTES { json!({ "omittedBytes": bytes }) } else { told }
}

/// A text as it is told: the beginning of one that is too long.
fn truncate_text(text: &str) -> String {
    let end = text.floor_char_boundary(MAX_ENTRY_BYTES);
    if end < text.len() { format!("{}…", &text[..end]) } else { text.into() }
}

/// What is told of a write.
pub(crate) enum Updates<'a> {
    /// This was laid over what was there.
    Patch(&'a Value),
    /// All of it is new, and this is its text.
    Whole(&'a [u8]),
}

impl Updates<'_> {
    /// The text of the entry. A whole state is parsed only if it may hold a secret: it is long, and written often.
    fn to_raw_entry(&self, timestamp: Timestamp, version: u64) -> Result<Option<String>, serde_json::Error> {
        let Self::Whole(text) = self else { return Ok(None) };
        let text = std::str::from_utf8(text).ok().filter(|text| text.len() <= MAX_ENTRY_BYTES);
        let Some(text) = text.filter(|text| !redact::may_hold_secrets(text.as_bytes())) else { return Ok(None) };
        let timestamp = serde_json::to_string(&timestamp)?;
        Ok(Some(format!(r#"{{"timestamp":{timestamp},"type":"update","updates":{text},"version":{version}}}"#)))
    }

    fn to_redacted_value(&self) -> Value {
        match self {
            Self::Patch(patch) => redact_and_truncate(patch),
            Self::Whole(text) if text.len() > MAX_ENTRY_BYTES => json!({ "omittedBytes": text.len() }),
            Self::Whole(text) => redact_and_truncate(&serde_json::from_slice(text).unwrap_or_default()),
        }
    }
}

/// Numbers the entries of this node, so that those of one millisecond keep their order. Those of two nodes in the same
/// millisecond may stand in either order: to know better, every write would have to ask the store once more.
#[derive(Default)]
pub(crate) struct Sequence(AtomicU64);

impl Sequence {
    /// An id that comes after all ids this node made before, and that no other node makes.
    fn next_id(&self, context: &ContextId, now: Timestamp) -> SmolStr {
        let at = u64::try_from(now.millis()).unwrap_or(0);
        let number = self.0.fetch_add(1, Ordering::Relaxed);
        format_smolstr!("{}/{at:012x}-{number:010x}-{:08x}", context.state(), fastrand::u32(..))
    }

    /// The write that notes a new version of the business state.
    pub(crate) fn note_update(
        &self,
        context: &ContextId,
        (updates, version): (&Updates<'_>, u64),
        now: Timestamp,
        expires: Option<Timestamp>,
    ) -> Result<Write, StoreError> {
        match updates.to_raw_entry(now, version) {
            Ok(Some(text)) => Ok(put(self.next_id(context, now), text.into_bytes().into(), expires)),
            _ => {
                self.note(context, HistoryEvent::Update { updates: updates.to_redacted_value(), version }, now, expires)
            }
        }
    }

    /// The write that notes what happened, which must be fit to be kept.
    pub(crate) fn note(
        &self,
        context: &ContextId,
        what: HistoryEvent,
        now: Timestamp,
        expires: Option<Timestamp>,
    ) -> Result<Write, StoreError> {
        write(self.next_id(context, now), &HistoryEntry { timestamp: now, event: what }, expires)
    }
}

/// The write of one entry.
pub(crate) fn write(id: SmolStr, entry: &HistoryEntry, expires: Option<Timestamp>) -> Result<Write, StoreError> {
    let value = encode(Table::History, &id, entry)?;
    Ok(put(id, value, expires))
}

fn put(id: SmolStr, value: Arc<[u8]>, expires: Option<Timestamp>) -> Write {
    let change = Change::Put { value, schema: LAYOUT, expires };
    // It never asks for more than the state it is written with.
    Write { table: Table::History, id, expect: Expect::Any, change, durability: Durability::KillSafe }
}

/// One entry as it was written.
pub(crate) fn read(id: &SmolStr, row: &Row) -> Result<HistoryEntry, StoreError> {
    decode(Table::History, id, LAYOUT, row).map(|(entry, _)| entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_flat_json_with_its_type_and_time() {
        let what = HistoryEvent::ExecutionError { error: "no".into(), error_type: "tool_error".into() };
        let entry = HistoryEntry { timestamp: Timestamp::from_millis(0), event: what };
        let text = json!({
            "timestamp": "1970-01-01T00:00:00.000Z", "type": "execution_error", "error": "no", "errorType": "tool_error",
        });
        assert_eq!(serde_json::to_value(&entry).unwrap(), text);
        assert_eq!(serde_json::from_value::<HistoryEntry>(text).unwrap(), entry);
    }

    #[test]
    fn a_whole_state_is_told_alike_whether_or_not_it_was_parsed() {
        let context: ContextId = "t/s".parse().unwrap();
        for (text, told) in [
            (r#"{"a":[1,{"b":null}]}"#, json!({"a": [1, {"b": null}]})),
            (r#"{"a":"\"","pass_word":1}"#, json!({"a": "\"", "pass_word": "[redacted]"})),
        ] {
            let updates = Updates::Whole(text.as_bytes());
            let write =
                Sequence::default().note_update(&context, (&updates, 7), Timestamp::from_millis(5), None).unwrap();
            let Change::Put { value, .. } = write.change else { panic!("an entry is put") };
            let entry: HistoryEntry = serde_json::from_slice(&value).unwrap();
            let event = HistoryEvent::Update { updates: told, version: 7 };
            assert_eq!(entry, HistoryEntry { timestamp: Timestamp::from_millis(5), event });
        }
    }

    #[test]
    fn what_is_too_long_is_told_by_its_size() {
        let long = HistoryEvent::Update { updates: json!({"a": "x".repeat(MAX_ENTRY_BYTES)}), version: 3 }.sanitize();
        assert_eq!(long, HistoryEvent::Update { updates: json!({"omittedBytes": MAX_ENTRY_BYTES + 8}), version: 3 });
        let error =
            HistoryEvent::ExecutionError { error: "ä".repeat(MAX_ENTRY_BYTES), error_type: "tool_error".into() };
        let HistoryEvent::ExecutionError { error, .. } = error.sanitize() else { panic!("still an error") };
        assert!(error.ends_with('…') && error.len() <= MAX_ENTRY_BYTES + '…'.len_utf8());
    }
}

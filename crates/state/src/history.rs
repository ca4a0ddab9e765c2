//! History entries of a context.
//!
//! In: events. Out: rows whose ids increase with time, and the entries read back, oldest first. Secrets are redacted
//! before anything is written, and a value that is too long is replaced by its size. `manager/history.rs` trims.

use std::{
    fmt,
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use smol_str::{SmolStr, format_smolstr};

use super::{ContextId, data};
use toolhub_storage::backend::{Change, Durability, Expect, Row, StoreError, Table, Write, decode, encode};

use toolhub_types::{error::CallError, redact::Redactor, timestamp::Timestamp};

/// The layout of these records.
const LAYOUT: u32 = 1;
/// Maximum size of one value in an entry. A context keeps up to a thousand entries, and a large state that is written
/// often must not be stored a thousand times.
const MAX_ENTRY_BYTES: usize = 16 * 1024;

/// One entry of the history of a context.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct HistoryEntry {
    /// When it happened.
    pub timestamp: Timestamp,
    /// What happened.
    #[serde(flatten)]
    pub event: HistoryEvent,
}

/// An event in the history of a context.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum HistoryEvent {
    /// A tool that uses the state started.
    ExecutionStart {
        /// Its arguments, redacted.
        parameters: Value,
    },
    /// The tool succeeded.
    ExecutionSuccess {
        /// The JSON type of its result: `object`, `array`, `string`, `number`, `boolean` or `null`.
        result_type: String,
    },
    /// The tool failed.
    ExecutionError {
        /// The error message.
        error: String,
        /// The kind of error.
        error_type: String,
    },
    /// The business state was written.
    Update {
        /// The written data, redacted.
        updates: Value,
        /// The version this write produced.
        version: u64,
    },
    /// A note the tool added.
    Note {
        /// The note, redacted.
        what: Value,
    },
}

impl HistoryEvent {
    #[doc(hidden)]
    pub fn success(output: &Value) -> Self {
        Self::ExecutionSuccess { result_type: data::json_type(output).into() }
    }

    #[doc(hidden)]
    pub fn error(error: &CallError) -> Self {
        Self::ExecutionError { error: truncate_text(&error.operator), error_type: error.kind.to_string() }
    }

    /// The same event, redacted and truncated for storage.
    pub(crate) fn sanitize(self, redactor: &Redactor) -> Self {
        match self {
            Self::ExecutionStart { parameters } => {
                Self::ExecutionStart { parameters: redact_and_truncate(&parameters, redactor) }
            }
            Self::Update { updates, version } => {
                Self::Update { updates: redact_and_truncate(&updates, redactor), version }
            }
            Self::Note { what } => Self::Note { what: redact_and_truncate(&what, redactor) },
            Self::ExecutionError { error, error_type } => {
                Self::ExecutionError { error: truncate_text(&error), error_type: truncate_text(&error_type) }
            }
            Self::ExecutionSuccess { result_type } => {
                Self::ExecutionSuccess { result_type: truncate_text(&result_type) }
            }
        }
    }
}

/// A value without its secrets; replaced by its size when it is too long.
pub(crate) fn redact_and_truncate(value: &Value, redactor: &Redactor) -> Value {
    let redacted = redactor.redacted(value);
    let bytes = redacted.to_string().len();
    if bytes > MAX_ENTRY_BYTES { json!({ "omittedBytes": bytes }) } else { redacted }
}

/// Truncates a text that is too long.
fn truncate_text(text: &str) -> String {
    let end = text.floor_char_boundary(MAX_ENTRY_BYTES);
    if end < text.len() { format!("{}…", &text[..end]) } else { text.into() }
}

/// What the history records of a write.
pub(crate) enum Updates<'a> {
    /// A merge patch that was applied to the state.
    Patch(&'a Value),
    /// The JSON text of the whole new state.
    Whole(&'a [u8]),
}

impl Updates<'_> {
    /// The JSON text of the entry, built without parsing the state; `None` when that is not possible. A whole state is
    /// parsed only if it may contain a secret, because states are long and written often.
    fn to_raw_entry(
        &self,
        timestamp: Timestamp,
        version: u64,
        redactor: &Redactor,
    ) -> Result<Option<String>, serde_json::Error> {
        let Self::Whole(text) = self else { return Ok(None) };
        let text = std::str::from_utf8(text).ok().filter(|text| text.len() <= MAX_ENTRY_BYTES);
        let Some(text) = text.filter(|text| !redactor.may_find_secrets(text.as_bytes())) else { return Ok(None) };
        let timestamp = serde_json::to_string(&timestamp)?;
        Ok(Some(format!(r#"{{"timestamp":{timestamp},"type":"update","updates":{text},"version":{version}}}"#)))
    }

    fn to_redacted_value(&self, redactor: &Redactor) -> Value {
        match self {
            Self::Patch(patch) => redact_and_truncate(patch, redactor),
            Self::Whole(text) if text.len() > MAX_ENTRY_BYTES => json!({ "omittedBytes": text.len() }),
            Self::Whole(text) => redact_and_truncate(&serde_json::from_slice(text).unwrap_or_default(), redactor),
        }
    }
}

/// Makes entries without secrets. Numbers those of this node, so that entries of one millisecond keep their order. Entries of two nodes in the
/// same millisecond may have either order: a strict order would need one more round trip to the store per write.
#[derive(Default)]
pub(crate) struct HistoryWriter {
    next: AtomicU64,
    redactor: Arc<Redactor>,
}

impl HistoryWriter {
    pub(crate) fn new(redactor: Arc<Redactor>) -> Self {
        Self { next: AtomicU64::new(0), redactor }
    }

    /// An event, redacted and truncated for storage.
    pub(crate) fn sanitize(&self, event: HistoryEvent) -> HistoryEvent {
        event.sanitize(&self.redactor)
    }

    /// The arguments of a tool, redacted and truncated.
    pub(crate) fn redact_parameters(&self, arguments: &Value) -> Value {
        redact_and_truncate(arguments, &self.redactor)
    }

    /// An id that sorts after all earlier ids of this node and that no other node generates.
    fn next_id(&self, context: &ContextId, now: Timestamp) -> SmolStr {
        let at = u64::try_from(now.millis()).unwrap_or(0);
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        format_smolstr!("{}/{at:012x}-{number:010x}-{:08x}", context.state(), fastrand::u32(..))
    }

    /// The write that records a new version of the business state.
    pub(crate) fn note_update(
        &self,
        context: &ContextId,
        (updates, version): (&Updates<'_>, u64),
        now: Timestamp,
        expires: Option<Timestamp>,
    ) -> Result<Write, StoreError> {
        match updates.to_raw_entry(now, version, &self.redactor) {
            Ok(Some(text)) => Ok(put(self.next_id(context, now), text.into_bytes().into(), expires)),
            _ => {
                let updates = updates.to_redacted_value(&self.redactor);
                self.note(context, HistoryEvent::Update { updates, version }, now, expires)
            }
        }
    }

    /// The write that records an event, which must be sanitized already.
    pub(crate) fn note(
        &self,
        context: &ContextId,
        event: HistoryEvent,
        now: Timestamp,
        expires: Option<Timestamp>,
    ) -> Result<Write, StoreError> {
        write(self.next_id(context, now), &HistoryEntry { timestamp: now, event }, expires)
    }
}

/// The write of one entry.
pub(crate) fn write(id: SmolStr, entry: &HistoryEntry, expires: Option<Timestamp>) -> Result<Write, StoreError> {
    let value = encode(Table::History, &id, entry)?;
    Ok(put(id, value, expires))
}

fn put(id: SmolStr, value: Arc<[u8]>, expires: Option<Timestamp>) -> Write {
    let change = Change::Put { value, schema: LAYOUT, expires };
    // An entry needs no stronger durability than the state it is written with.
    Write { table: Table::History, id, expect: Expect::Any, change, durability: Durability::KillSafe }
}

/// Where a page of a history ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HistoryCursor {
    /// How many entries were listed.
    pub(crate) listed: usize,
    /// The row of the last one.
    pub(crate) row: SmolStr,
}

impl fmt::Display for HistoryCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.listed, self.row)
    }
}

impl FromStr for HistoryCursor {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (listed, row) = text.split_once(' ').unwrap_or((text, ""));
        Ok(Self { listed: listed.parse()?, row: row.into() })
    }
}

/// Decodes one entry.
pub(crate) fn read(id: &SmolStr, row: &Row) -> Result<HistoryEntry, StoreError> {
    decode(Table::History, id, LAYOUT, row).map(|(entry, _)| entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_flat_json_with_its_type_and_time() {
        let event = HistoryEvent::ExecutionError { error: "no".into(), error_type: "tool_error".into() };
        let entry = HistoryEntry { timestamp: Timestamp::from_millis(0), event };
        let text = json!({
            "timestamp": "1970-01-01T00:00:00.000Z", "type": "execution_error", "error": "no", "errorType": "tool_error",
        });
        assert_eq!(serde_json::to_value(&entry).unwrap(), text);
        assert_eq!(serde_json::from_value::<HistoryEntry>(text).unwrap(), entry);
    }

    #[test]
    fn a_whole_state_is_told_alike_whether_or_not_it_was_parsed() {
        let context: ContextId = "t/s".parse().unwrap();
        for (text, recorded) in [
            (r#"{"a":[1,{"b":null}]}"#, json!({"a": [1, {"b": null}]})),
            (r#"{"a":"\"","pass_word":1}"#, json!({"a": "\"", "pass_word": "[redacted]"})),
        ] {
            let updates = Updates::Whole(text.as_bytes());
            let write =
                HistoryWriter::default().note_update(&context, (&updates, 7), Timestamp::from_millis(5), None).unwrap();
            let Change::Put { value, .. } = write.change else { panic!("an entry is put") };
            let entry: HistoryEntry = serde_json::from_slice(&value).unwrap();
            let event = HistoryEvent::Update { updates: recorded, version: 7 };
            assert_eq!(entry, HistoryEntry { timestamp: Timestamp::from_millis(5), event });
        }
    }

    #[test]
    fn what_is_too_long_is_told_by_its_size() {
        let long = HistoryEvent::Update { updates: json!({"a": "x".repeat(MAX_ENTRY_BYTES)}), version: 3 }
            .sanitize(&Redactor::default());
        assert_eq!(long, HistoryEvent::Update { updates: json!({"omittedBytes": MAX_ENTRY_BYTES + 8}), version: 3 });
        let error =
            HistoryEvent::ExecutionError { error: "ä".repeat(MAX_ENTRY_BYTES), error_type: "tool_error".into() };
        let HistoryEvent::ExecutionError { error, .. } = error.sanitize(&Redactor::default()) else {
            panic!("still an error")
        };
        assert!(error.ends_with('…') && error.len() <= MAX_ENTRY_BYTES + '…'.len_utf8());
    }
}

//! The export format: one context as one line of JSON with a checksum.
//!
//! In: a context's state, snapshots and history, or a line of text. Out: the line, or the parsed and validated context.
//! `manager/export.rs` and `manager/import.rs` read and write the store.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ContextId, HistoryEntry, data};
use toolhub_types::{digest, timestamp::Timestamp};

/// Largest version that is imported. Stores count up to twice as many, which leaves room for later writes.
const MAX_VERSION: u64 = 1 << 52;

/// The text before the checksum, which is the last member of a line.
const CHECKSUM_PREFIX: &str = ",\"checksum\":\"";

/// A context in the export format.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ExportedContext {
    pub context: ContextId,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub business: Option<ExportedState>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub session: Option<ExportedState>,
    /// The snapshots, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub versions: Vec<ExportedState>,
    /// The history, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub history: Vec<ExportedEntry>,
    /// SHA-256 of the text before it. Optional, so that a line can be written by hand.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    checksum: Option<String>,
}

/// A state or a snapshot of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ExportedState {
    pub version: u64,
    /// The layout version of the data.
    pub schema: u32,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub expires: Option<Timestamp>,
    pub data: Value,
}

/// An entry of the history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ExportedEntry {
    /// The part of the row id after the name of the state.
    pub id: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub expires: Option<Timestamp>,
    pub entry: HistoryEntry,
}

impl ExportedState {
    /// Whether it has not expired at this time.
    pub(crate) fn is_live(&self, now: Timestamp) -> bool {
        self.expires.is_none_or(|at| at > now)
    }
}

impl ExportedContext {
    pub(crate) fn new(context: ContextId) -> Self {
        let (business, session, versions, history) = (None, None, Vec::new(), Vec::new());
        Self { context, business, session, versions, history, checksum: None }
    }

    /// Whether there is nothing to export.
    pub(crate) fn is_empty(&self) -> bool {
        self.business.is_none() && self.session.is_none() && self.history.is_empty()
    }

    /// The line. The checksum covers the text, not the values: a JSON parser may change the last digit of a number.
    pub(crate) fn into_line(self) -> Result<String, serde_json::Error> {
        let text = serde_json::to_string(&Self { checksum: None, ..self })?;
        let open = &text[..text.len() - 1];
        Ok(format!("{open}{CHECKSUM_PREFIX}{}\"}}", digest::sha256_hex([text.as_bytes()])))
    }

    /// Parses and validates a line; or returns the reason why it is invalid.
    pub(crate) fn parse(line: &str, max_state_bytes: impl Fn(&ContextId) -> usize) -> Result<Self, String> {
        // Report the position, not the text: the text may contain a secret.
        let invalid = |error: serde_json::Error| format!("not an exported context (column {})", error.column());
        let exported: Self = serde_json::from_str(line).map_err(invalid)?;
        if let Some(checksum) = &exported.checksum {
            let whole = line.rsplit_once(CHECKSUM_PREFIX).map(|(open, _)| format!("{open}}}"));
            if whole.is_none_or(|text| digest::sha256_hex([text.as_bytes()]) != *checksum) {
                return Err("the checksum does not match: the line was changed or truncated after the export".into());
            }
        }
        exported.check(max_state_bytes(&exported.context))?;
        Ok(exported)
    }

    fn check(&self, max_state_bytes: usize) -> Result<(), String> {
        for state in self.business.iter().chain(&self.session).chain(&self.versions) {
            if !(1..=MAX_VERSION).contains(&state.version) {
                return Err(format!("{} is not a valid version of a state", state.version));
            }
            data::encode_imported(&state.data, max_state_bytes).map_err(|error| error.to_string())?;
        }
        let newest = self.business.as_ref().map_or(0, |state| state.version);
        let in_order = self.versions.iter().zip(self.versions.iter().skip(1)).all(|(a, b)| a.version < b.version);
        if !in_order || self.versions.last().is_some_and(|last| last.version > newest) {
            return Err("the versions are not in ascending order or exceed the version of the state".into());
        }
        let is_valid =
            |id: &str| (1..=64).contains(&id.len()) && id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        let ids: std::collections::HashSet<&str> = self.history.iter().map(|entry| entry.id.as_str()).collect();
        if ids.len() < self.history.len() || !ids.into_iter().all(is_valid) {
            return Err("a history entry has a duplicate or invalid id".into());
        }
        Ok(())
    }
}

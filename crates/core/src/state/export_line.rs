//! One context as a line of an export.
//!
//! In: a context's state, snapshots and history, or a line of text. Out: the line with its checksum, or the context again,
//! or what is wrong with the line. Where the parts come from and go to is known to `manager/export.rs` and `import.rs`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ContextId, HistoryEntry, data};
use toolhub_types::{digest, timestamp::Timestamp};

/// The largest version that is taken in. Stores count to twice as many, so there is room to go on.
const MAX_VERSION: u64 = 1 << 52;

/// What stands before the checksum, which is the last member of a line.
const CHECKSUM_PREFIX: &str = ",\"checksum\":\"";

/// A context, to be taken to another store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ExportedContext {
    pub(crate) context: ContextId,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) business: Option<ExportedState>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) session: Option<ExportedState>,
    /// The snapshots, the oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(crate) versions: Vec<ExportedState>,
    /// The oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(crate) history: Vec<ExportedEntry>,
    /// Of the text before it. A line written by hand may do without.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    checksum: Option<String>,
}

/// A state or a snapshot of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ExportedState {
    pub(crate) version: u64,
    /// The version of the data's layout.
    pub(crate) schema: u32,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) expires: Option<Timestamp>,
    pub(crate) data: Value,
}

/// An entry of the history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ExportedEntry {
    /// What follows the name of the state in the id of its row.
    pub(crate) id: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) expires: Option<Timestamp>,
    pub(crate) entry: HistoryEntry,
}

impl ExportedState {
    /// Whether it is still there at this time.
    pub(crate) fn is_live(&self, now: Timestamp) -> bool {
        self.expires.is_none_or(|at| at > now)
    }
}

impl ExportedContext {
    pub(crate) fn new(context: ContextId) -> Self {
        let (business, session, versions, history) = (None, None, Vec::new(), Vec::new());
        Self { context, business, session, versions, history, checksum: None }
    }

    /// Whether there is nothing to take along.
    pub(crate) fn is_empty(&self) -> bool {
        self.business.is_none() && self.session.is_none() && self.history.is_empty()
    }

    /// The line. The checksum is of the text before it, as a reader of JSON may change a number's last digit.
    pub(crate) fn into_line(self) -> Result<String, serde_json::Error> {
        let text = serde_json::to_string(&Self { checksum: None, ..self })?;
        let open = &text[..text.len() - 1];
        Ok(format!("{open}{CHECKSUM_PREFIX}{}\"}}", digest::sha256_hex([text.as_bytes()])))
    }

    /// The context of a line; or what is wrong with it.
    pub(crate) fn parse(line: &str, largest: usize) -> Result<Self, String> {
        // Where it is wrong, not what stands there: that may be anybody's secret.
        let told = |error: serde_json::Error| format!("it is not a saved context (column {})", error.column());
        let saved: Self = serde_json::from_str(line).map_err(told)?;
        if let Some(checksum) = &saved.checksum {
            let whole = line.rsplit_once(CHECKSUM_PREFIX).map(|(open, _)| format!("{open}}}"));
            if whole.is_none_or(|text| digest::sha256_hex([text.as_bytes()]) != *checksum) {
                return Err("the checksum does not fit: it was changed or cut after it was written".into());
            }
        }
        saved.check(largest)?;
        Ok(saved)
    }

    fn check(&self, largest: usize) -> Result<(), String> {
        for state in self.business.iter().chain(&self.session).chain(&self.versions) {
            if !(1..=MAX_VERSION).contains(&state.version) {
                return Err(format!("{} is no version of a state", state.version));
            }
            data::encode_imported(&state.data, largest).map_err(|error| error.to_string())?;
        }
        let newest = self.business.as_ref().map_or(0, |state| state.version);
        let in_order = self.versions.iter().zip(self.versions.iter().skip(1)).all(|(a, b)| a.version < b.version);
        if !in_order || self.versions.last().is_some_and(|last| last.version > newest) {
            return Err("the versions are not in order, or go beyond the state".into());
        }
        let fits = |id: &str| (1..=64).contains(&id.len()) && id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        let known: std::collections::HashSet<&str> = self.history.iter().map(|entry| entry.id.as_str()).collect();
        if known.len() < self.history.len() || !known.into_iter().all(fits) {
            return Err("an entry of the history has an id that is taken or not legal".into());
        }
        Ok(())
    }
}

//! Why a store did not do what was asked.

use smol_str::SmolStr;

use toolhub_types::error::{CallError, ErrorKind};

use super::Table;

/// Why the store did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A row was not as expected; nothing was written.
    #[error("{table} row `{id}` is not as expected: {}", found.map_or("it does not exist".into(), |v| format!("it has version {v}")))]
    Conflict {
        /// The table of the row.
        table: Table,
        /// Its id.
        id: SmolStr,
        /// The version it has, if it exists.
        found: Option<u64>,
    },
    /// Somebody newer works on this partition; nothing was written.
    #[error("the fence {given} is lower than {seen}: another node has taken over")]
    Fenced {
        /// The fence of the batch.
        given: u64,
        /// The highest one seen.
        seen: u64,
    },
    /// The batch makes no sense, such as one that writes a row twice; nothing was written.
    #[error("the batch cannot be committed: {0}")]
    Refused(String),
    /// A stored record cannot be read.
    #[error("the stored {table} record `{id}` cannot be read: {reason}")]
    Damaged {
        /// The table of the record.
        table: Table,
        /// Its id.
        id: SmolStr,
        /// What is wrong with it.
        reason: String,
    },
    /// The store does not answer; nothing was written.
    #[error("the store does not answer: {0}")]
    Unavailable(String),
    /// The answer was lost; the batch may have been written.
    #[error("the store's answer was lost: {0}")]
    Unknown(String),
}

impl StoreError {
    /// A record that is not of the expected form. The reason says where, not what: what serde says of it quotes the record.
    pub fn unreadable(table: Table, id: SmolStr, error: &serde_json::Error) -> Self {
        let what = if error.is_data() { "it has another form than expected" } else { "it is not JSON" };
        let reason = format!("{what} (line {}, column {})", error.line(), error.column());
        Self::Damaged { table, id, reason }
    }

    /// A record of another layout than this version writes.
    pub fn unknown_layout(table: Table, id: SmolStr, found: u32, known: u32) -> Self {
        Self::Damaged { table, id, reason: format!("it has layout {found}, this version knows {known}") }
    }

    /// Says aloud that a record was passed over because of this. Whoever passes it over has nobody to give the error to.
    pub fn log_skipped(&self) {
        if let Self::Damaged { table, id, reason } = self {
            tracing::warn!(%table, %id, %reason, "a stored record cannot be read and is passed over");
        }
    }
}

impl From<StoreError> for CallError {
    fn from(error: StoreError) -> Self {
        let kind = match &error {
            StoreError::Conflict { table: Table::State, .. } => ErrorKind::StateConflict,
            StoreError::Conflict { table: Table::OpenCalls, .. } => ErrorKind::Interrupted,
            StoreError::Damaged { table: Table::State, .. } => ErrorKind::StateUnreadable,
            StoreError::Conflict { .. } | StoreError::Damaged { .. } => ErrorKind::Internal,
            StoreError::Refused(_) => ErrorKind::Internal,
            StoreError::Fenced { .. } | StoreError::Unavailable(_) | StoreError::Unknown(_) => {
                ErrorKind::StoreUnavailable
            }
        };
        Self::new(kind).operator(error.to_string())
    }
}

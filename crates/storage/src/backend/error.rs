//! Errors of a store operation.

use smol_str::SmolStr;

use toolhub_types::error::{CallError, ErrorKind};

use super::Table;

/// Why a store operation failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A precondition did not hold; nothing was written.
    #[error("version conflict on {table} row `{id}`: {}", found.map_or("it does not exist".into(), |v| format!("it has version {v}")))]
    Conflict {
        /// The table of the row.
        table: Table,
        /// Its id.
        id: SmolStr,
        /// The version it has, if it exists.
        found: Option<u64>,
    },
    /// The batch demands that its partition holds no other rows, and it does; nothing was written.
    #[error("the partition holds other rows")]
    OtherRows,
    /// The batch is invalid, for example because it writes a row twice; nothing was written.
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
    /// The store is unavailable; nothing was written.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// The outcome is unknown; the batch may have been written.
    #[error("the outcome of the store operation is unknown: {0}")]
    Unknown(String),
}

impl StoreError {
    /// A record that cannot be parsed. The reason gives the position only: serde's own message would quote the record.
    pub fn unreadable(table: Table, id: SmolStr, error: &serde_json::Error) -> Self {
        let what = if error.is_data() { "it does not have the expected structure" } else { "it is not JSON" };
        let reason = format!("{what} (line {}, column {})", error.line(), error.column());
        Self::Damaged { table, id, reason }
    }

    /// A record whose layout version this build does not know.
    pub fn unknown_layout(table: Table, id: SmolStr, found: u32, known: u32) -> Self {
        Self::Damaged { table, id, reason: format!("it has layout {found}, this version supports {known}") }
    }

    /// Logs that a damaged record was skipped, for callers that cannot return the error.
    pub fn log_skipped(&self) {
        if let Self::Damaged { table, id, reason } = self {
            tracing::warn!(%table, %id, %reason, "skipping unreadable stored record");
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
            StoreError::Refused(_) | StoreError::OtherRows => ErrorKind::Internal,
            StoreError::Unavailable(_) | StoreError::Unknown(_) => ErrorKind::StoreUnavailable,
        };
        Self::new(kind).operator(error.to_string())
    }
}

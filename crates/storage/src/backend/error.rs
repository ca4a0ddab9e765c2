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
    /// A stored record was written by a newer version of Toolhub, in a layout that this one does not know. The record is not damaged.
    #[error(
        "the stored {table} record `{id}` has layout {found}, and this version of Toolhub reads layouts up to {known}: \
         a newer version wrote it; update this one"
    )]
    NewerLayout {
        /// The table of the record.
        table: Table,
        /// Its id.
        id: SmolStr,
        /// Its layout.
        found: u32,
        /// The newest layout of such records that this version reads.
        known: u32,
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
        if found > known {
            return Self::NewerLayout { table, id, found, known };
        }
        Self::Damaged { table, id, reason: format!("it has layout {found}, this version supports {known}") }
    }

    /// Logs that a record was skipped because it cannot be read, for callers that cannot return the error.
    pub fn log_skipped(&self) {
        match self {
            Self::Damaged { table, id, reason } => {
                tracing::warn!(%table, %id, %reason, "skipping unreadable stored record");
            }
            Self::NewerLayout { .. } => tracing::warn!(error = %self, "skipping a record of a newer version"),
            _ => {}
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
            // A node of the newer version can answer.
            StoreError::Unavailable(_) | StoreError::Unknown(_) | StoreError::NewerLayout { .. } => {
                ErrorKind::StoreUnavailable
            }
        };
        Self::new(kind).operator(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_layout_is_an_error_of_its_own_and_an_unknown_older_one_is_damage() {
        let error = |found, known| StoreError::unknown_layout(Table::Claims, "k".into(), found, known);
        let newer = error(3, 2);
        assert_eq!(newer, StoreError::NewerLayout { table: Table::Claims, id: "k".into(), found: 3, known: 2 });
        assert!(newer.to_string().contains("reads layouts up to 2"), "{newer}");
        assert_eq!(CallError::from(newer).kind, ErrorKind::StoreUnavailable);
        assert!(matches!(error(0, 2), StoreError::Damaged { .. }));
    }
}

//! Why a store did not do what was asked.

use smol_str::SmolStr;

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

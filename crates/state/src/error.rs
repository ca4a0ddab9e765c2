//! Errors of state operations, and the error kind each maps to.

use smol_str::SmolStr;

use toolhub_storage::backend::StoreError;
use toolhub_types::error::{CallError, ErrorKind};

/// Why a state operation failed. Nothing was changed, unless the response of the store was lost.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The state does not exist or has expired.
    #[error("there is no state `{0}`, or it has expired")]
    NotFound(SmolStr),
    /// The snapshot does not exist or was removed.
    #[error("there is no version {version} of `{state}`")]
    NoVersion {
        /// The state.
        state: SmolStr,
        /// The requested version.
        version: u64,
    },
    /// A concurrent write changed the state.
    #[error("the state `{state}` {}", conflict_text(*found, *expected))]
    Conflict {
        /// The state.
        state: SmolStr,
        /// The version it has; 0 when the state does not exist.
        found: u64,
        /// The version the write expected, if it named one; 0 when the state must not exist.
        expected: Option<u64>,
    },
    /// The state exceeds the size limit.
    #[error("the state has {bytes} bytes; the limit is {limit}; store less, or raise `max_state_size`")]
    TooLarge {
        /// Its size as JSON text.
        bytes: usize,
        /// The size limit.
        limit: usize,
    },
    /// The session has reached its limit of states.
    #[error("the session of the thread has reached its limit of {limit} states")]
    Limit {
        /// The maximum number of states per session.
        limit: usize,
    },
    /// The stored value cannot be read.
    #[error("the stored state `{state}` cannot be read: {reason}")]
    Unreadable {
        /// The state.
        state: SmolStr,
        /// The reason.
        reason: String,
    },
    /// The request is invalid.
    #[error("{0}")]
    Refused(String),
    /// A line of an export cannot be imported.
    #[error("line {line}: {reason}")]
    InvalidLine {
        /// The line number, starting at 1.
        line: usize,
        /// The reason.
        reason: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn conflict_text(found: u64, expected: Option<u64>) -> String {
    match expected {
        None => format!("has version {found}; another version was expected"),
        Some(0) => format!("has version {found}; no state was expected"),
        Some(version) if version == found => {
            format!("was deleted and created again; its version {found} is not the one that was expected")
        }
        Some(version) => format!("has version {found}; version {version} was expected"),
    }
}

impl StateError {
    /// The error kind.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NotFound(_) | Self::NoVersion { .. } => ErrorKind::StateNotFound,
            Self::Conflict { .. } | Self::Store(StoreError::Conflict { .. }) => ErrorKind::StateConflict,
            Self::TooLarge { .. } => ErrorKind::StateTooLarge,
            Self::Limit { .. } => ErrorKind::StateLimit,
            Self::Unreadable { .. } | Self::Store(StoreError::Damaged { .. }) => ErrorKind::StateUnreadable,
            Self::Refused(_) | Self::InvalidLine { .. } => ErrorKind::ArgumentsInvalid,
            Self::Store(StoreError::Refused(_)) => ErrorKind::Internal,
            Self::Store(_) => ErrorKind::StoreUnavailable,
        }
    }
}

impl From<StateError> for CallError {
    fn from(error: StateError) -> Self {
        Self::new(error.kind()).operator(error.to_string())
    }
}

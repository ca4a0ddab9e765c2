//! Why something about a state was not done.

use smol_str::SmolStr;

use toolhub_storage::backend::StoreError;
use toolhub_types::error::{CallError, ErrorKind};

/// Why something about a state was not done. Nothing was changed, unless the store's answer was lost.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// There is nothing, or it has expired.
    #[error("there is no state `{0}`, or it has expired")]
    NotFound(SmolStr),
    /// There is no such snapshot, or none any more.
    #[error("there is no version {version} of `{state}`")]
    NoVersion {
        /// The state.
        state: SmolStr,
        /// The version that was asked for.
        version: u64,
    },
    /// Somebody else wrote in the meantime.
    #[error("the state `{state}` has version {found}; another version was expected")]
    Conflict {
        /// The state.
        state: SmolStr,
        /// The version it has; 0 when there is none.
        found: u64,
    },
    /// It is larger than allowed.
    #[error("the state would take {bytes} bytes; {most} are allowed")]
    TooLarge {
        /// Its size as JSON text.
        bytes: usize,
        /// The largest that is allowed.
        most: usize,
    },
    /// The session keeps as many states as it may.
    #[error("the thread keeps {most} states in this session, as many as it may")]
    Limit {
        /// How many it may keep.
        most: usize,
    },
    /// What is stored cannot be read.
    #[error("the stored state `{state}` cannot be read: {reason}")]
    Unreadable {
        /// The state.
        state: SmolStr,
        /// What is wrong with it.
        reason: String,
    },
    /// What was asked for makes no sense.
    #[error("{0}")]
    Refused(String),
    /// A line of an export cannot be taken in.
    #[error("line {line}: {reason}")]
    InvalidLine {
        /// The line, counted from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// The store does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl StateError {
    /// The row of the table of errors.
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

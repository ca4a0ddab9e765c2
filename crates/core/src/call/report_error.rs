//! `ReportError`: why the reported result of an external call was refused.

use toolhub_storage::backend::StoreError;

/// Why the reported result of an external call was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// The tenant has no such call.
    #[error("there is no such call")]
    NotFound,
    /// The call has ended: it timed out, was cancelled or interrupted, or its result was already reported.
    #[error("the call has already ended")]
    Late,
    /// The call still waits for approval or in the queue, so it must not be executed yet.
    #[error("the call has not started yet: it waits for approval or in the queue")]
    Early,
    /// The hub executes the call itself.
    #[error("the call is not external: the hub executes it")]
    NotExternal,
    /// The store does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

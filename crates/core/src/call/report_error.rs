//! Why a result from outside was not taken.

use toolhub_storage::backend::StoreError;

/// Why the result of a call that somebody outside does was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// The tenant has no such call.
    #[error("there is no such call")]
    NotFound,
    /// It has ended: its time was over, it was cancelled, its process died, or its result was reported before.
    #[error("the call has ended, and takes no result any more")]
    Late,
    /// It waits for a person or for its turn. Whoever did the work did it too soon.
    #[error("the call has not begun, and takes no result yet")]
    Early,
    /// Its tool does the work itself.
    #[error("the work of this call is not done outside")]
    NotExternal,
    /// It is open, and not run by this hub.
    #[error("the call is not run by this hub")]
    OnOtherNode,
    /// The store does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

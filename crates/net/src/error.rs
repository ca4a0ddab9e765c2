//! Why there is no connection, or no response.
//!
//! Plain data: which error of a call, a model or a command each becomes is decided by the callers.

use std::time::Duration;

/// Why there is no connection. Nothing was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DialError {
    /// The guard refused the address.
    #[error("{0}")]
    Forbidden(String),
    /// There was no connection in time.
    #[error("no connection within {0:?}")]
    Timeout(Duration),
    /// The host is unknown, refuses the connection, or cannot be verified.
    #[error("{failure}: {reason}")]
    Unreachable {
        /// What failed, and where.
        failure: String,
        /// Why.
        reason: String,
    },
}

impl DialError {
    pub(crate) fn unreachable(failure: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Unreachable { failure: failure.into(), reason: reason.into() }
    }
}

/// Why there is no response, or not all of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// There is no connection; nothing was sent.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// The request cannot be written as HTTP; nothing was sent.
    #[error("no request can be made of this: {0}")]
    Request(String),
    /// The service accepted no bytes for this long.
    #[error("the service took no bytes for {0:?}")]
    WriteTimeout(Duration),
    /// The service sent no bytes for this long.
    #[error("the service said nothing for {0:?}")]
    ReadTimeout(Duration),
    /// The connection ended early, or what came is no HTTP.
    #[error("{failure}: {reason}")]
    Broken {
        /// What failed, with its causes except for the last.
        failure: String,
        /// The last cause.
        reason: String,
    },
}

//! Why there is no connection, and the byte stream that one is made of.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};

/// Any byte stream. One type for TCP, TLS and tunnels, so that hyper is compiled for one.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

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

//! Errors of connecting, sending and receiving.
//!
//! Plain data: the callers map them to errors of calls, models and commands.

use std::time::Duration;

/// Why a connection could not be opened. Nothing was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DialError {
    /// The address guard refused the address.
    #[error("{0}")]
    Forbidden(String),
    /// DNS, TCP, proxy and TLS together exceeded the connect timeout.
    #[error("connect timeout: no connection within {0:?}")]
    Timeout(Duration),
    /// DNS, TCP or the proxy failed, or HTTP could not start.
    #[error("{failure}: {reason}")]
    Unreachable {
        /// What failed, with the host or origin.
        failure: String,
        /// The cause.
        reason: String,
    },
    /// The TLS handshake failed, or the certificate was rejected.
    #[error("{failure}: {reason}")]
    Tls {
        /// What failed, with the origin.
        failure: String,
        /// The cause.
        reason: String,
    },
}

impl DialError {
    pub(crate) fn unreachable(failure: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Unreachable { failure: failure.into(), reason: reason.into() }
    }
}

/// Why a response is missing or incomplete.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// There is no connection; nothing was sent.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// The request cannot be represented in HTTP; nothing was sent.
    #[error("invalid HTTP request: {0}")]
    Request(String),
    /// The service accepted no bytes for this long.
    #[error("write timeout: the service accepted no bytes for {0:?}")]
    WriteTimeout(Duration),
    /// The service sent no bytes for this long.
    #[error("read timeout: the service sent no bytes for {0:?}")]
    ReadTimeout(Duration),
    /// The connection closed early, or the response is not valid HTTP.
    #[error("{failure}: {reason}")]
    Broken {
        /// What failed, with its causes except for the last.
        failure: String,
        /// The last cause.
        reason: String,
    },
}

//! Peer address and id of a request, known when it arrives.
//!
//! In: the request headers and the address of the connection. Out: a value that is attached to the request as an
//! extension, for checks, logs and the audit log. Makes no decision.

use std::net::SocketAddr;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use smol_str::{SmolStr, format_smolstr};

/// The header in which a client may send its own request id; the response repeats it.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Peer and id of a request.
#[derive(Debug, Clone)]
pub(crate) struct RequestInfo {
    /// The address of the client; `None` if the router is used without the listener.
    pub(crate) peer: Option<SocketAddr>,
    /// The request id: the client's, or a generated one.
    pub(crate) id: SmolStr,
}

impl RequestInfo {
    /// Takes the request id from the headers, or generates one.
    pub(crate) fn new(headers: &HeaderMap, peer: Option<SocketAddr>) -> Self {
        let sent = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok());
        // It appears in logs and responses, so only plain characters are accepted.
        let is_plain = |id: &&str| {
            (1..=64).contains(&id.len())
                && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte))
        };
        let id = sent.filter(is_plain).map_or_else(|| format_smolstr!("{:016x}", fastrand::u64(..)), SmolStr::new);
        Self { peer, id }
    }

    /// The request id, for the response.
    pub(crate) fn header_value(&self) -> Option<HeaderValue> {
        HeaderValue::from_str(&self.id).ok()
    }
}

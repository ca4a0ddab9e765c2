//! What is known of a request when it arrives: its peer and its id.
//!
//! In: the headers of a request and the address of its connection. Out: a value that travels with the request as an extension, for
//! checks, logs and the audit. Decides nothing.

use std::net::SocketAddr;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use smol_str::{SmolStr, format_smolstr};

/// The header a request may bring a name of its own in; it is in the answer too.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// How a request came in.
#[derive(Debug, Clone)]
pub(crate) struct RequestInfo {
    /// Who sent it. Nobody where the router is used without the listener.
    pub(crate) peer: Option<SocketAddr>,
    /// Its own name, for logs: the client's, or one made here.
    pub(crate) id: SmolStr,
}

impl RequestInfo {
    /// Notes who sent a request, and names it.
    pub(crate) fn new(headers: &HeaderMap, peer: Option<SocketAddr>) -> Self {
        let given = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok());
        // It goes into logs and answers, so it must be plain.
        let plain = |id: &&str| {
            (1..=64).contains(&id.len())
                && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte))
        };
        let id = given.filter(plain).map_or_else(|| format_smolstr!("{:016x}", fastrand::u64(..)), SmolStr::new);
        Self { peer, id }
    }

    /// The same name, for the answer.
    pub(crate) fn header_value(&self) -> Option<HeaderValue> {
        HeaderValue::from_str(&self.id).ok()
    }
}

//! Whether an address may be listened on: one that strangers can reach needs keys, and the names it is reached by.

use std::net::SocketAddr;

use crate::{guard::Front, keys::Keys, settings::Auth};

/// Why an address may not be listened on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exposed {
    /// Everybody who reaches it could do everything.
    WithoutKeys,
    /// Any web page could reach it by a name of its own.
    WithoutHosts,
}

/// Whether a server may listen here.
pub(crate) fn may_listen(address: SocketAddr, auth: &Auth, keys: &Keys, front: &Front) -> Result<(), Exposed> {
    if address.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    if matches!(auth, Auth::Local) || keys.is_empty() {
        return Err(Exposed::WithoutKeys);
    }
    if front.hosts().any_beyond_loopback() { Ok(()) } else { Err(Exposed::WithoutHosts) }
}

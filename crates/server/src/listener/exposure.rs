//! Whether an address may be listened on: one that strangers can reach needs keys, and the names it is reached by.

use std::net::SocketAddr;

use crate::{keys::Keys, origin_check::OriginCheck, settings::Auth};

/// Why an address may not be listened on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exposed {
    /// Everybody who reaches it could do everything.
    WithoutKeys,
    /// Any web page could reach it by a name of its own.
    WithoutHosts,
}

/// Whether a server may listen here.
pub(crate) fn may_listen(address: SocketAddr, auth: &Auth, keys: &Keys, origin: &OriginCheck) -> Result<(), Exposed> {
    if address.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    if matches!(auth, Auth::Local) || keys.is_empty() {
        return Err(Exposed::WithoutKeys);
    }
    if origin.hosts().any_beyond_loopback() { Ok(()) } else { Err(Exposed::WithoutHosts) }
}

//! Whether an address may be listened on: one that strangers can reach needs keys, and the names it is reached by.

use std::net::SocketAddr;

use crate::{keys::Keys, origin_check::OriginCheck, settings::Auth};

/// Why an address may not be listened on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExposureError {
    /// Everybody who reaches it could do everything.
    WithoutKeys,
    /// Any web page could reach it by a name of its own.
    WithoutHosts,
}

/// Whether a server may listen here.
pub(crate) fn check_exposure(
    address: SocketAddr,
    auth: &Auth,
    keys: &Keys,
    origin: &OriginCheck,
) -> Result<(), ExposureError> {
    if address.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    if matches!(auth, Auth::Local) || keys.is_empty() {
        return Err(ExposureError::WithoutKeys);
    }
    if origin.hosts().has_non_loopback() { Ok(()) } else { Err(ExposureError::WithoutHosts) }
}

//! Refuses to listen on an address that is not loopback, unless keys and allowed hosts are configured.

use std::net::SocketAddr;

use crate::{keys::Keys, origin_check::OriginCheck, settings::Auth};

/// Why an address must not be listened on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExposureError {
    /// Every client that reaches it would have full access.
    WithoutKeys,
    /// Any web page could reach it through DNS rebinding.
    WithoutHosts,
}

/// Whether the server may listen on `address`.
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

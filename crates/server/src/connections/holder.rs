//! Who holds a connection: the unit by which places are shared.
//!
//! In: the address of the peer and, once known, its key. Out: a value to count by.

use std::{
    net::{IpAddr, Ipv6Addr},
    time::Duration,
};

use toolhub_core::ids::{Caller, Tenant};

use crate::scope::Principal;

/// A client, as far as the server can tell clients apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Holder {
    /// A client that has sent no valid key: its IPv4 address, or the /64 prefix of its IPv6 address.
    Address(IpAddr),
    /// The holder of a key, at any address: behind a proxy, all clients have the same one.
    Key(Tenant, Caller),
}

/// Whose event streams a response counts to; set on the response of each one.
#[derive(Debug, Clone)]
pub(crate) struct StreamHolder {
    pub(crate) holder: Holder,
    /// How long the client may leave it unread, if that is less than the server's timeout.
    pub(crate) unread_timeout: Option<Duration>,
}

impl StreamHolder {
    /// A stream of the holder of a key.
    pub(crate) fn of_key(principal: &Principal) -> Self {
        Self { holder: Holder::of_key(principal), unread_timeout: None }
    }
}

impl Holder {
    /// The holder of a connection before its first request.
    pub(crate) fn of_peer(address: IpAddr) -> Self {
        Self::Address(match address.to_canonical() {
            // A client with one IPv6 address usually has its whole /64 network.
            IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
            v4 @ IpAddr::V4(_) => v4,
        })
    }

    /// The holder of a key.
    pub(crate) fn of_key(principal: &Principal) -> Self {
        Self::Key(principal.tenant.clone(), principal.caller.clone())
    }

    /// The tenant of the key.
    pub(crate) fn tenant(&self) -> Option<Tenant> {
        match self {
            Self::Address(_) => None,
            Self::Key(tenant, _) => Some(tenant.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_ipv6_network_are_one_holder_and_a_mapped_address_is_its_ipv4_address() {
        let holder = |address: &str| Holder::of_peer(address.parse().unwrap());
        assert_eq!(holder("2001:db8::1"), holder("2001:db8::ffff:1"));
        assert_ne!(holder("2001:db8::1"), holder("2001:db8:0:1::1"));
        assert_eq!(holder("::ffff:192.0.2.1"), holder("192.0.2.1"));
        assert_ne!(holder("192.0.2.2"), holder("192.0.2.1"));
    }
}
